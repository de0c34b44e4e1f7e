#include "tokenizer/jinja_parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include <fmt/format.h>

#include "base/limits.h"
#include "tokenizer/jinja_lexer.h"

namespace avocet::tokenizer::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(Tokenize(source)) {}

  Block Template() {
    Block block = Body({});
    if (Peek().kind != TokenKind::kEnd) Fail("the template goes on after its end");
    return block;
  }

 private:
  // Recursion follows the nesting of the source: bounded, so that a hostile template cannot exhaust the stack.
  class Depth {
   public:
    explicit Depth(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > limits::kTemplateDepthMax) parser_.Fail("blocks or expressions are nested too deeply");
    }
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Parser& parser_;
  };

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token Next() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  [[noreturn]] void Fail(std::string_view reason) const { throw TemplateError(fmt::format("line {}: {}", Peek().line, reason)); }

  bool IsOperator(std::string_view text, size_t ahead = 0) const {
    return Peek(ahead).kind == TokenKind::kOperator && Peek(ahead).text == text;
  }
  bool IsName(std::string_view text, size_t ahead = 0) const { return Peek(ahead).kind == TokenKind::kName && Peek(ahead).text == text; }
  bool SkipOperator(std::string_view text) {
    if (!IsOperator(text)) return false;
    ++at_;
    return true;
  }
  bool SkipName(std::string_view text) {
    if (!IsName(text)) return false;
    ++at_;
    return true;
  }
  void ExpectOperator(std::string_view text) {
    if (!SkipOperator(text)) Fail(fmt::format("expected '{}', found '{}'", text, Peek().text));
  }
  std::string ExpectName() {
    if (Peek().kind != TokenKind::kName) Fail(fmt::format("expected a name, found '{}'", Peek().text));
    return Next().text;
  }
  void ExpectBlockEnd() {
    if (Peek().kind != TokenKind::kBlockEnd) Fail(fmt::format("expected the end of the tag, found '{}'", Peek().text));
    ++at_;
  }

  ExpressionPtr Make(ExpressionKind kind, std::string text = {}) const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = Peek().line;
    node->text = std::move(text);
    return node;
  }
  std::unique_ptr<Statement> MakeStatement(StatementKind kind) const {
    auto node = std::make_unique<Statement>();
    node->kind = kind;
    node->line = Peek().line;
    return node;
  }
  // Chains such as a.b.c or a + b + c grow the tree without recursion here.
  void Adopt(Expression& parent, ExpressionPtr child) const {
    if (child != nullptr) parent.height = std::max(parent.height, child->height + 1);
    if (parent.height > 2 * limits::kTemplateDepthMax) Fail("the expression is too long");
    parent.children.push_back(std::move(child));
  }
  ExpressionPtr MakeLiteral(Value value) const {
    ExpressionPtr node = Make(ExpressionKind::kLiteral);
    node->value = std::move(value);
    return node;
  }

  // Statements up to a tag named by one of `ends` (not consumed); up to the end of the template when there are none.
  Block Body(std::initializer_list<std::string_view> ends) {
    const Depth depth(*this);
    Block block;
    for (;;) {
      const Token& token = Peek();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() > 0) Fail(fmt::format("the template ends where '{}' is expected", *(ends.end() - 1)));
        return block;
      }
      if (token.kind == TokenKind::kText) {
        auto text = MakeStatement(StatementKind::kText);
        text->text = Next().text;
        block.push_back(std::move(text));
      } else if (token.kind == TokenKind::kOutputBegin) {
        ++at_;
        auto output = MakeStatement(StatementKind::kOutput);
        output->expression = TupleOrExpression();
        if (Peek().kind != TokenKind::kOutputEnd) Fail(fmt::format("expected '}}}}', found '{}'", Peek().text));
        ++at_;
        block.push_back(std::move(output));
      } else {
        if (Peek(1).kind == TokenKind::kName && std::ranges::find(ends, Peek(1).text) != ends.end()) return block;
        ++at_;
        block.push_back(Tag());
      }
    }
  }

  // After Body: consumes "{% name".
  std::string EndTag() {
    ++at_;
    return Next().text;
  }

  std::unique_ptr<Statement> Tag() {
    const std::string name = ExpectName();
    if (name == "if") return If();
    if (name == "for") return For();
    if (name == "set") return Set();
    if (name == "macro") return Macro();
    if (name == "call") return CallBlock();
    if (name == "filter") return FilterBlock();
    if (name == "with") return With();
    if (name == "generation") return Simple(StatementKind::kBlock, "endgeneration");
    if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) Fail(fmt::format("'{}' outside of a loop", name));
      auto node = MakeStatement(name == "break" ? StatementKind::kBreak : StatementKind::kContinue);
      ExpectBlockEnd();
      return node;
    }
    if (name == "do") {
      auto node = MakeStatement(StatementKind::kDo);
      node->expression = TupleOrExpression();
      ExpectBlockEnd();
      return node;
    }
    if (name == "include" || name == "import" || name == "from" || name == "extends" || name == "block")
      Fail(fmt::format("'{}' is not offered: a chat template is one file", name));
    Fail(fmt::format("unknown tag '{}'", name));
  }

  std::unique_ptr<Statement> Simple(StatementKind kind, std::string_view end) {
    auto node = MakeStatement(kind);
    ExpectBlockEnd();
    node->body = Body({end});
    EndTag();
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> If() {
    auto node = MakeStatement(StatementKind::kIf);
    for (std::string tag = "if"; tag != "endif";) {
      Branch branch;
      if (tag != "else") branch.condition = TupleOrExpression();
      ExpectBlockEnd();
      const bool was_else = tag == "else";
      branch.body = was_else ? Body({"endif"}) : Body({"elif", "else", "endif"});
      node->branches.push_back(std::move(branch));
      tag = EndTag();
    }
    ExpectBlockEnd();
    return node;
  }

  ExpressionPtr Target() {
    ExpressionPtr first = TargetItem();
    if (!IsOperator(",")) return first;
    ExpressionPtr tuple = Make(ExpressionKind::kTuple);
    Adopt(*tuple, std::move(first));
    while (SkipOperator(",")) {
      if (IsName("in") || IsOperator("=")) break;
      Adopt(*tuple, TargetItem());
    }
    return tuple;
  }

  ExpressionPtr TargetItem() {
    if (SkipOperator("(")) {
      ExpressionPtr inner = Target();
      ExpectOperator(")");
      return inner;
    }
    ExpressionPtr name = Make(ExpressionKind::kName, ExpectName());
    if (!SkipOperator(".")) return name;
    ExpressionPtr attribute = Make(ExpressionKind::kAttribute, ExpectName());
    Adopt(*attribute, std::move(name));
    return attribute;
  }

  std::unique_ptr<Statement> For() {
    auto node = MakeStatement(StatementKind::kFor);
    node->target = Target();
    if (!SkipName("in")) Fail("expected 'in'");
    node->expression = TupleOrExpression(/*with_condition=*/Condition::kNone);
    if (SkipName("if")) node->condition = Expr();
    node->is_recursive = SkipName("recursive");
    ExpectBlockEnd();
    ++loop_depth_;
    node->body = Body({"else", "endfor"});
    --loop_depth_;
    if (EndTag() == "else") {
      ExpectBlockEnd();
      node->else_body = Body({"endfor"});
      EndTag();
    }
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> Set() {
    ExpressionPtr target = Target();
    if (SkipOperator("=")) {
      auto node = MakeStatement(StatementKind::kSet);
      node->target = std::move(target);
      node->expression = TupleOrExpression();
      ExpectBlockEnd();
      return node;
    }
    auto node = MakeStatement(StatementKind::kSetBlock);
    node->target = std::move(target);
    if (IsOperator("|")) node->expression = Filters(nullptr);
    ExpectBlockEnd();
    node->body = Body({"endset"});
    EndTag();
    ExpectBlockEnd();
    return node;
  }

  std::vector<Parameter> Parameters() {
    std::vector<Parameter> parameters;
    ExpectOperator("(");
    while (!IsOperator(")")) {
      Parameter parameter{ExpectName(), nullptr};
      if (SkipOperator("=")) {
        parameter.default_value = Expr();
      } else if (!parameters.empty() && parameters.back().default_value != nullptr) {
        Fail("a parameter without a default follows one with a default");
      }
      parameters.push_back(std::move(parameter));
      if (!SkipOperator(",")) break;
    }
    ExpectOperator(")");
    return parameters;
  }

  std::unique_ptr<Statement> Macro() {
    auto node = MakeStatement(StatementKind::kMacro);
    node->text = ExpectName();
    node->parameters = Parameters();
    ExpectBlockEnd();
    const int outer_loops = std::exchange(loop_depth_, 0);
    node->body = Body({"endmacro"});
    loop_depth_ = outer_loops;
    EndTag();
    if (Peek().kind == TokenKind::kName) ++at_;
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> CallBlock() {
    auto node = MakeStatement(StatementKind::kCallBlock);
    if (IsOperator("(")) node->parameters = Parameters();
    node->expression = Expr();
    if (node->expression->kind != ExpressionKind::kCall) Fail("'call' takes a call");
    ExpectBlockEnd();
    node->body = Body({"endcall"});
    EndTag();
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> FilterBlock() {
    auto node = MakeStatement(StatementKind::kFilterBlock);
    node->expression = FilterNamed(nullptr);
    if (IsOperator("|")) node->expression = Filters(std::move(node->expression));
    ExpectBlockEnd();
    node->body = Body({"endfilter"});
    EndTag();
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> With() {
    auto node = MakeStatement(StatementKind::kBlock);
    while (Peek().kind == TokenKind::kName) {
      Parameter assignment{ExpectName(), nullptr};
      ExpectOperator("=");
      assignment.default_value = Expr();
      node->parameters.push_back(std::move(assignment));
      if (!SkipOperator(",")) break;
    }
    ExpectBlockEnd();
    node->body = Body({"endwith"});
    EndTag();
    ExpectBlockEnd();
    return node;
  }

  enum class Condition { kAllowed, kNone };

  // "a, b" without brackets is a tuple.
  ExpressionPtr TupleOrExpression(Condition condition = Condition::kAllowed) {
    const auto one = [&] { return condition == Condition::kAllowed ? Expr() : Or(); };
    ExpressionPtr first = one();
    if (!IsOperator(",")) return first;
    ExpressionPtr tuple = Make(ExpressionKind::kTuple);
    Adopt(*tuple, std::move(first));
    while (SkipOperator(",")) {
      if (Peek().kind == TokenKind::kBlockEnd || Peek().kind == TokenKind::kOutputEnd) break;
      Adopt(*tuple, one());
    }
    return tuple;
  }

  ExpressionPtr Expr() {
    const Depth depth(*this);
    ExpressionPtr value = Or();
    while (IsName("if")) {
      ExpressionPtr node = Make(ExpressionKind::kConditional);
      ++at_;
      Adopt(*node, std::move(value));
      Adopt(*node, Or());
      Adopt(*node, SkipName("else") ? Expr() : nullptr);
      value = std::move(node);
    }
    return value;
  }

  ExpressionPtr Binary(std::string op, ExpressionPtr left, ExpressionPtr right) const {
    ExpressionPtr node = Make(ExpressionKind::kBinary, std::move(op));
    Adopt(*node, std::move(left));
    Adopt(*node, std::move(right));
    return node;
  }

  ExpressionPtr Or() {
    ExpressionPtr left = And();
    while (SkipName("or")) left = Binary("or", std::move(left), And());
    return left;
  }

  ExpressionPtr And() {
    ExpressionPtr left = Not();
    while (SkipName("and")) left = Binary("and", std::move(left), Not());
    return left;
  }

  ExpressionPtr Not() {
    const Depth depth(*this);
    if (!IsName("not")) return Compare();
    ExpressionPtr node = Make(ExpressionKind::kUnary, "not");
    ++at_;
    Adopt(*node, Not());
    return node;
  }

  ExpressionPtr Compare() {
    ExpressionPtr first = Sum();
    ExpressionPtr node;
    for (;;) {
      std::string op;
      for (std::string_view candidate : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (IsOperator(candidate)) op = candidate;
      }
      if (IsName("in")) op = "in";
      if (IsName("not") && IsName("in", 1)) op = "not in";
      if (op.empty()) break;
      at_ += op == "not in" ? 2 : 1;
      if (node == nullptr) {
        node = Make(ExpressionKind::kCompare);
        Adopt(*node, std::move(first));
      }
      node->operators.push_back(op);
      Adopt(*node, Sum());
    }
    return node != nullptr ? std::move(node) : std::move(first);
  }

  ExpressionPtr Sum() {
    ExpressionPtr left = Concat();
    while (IsOperator("+") || IsOperator("-")) {
      const std::string op = Next().text;
      left = Binary(op, std::move(left), Concat());
    }
    return left;
  }

  ExpressionPtr Concat() {
    ExpressionPtr left = Product();
    while (SkipOperator("~")) left = Binary("~", std::move(left), Product());
    return left;
  }

  ExpressionPtr Product() {
    ExpressionPtr left = Power();
    while (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%")) {
      const std::string op = Next().text;
      left = Binary(op, std::move(left), Power());
    }
    return left;
  }

  ExpressionPtr Power() {
    ExpressionPtr left = Unary(Filtering::kYes);
    while (SkipOperator("**")) left = Binary("**", std::move(left), Unary(Filtering::kYes));
    return left;
  }

  enum class Filtering { kYes, kNo };

  ExpressionPtr Unary(Filtering filtering) {
    const Depth depth(*this);
    ExpressionPtr node;
    if (IsOperator("-") || IsOperator("+")) {
      node = Make(ExpressionKind::kUnary, Next().text);
      Adopt(*node, Unary(Filtering::kNo));
    } else {
      node = Postfix(Primary());
    }
    return filtering == Filtering::kYes ? FiltersAndTests(std::move(node)) : std::move(node);
  }

  ExpressionPtr Number() {
    const Token token = Next();
    if (token.kind == TokenKind::kFloat) {
      double value = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      return MakeLiteral(Value::MakeFloat(value));
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    return MakeLiteral(error == std::errc() ? Value::MakeInt(value) : Value::MakeBig(token.text));
  }

  ExpressionPtr Primary() {
    const Token& token = Peek();
    if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return Number();
    if (token.kind == TokenKind::kString) {
      std::string text = Next().text;
      while (Peek().kind == TokenKind::kString) text += Next().text;
      return MakeLiteral(Value::MakeString(std::move(text)));
    }
    if (token.kind == TokenKind::kName) {
      const std::string name = Next().text;
      if (name == "true" || name == "True") return MakeLiteral(Value::MakeBool(true));
      if (name == "false" || name == "False") return MakeLiteral(Value::MakeBool(false));
      if (name == "none" || name == "None") return MakeLiteral(Value::MakeNone());
      return Make(ExpressionKind::kName, name);
    }
    if (SkipOperator("(")) return Parenthesised();
    if (SkipOperator("[")) {
      ExpressionPtr list = Make(ExpressionKind::kList);
      while (!IsOperator("]")) {
        Adopt(*list, Expr());
        if (!SkipOperator(",")) break;
      }
      ExpectOperator("]");
      return list;
    }
    if (SkipOperator("{")) {
      ExpressionPtr mapping = Make(ExpressionKind::kMapping);
      while (!IsOperator("}")) {
        Adopt(*mapping, Expr());
        ExpectOperator(":");
        Adopt(*mapping, Expr());
        if (!SkipOperator(",")) break;
      }
      ExpectOperator("}");
      return mapping;
    }
    Fail(fmt::format("expected a value, found '{}'", token.text));
  }

  ExpressionPtr Parenthesised() {
    ExpressionPtr tuple = Make(ExpressionKind::kTuple);
    if (SkipOperator(")")) return tuple;
    Adopt(*tuple, Expr());
    bool is_tuple = false;
    while (SkipOperator(",")) {
      is_tuple = true;
      if (IsOperator(")")) break;
      Adopt(*tuple, Expr());
    }
    ExpectOperator(")");
    return is_tuple ? std::move(tuple) : std::move(tuple->children[0]);
  }

  ExpressionPtr Postfix(ExpressionPtr node) {
    for (;;) {
      if (SkipOperator(".")) {
        if (Peek().kind == TokenKind::kInteger) {
          ExpressionPtr item = Make(ExpressionKind::kItem);
          Adopt(*item, std::move(node));
          Adopt(*item, Number());
          node = std::move(item);
        } else {
          ExpressionPtr attribute = Make(ExpressionKind::kAttribute, ExpectName());
          Adopt(*attribute, std::move(node));
          node = std::move(attribute);
        }
      } else if (SkipOperator("[")) {
        node = Subscript(std::move(node));
      } else if (IsOperator("(")) {
        ExpressionPtr call = Make(ExpressionKind::kCall);
        Adopt(*call, std::move(node));
        CallArguments(*call);
        node = std::move(call);
      } else {
        return node;
      }
    }
  }

  ExpressionPtr Subscript(ExpressionPtr object) {
    std::vector<ExpressionPtr> parts;
    bool is_slice = false;
    ExpressionPtr part;
    for (;;) {
      if (IsOperator("]") || IsOperator(":")) {
        parts.push_back(std::move(part));
        part = nullptr;
        if (SkipOperator("]")) break;
        ++at_;
        is_slice = true;
        if (IsOperator("]")) {
          parts.push_back(nullptr);
          ++at_;
          break;
        }
      } else if (part == nullptr) {
        part = TupleOrExpression();
      } else {
        Fail(fmt::format("expected ']', found '{}'", Peek().text));
      }
    }
    ExpressionPtr node = Make(is_slice ? ExpressionKind::kSlice : ExpressionKind::kItem);
    Adopt(*node, std::move(object));
    if (!is_slice && parts[0] == nullptr) Fail("a subscript is empty");
    if (parts.size() > 3) Fail("a slice has at most three parts");
    for (ExpressionPtr& one : parts) Adopt(*node, std::move(one));
    while (is_slice && node->children.size() < 4) Adopt(*node, nullptr);
    return node;
  }

  void CallArguments(Expression& call) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (IsOperator("*") || IsOperator("**")) Fail("unpacking of arguments is not offered");
      if (Peek().kind == TokenKind::kName && IsOperator("=", 1)) {
        std::string name = Next().text;
        ++at_;
        call.named.push_back({std::move(name), Expr()});
      } else {
        if (!call.named.empty()) Fail("a positional argument follows a named one");
        Adopt(call, Expr());
      }
      if (!SkipOperator(",")) break;
    }
    ExpectOperator(")");
  }

  ExpressionPtr FilterNamed(ExpressionPtr input) {
    ExpressionPtr filter = Make(ExpressionKind::kFilter, ExpectName());
    Adopt(*filter, std::move(input));
    if (IsOperator("(")) CallArguments(*filter);
    return filter;
  }

  ExpressionPtr Filters(ExpressionPtr node) {
    while (SkipOperator("|")) node = FilterNamed(std::move(node));
    return node;
  }

  ExpressionPtr FiltersAndTests(ExpressionPtr node) {
    for (;;) {
      if (SkipOperator("|")) {
        node = FilterNamed(std::move(node));
      } else if (IsName("is")) {
        ++at_;
        node = TestOf(std::move(node));
      } else if (IsOperator("(")) {
        ExpressionPtr call = Make(ExpressionKind::kCall);
        Adopt(*call, std::move(node));
        CallArguments(*call);
        node = std::move(call);
      } else {
        return node;
      }
    }
  }

  ExpressionPtr TestOf(ExpressionPtr subject) {
    const bool is_negated = SkipName("not");
    ExpressionPtr test = Make(ExpressionKind::kTest, ExpectName());
    Adopt(*test, std::move(subject));
    const Token& next = Peek();
    const bool is_word = next.kind == TokenKind::kName && next.text != "else" && next.text != "or" && next.text != "and" &&
                         next.text != "is" && next.text != "if" && next.text != "not" && next.text != "in" && next.text != "recursive";
    if (IsOperator("(")) {
      CallArguments(*test);
    } else if (is_word || next.kind == TokenKind::kString || next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat ||
               IsOperator("[") || IsOperator("{")) {
      Adopt(*test, Postfix(Primary()));
    }
    if (!is_negated) return test;
    ExpressionPtr negation = Make(ExpressionKind::kUnary, "not");
    Adopt(*negation, std::move(test));
    return negation;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int32_t depth_ = 0;
  int32_t loop_depth_ = 0;
};

}  // namespace

Block Parse(std::string_view source) {
  return Parser(source).Template();
}

}  // namespace avocet::tokenizer::jinja
