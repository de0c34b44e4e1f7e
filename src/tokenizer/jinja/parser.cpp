#include "tokenizer/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <span>

#include "tokenizer/jinja/expression_parser.h"

namespace avocet::tokenizer::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Template> Run() {
    AVOCET_TRY(Block body, Body({}));
    AVOCET_TRY_VOID(RefuseUnknownNames(0));
    return Template{std::move(body), std::move(names_)};
  }

 private:
  using ParsedStatement = Result<std::unique_ptr<Statement>>;
  using Ends = std::initializer_list<std::string_view>;

  std::unique_ptr<Statement> Make(StatementKind kind) const {
    auto node = std::make_unique<Statement>();
    node->kind = kind;
    node->line = Peek().line;
    return node;
  }

  Result<void> ExpectBlockEnd() {
    if (!Is(TokenKind::kBlockEnd)) return Unexpected("'%}'");
    Next();
    return {};
  }

  // Statements up to a tag with one of the names, whose "{%" and name are left; to the end of the template when there are none.
  Result<Block> Body(Ends ends) {
    const Depth depth(*this);
    AVOCET_TRY_VOID(depth.Check());
    Block block;
    for (;;) {
      switch (Peek().kind) {
        case TokenKind::kEnd:
          if (ends.size() > 0) return Refuse(fmt::format("the template ends where '{}' is expected", *(ends.end() - 1)));
          return block;
        case TokenKind::kText: {
          auto text = Make(StatementKind::kText);
          text->text = Next().text;
          block.push_back(std::move(text));
          break;
        }
        case TokenKind::kOutputBegin: {
          AVOCET_TRY(auto output, Output());
          block.push_back(std::move(output));
          break;
        }
        default: {
          if (Peek(1).kind == TokenKind::kName && std::ranges::find(ends, Peek(1).text) != ends.end()) return block;
          Next();
          AVOCET_TRY(auto statement, Tag());
          block.push_back(std::move(statement));
        }
      }
    }
  }

  // The body of a tag: after the tag's "%}" (a colon may stand before it), through the end tag's name.
  Result<Block> TagBody(Ends ends, std::string* end) {
    SkipOperator(":");
    AVOCET_TRY_VOID(ExpectBlockEnd());
    AVOCET_TRY(Block body, Body(ends));
    Next();
    *end = Next().text;
    return body;
  }

  // A body with a scope of its own: names of filters and tests must exist in it.
  Result<Block> ScopedBody(Ends ends, std::string* end) {
    const size_t num_unknown = unknown_names_.size();
    AVOCET_TRY(Block body, TagBody(ends, end));
    AVOCET_TRY_VOID(RefuseUnknownNames(num_unknown));
    return body;
  }
  Result<Block> ScopedBody(std::string_view end) {
    std::string tag;
    AVOCET_TRY(Block body, ScopedBody({end}, &tag));
    AVOCET_TRY_VOID(ExpectBlockEnd());
    return body;
  }

  ParsedStatement Output() {
    auto node = Make(StatementKind::kOutput);
    Next();
    AVOCET_TRY(ExpressionPtr value, ExprOrTuple());
    node->expressions.push_back(std::move(value));
    if (!Is(TokenKind::kOutputEnd)) return Unexpected("'}}'");
    Next();
    return node;
  }

  ParsedStatement Tag() {
    using Handler = ParsedStatement (Parser::*)();
    static constexpr std::pair<std::string_view, Handler> kTags[] = {
        {"if", &Parser::If},
        {"for", &Parser::For},
        {"set", &Parser::Set},
        {"macro", &Parser::Macro},
        {"call", &Parser::CallBlock},
        {"filter", &Parser::FilterBlock},
        {"with", &Parser::With},
        {"generation", &Parser::Generation},
        {"break", &Parser::LoopControl},
        {"continue", &Parser::LoopControl},
        {"print", &Parser::Print},
    };
    if (!Is(TokenKind::kName)) return Unexpected("the name of a tag");
    for (const auto& [name, handler] : kTags) {
      if (IsName(name)) return (this->*handler)();
    }
    for (std::string_view name : {"include", "import", "from", "extends", "block", "autoescape"}) {
      if (IsName(name)) return Refuse(fmt::format("the tag '{}' is not offered: a chat template is one file of plain text", name));
    }
    return Refuse(fmt::format("there is no tag '{}'", Peek().text));
  }

  ParsedStatement If() {
    auto node = Make(StatementKind::kIf);
    const size_t num_unknown = unknown_names_.size();
    for (std::string tag = Next().text; tag != "endif";) {
      Branch branch;
      const bool is_else = tag == "else";
      if (!is_else) {
        AVOCET_TRY(branch.condition, ExprOrTuple(Conditionals::kNot));
      }
      AVOCET_TRY(branch.body, is_else ? TagBody({"endif"}, &tag) : TagBody({"elif", "else", "endif"}, &tag));
      node->branches.push_back(std::move(branch));
    }
    unknown_names_.resize(num_unknown);
    AVOCET_TRY_VOID(ExpectBlockEnd());
    return node;
  }

  ParsedStatement For() {
    auto node = Make(StatementKind::kFor);
    Next();
    AVOCET_TRY(Target target, AssignmentTarget(Attributes::kRefused));
    node->name = Intern("loop");
    if (Assigns(target, node->name)) return Refuse("cannot assign to 'loop' in a loop");
    node->targets.push_back(std::move(target));
    if (!SkipName("in")) return Unexpected("'in'");
    AVOCET_TRY(ExpressionPtr iterable, ExprOrTuple(Conditionals::kNot));
    node->expressions.push_back(std::move(iterable));
    if (SkipName("if")) {
      const size_t num_unknown = unknown_names_.size();
      AVOCET_TRY(node->condition, Expr());
      AVOCET_TRY_VOID(RefuseUnknownNames(num_unknown));
    }
    node->is_recursive = SkipName("recursive");
    ++num_loops_;
    std::string tag;
    AVOCET_TRY(node->body, ScopedBody({"else", "endfor"}, &tag));
    --num_loops_;
    if (tag == "endfor") {
      AVOCET_TRY_VOID(ExpectBlockEnd());
    } else {
      AVOCET_TRY(node->else_body, ScopedBody("endfor"));
    }
    return node;
  }

  static bool Assigns(const Target& target, NameId name) {
    if (target.kind == Target::Kind::kName) return target.name == name;
    return std::ranges::any_of(target.children, [name](const Target& child) { return Assigns(child, name); });
  }

  ParsedStatement Set() {
    auto node = Make(StatementKind::kSet);
    Next();
    AVOCET_TRY(Target target, AssignmentTarget(Attributes::kAllowed));
    node->targets.push_back(std::move(target));
    if (SkipOperator("=")) {
      AVOCET_TRY(ExpressionPtr value, ExprOrTuple());
      node->expressions.push_back(std::move(value));
      AVOCET_TRY_VOID(ExpectBlockEnd());
      return node;
    }
    node->kind = StatementKind::kSetBlock;
    if (IsOperator("|")) {
      AVOCET_TRY(ExpressionPtr filters, Filters(nullptr));
      node->expressions.push_back(std::move(filters));
    }
    AVOCET_TRY(node->body, ScopedBody("endset"));
    return node;
  }

  Result<void> Parameters(MacroData& macro) {
    AVOCET_TRY_VOID(ExpectOperator("("));
    while (!IsOperator(")")) {
      if (!macro.parameters.empty()) {
        AVOCET_TRY_VOID(ExpectOperator(","));
      }
      Parameter parameter;
      AVOCET_TRY(parameter.text, ExpectName("the name of a parameter"));
      parameter.name = Intern(parameter.text);
      NoteAssignment(parameter.text);
      if (std::ranges::find(macro.parameters, parameter.name, &Parameter::name) != macro.parameters.end()) {
        return Refuse(fmt::format("the parameter '{}' is there twice", parameter.text));
      }
      if (SkipOperator("=")) {
        AVOCET_TRY(parameter.default_value, Expr());
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value != nullptr) {
        return Refuse("a parameter without a default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    return ExpectOperator(")");
  }

  // The body of a macro or call block, in which caller, varargs and kwargs have a meaning where they are spoken of.
  Result<void> MacroBody(MacroData& macro, std::string_view end) {
    const int outer_loops = std::exchange(num_loops_, 0);
    macros_.emplace_back();
    AVOCET_TRY(macro.body, ScopedBody(end));
    const SpecialNames special = macros_.back();
    macros_.pop_back();
    num_loops_ = outer_loops;
    const auto has_parameter = [&macro](NameId name) {
      return std::ranges::find(macro.parameters, name, &Parameter::name) != macro.parameters.end();
    };
    macro.caller = Intern("caller");
    macro.varargs = Intern("varargs");
    macro.kwargs = Intern("kwargs");
    macro.takes_caller = special.is_used[SpecialNames::kCaller];
    macro.takes_varargs = special.is_used[SpecialNames::kVarargs] && !has_parameter(macro.varargs);
    macro.takes_kwargs = special.is_used[SpecialNames::kKwargs] && !has_parameter(macro.kwargs);
    macro.has_caller_parameter = has_parameter(macro.caller);
    const auto caller = std::ranges::find(macro.parameters, macro.caller, &Parameter::name);
    if (macro.takes_caller && macro.has_caller_parameter && caller->default_value == nullptr)
      return Refuse("the parameter 'caller' needs a default");
    return {};
  }

  ParsedStatement Macro() {
    auto node = Make(StatementKind::kMacro);
    Next();
    node->macro = std::make_unique<MacroData>();
    AVOCET_TRY(node->macro->name, ExpectName("the name of a macro"));
    node->name = Intern(node->macro->name);
    AVOCET_TRY_VOID(Parameters(*node->macro));
    AVOCET_TRY_VOID(MacroBody(*node->macro, "endmacro"));
    return node;
  }

  ParsedStatement CallBlock() {
    auto node = Make(StatementKind::kCallBlock);
    Next();
    node->macro = std::make_unique<MacroData>();
    node->macro->name = "caller";
    if (IsOperator("(")) {
      AVOCET_TRY_VOID(Parameters(*node->macro));
    }
    AVOCET_TRY(ExpressionPtr call, Expr());
    if (call->kind != ExpressionKind::kCall) return RefuseAt(node->line, "the tag 'call' needs a call");
    if (std::ranges::find(call->arguments->named, "caller", &CallArguments::Named::name) != call->arguments->named.end()) {
      return RefuseAt(node->line, "the argument 'caller' is given twice");
    }
    node->expressions.push_back(std::move(call));
    AVOCET_TRY_VOID(MacroBody(*node->macro, "endcall"));
    return node;
  }

  ParsedStatement FilterBlock() {
    auto node = Make(StatementKind::kFilterBlock);
    Next();
    AVOCET_TRY(ExpressionPtr filter, FilterNamed(nullptr));
    AVOCET_TRY(filter, Filters(std::move(filter)));
    node->expressions.push_back(std::move(filter));
    AVOCET_TRY(node->body, ScopedBody("endfilter"));
    return node;
  }

  ParsedStatement With() {
    auto node = Make(StatementKind::kWith);
    Next();
    while (!Is(TokenKind::kBlockEnd)) {
      if (!node->targets.empty()) {
        AVOCET_TRY_VOID(ExpectOperator(","));
      }
      AVOCET_TRY(Target target, AssignmentTarget(Attributes::kRefused));
      AVOCET_TRY_VOID(ExpectOperator("="));
      AVOCET_TRY(ExpressionPtr value, Expr());
      node->targets.push_back(std::move(target));
      node->expressions.push_back(std::move(value));
    }
    AVOCET_TRY(node->body, ScopedBody("endwith"));
    return node;
  }

  // Marks what the model has said, for training; here it shows its body. The reference makes a macro of it.
  ParsedStatement Generation() {
    auto node = Make(StatementKind::kGeneration);
    Next();
    const int outer_loops = std::exchange(num_loops_, 0);
    AVOCET_TRY(node->body, ScopedBody("endgeneration"));
    num_loops_ = outer_loops;
    return node;
  }

  ParsedStatement LoopControl() {
    auto node = Make(IsName("break") ? StatementKind::kBreak : StatementKind::kContinue);
    if (num_loops_ == 0) return Refuse(fmt::format("'{}' outside of a loop", Peek().text));
    Next();
    AVOCET_TRY_VOID(ExpectBlockEnd());
    return node;
  }

  ParsedStatement Print() {
    auto node = Make(StatementKind::kOutput);
    Next();
    while (!Is(TokenKind::kBlockEnd)) {
      if (!node->expressions.empty()) {
        AVOCET_TRY_VOID(ExpectOperator(","));
      }
      AVOCET_TRY(ExpressionPtr value, Expr());
      node->expressions.push_back(std::move(value));
    }
    AVOCET_TRY_VOID(ExpectBlockEnd());
    return node;
  }

  int num_loops_ = 0;  // around this place, within the macro
};

}  // namespace

Result<Template> Parse(std::string_view source) {
  AVOCET_TRY(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace avocet::tokenizer::jinja
