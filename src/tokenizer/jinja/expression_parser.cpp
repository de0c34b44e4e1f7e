#include "tokenizer/jinja/expression_parser.h"

#include <algorithm>
#include <array>

#include "base/limits.h"
#include "tokenizer/jinja/native.h"

namespace avocet::tokenizer::jinja {
namespace {

template <typename... Nodes>
std::vector<ExpressionPtr> Children(Nodes... nodes) {
  std::vector<ExpressionPtr> children;
  (children.push_back(std::move(nodes)), ...);
  return children;
}

constexpr std::array<std::string_view, 3> kSpecialNames = {"caller", "varargs", "kwargs"};

bool IsReserved(std::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None";
}

}  // namespace

Result<void> ExpressionParser::Depth::Check() const {
  if (parser_.depth_ <= limits::kTemplateDepthMax) return {};
  return parser_.Refuse(fmt::format("nested more than {} deep", limits::kTemplateDepthMax));
}

const Token& ExpressionParser::Next() {
  const Token& token = Peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::SkipOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  Next();
  return true;
}

bool ExpressionParser::SkipName(std::string_view text) {
  if (!IsName(text)) return false;
  Next();
  return true;
}

std::unexpected<Error> ExpressionParser::RefuseAt(int32_t line, std::string_view reason) const {
  return Fail(Errc::kInvalidArgument, "line {}: {}", line, reason);
}

std::unexpected<Error> ExpressionParser::Unexpected(std::string_view expected) const {
  return Refuse(fmt::format("expected {}, found {}", expected, Describe(Peek())));
}

Result<void> ExpressionParser::ExpectOperator(std::string_view text) {
  if (!SkipOperator(text)) return Unexpected(fmt::format("'{}'", text));
  return {};
}

Result<std::string> ExpressionParser::ExpectName(std::string_view what) {
  if (!Is(TokenKind::kName)) return Unexpected(what);
  return Next().text;
}

NameId ExpressionParser::Intern(std::string_view name) {
  const auto [found, is_new] = ids_.try_emplace(std::string(name), static_cast<NameId>(names_.size()));
  if (is_new) names_.emplace_back(name);
  return found->second;
}

void ExpressionParser::NoteUse(std::string_view name) {
  const auto special = static_cast<size_t>(std::ranges::find(kSpecialNames, name) - kSpecialNames.begin());
  if (special == kSpecialNames.size()) return;
  for (SpecialNames& macro : macros_) macro.is_used[special] = macro.is_used[special] || !macro.is_shadowed[special];
}

void ExpressionParser::NoteAssignment(std::string_view name) {
  const auto special = static_cast<size_t>(std::ranges::find(kSpecialNames, name) - kSpecialNames.begin());
  if (special == kSpecialNames.size()) return;
  for (SpecialNames& macro : macros_) macro.is_shadowed[special] = true;
}

ExpressionPtr ExpressionParser::Make(ExpressionKind kind, int32_t line) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExpressionParser::Parsed ExpressionParser::Checked(ExpressionPtr node) const {
  for (const ExpressionPtr& child : node->children) {
    if (child != nullptr) node->height = std::max(node->height, child->height + 1);
  }
  if (node->arguments != nullptr) {
    for (const ExpressionPtr& argument : node->arguments->positional) node->height = std::max(node->height, argument->height + 1);
    for (const CallArguments::Named& argument : node->arguments->named) node->height = std::max(node->height, argument.value->height + 1);
    for (const ExpressionPtr* rest : {&node->arguments->rest, &node->arguments->named_rest}) {
      if (*rest != nullptr) node->height = std::max(node->height, (*rest)->height + 1);
    }
  }
  if (node->height > limits::kTemplateTreeHeightMax) {
    return RefuseAt(node->line, fmt::format("an expression of more than {} operators in one another", limits::kTemplateTreeHeightMax));
  }
  return node;
}

ExpressionParser::Parsed ExpressionParser::Made(ExpressionKind kind, int32_t line, std::vector<ExpressionPtr> children) {
  ExpressionPtr node = Make(kind, line);
  node->children = std::move(children);
  return Checked(std::move(node));
}

// "a, b" without brackets is a tuple, and so is "a,".
ExpressionParser::Parsed ExpressionParser::ExprOrTuple(Conditionals conditionals) {
  const int32_t line = Peek().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) {
      AVOCET_TRY_VOID(ExpectOperator(","));
    }
    if (Is(TokenKind::kOutputEnd) || Is(TokenKind::kBlockEnd) || IsOperator(")")) break;
    AVOCET_TRY(ExpressionPtr item, Expr(conditionals));
    items.push_back(std::move(item));
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return Made(ExpressionKind::kTuple, line, std::move(items));
  if (items.empty()) return Unexpected("an expression");
  return std::move(items[0]);
}

ExpressionParser::Parsed ExpressionParser::Expr(Conditionals conditionals) {
  const Depth depth(*this);
  AVOCET_TRY_VOID(depth.Check());
  if (conditionals == Conditionals::kNot) return Or();
  const int32_t line = Peek().line;
  const size_t num_unknown = unknown_names_.size();
  AVOCET_TRY(ExpressionPtr value, Or());
  while (SkipName("if")) {
    AVOCET_TRY(ExpressionPtr condition, Or());
    ExpressionPtr otherwise;
    if (SkipName("else")) {
      AVOCET_TRY(otherwise, Expr());
    }
    unknown_names_.resize(num_unknown);
    AVOCET_TRY(value, Made(ExpressionKind::kConditional, line, Children(std::move(value), std::move(condition), std::move(otherwise))));
  }
  return value;
}

Result<void> ExpressionParser::RefuseUnknownNames(size_t first) const {
  if (unknown_names_.size() <= first) return {};
  return RefuseAt(unknown_names_[first].line, unknown_names_[first].reason);
}

ExpressionParser::Parsed ExpressionParser::Or() {
  AVOCET_TRY(ExpressionPtr left, And());
  while (IsName("or")) {
    const int32_t line = Next().line;
    AVOCET_TRY(ExpressionPtr right, And());
    AVOCET_TRY(left, Made(ExpressionKind::kOr, line, Children(std::move(left), std::move(right))));
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::And() {
  AVOCET_TRY(ExpressionPtr left, Not());
  while (IsName("and")) {
    const int32_t line = Next().line;
    AVOCET_TRY(ExpressionPtr right, Not());
    AVOCET_TRY(left, Made(ExpressionKind::kAnd, line, Children(std::move(left), std::move(right))));
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::Not() {
  if (!IsName("not")) return Compare();
  const Depth depth(*this);
  AVOCET_TRY_VOID(depth.Check());
  const int32_t line = Next().line;
  AVOCET_TRY(ExpressionPtr operand, Not());
  return Made(ExpressionKind::kNot, line, Children(std::move(operand)));
}

bool ExpressionParser::ComparisonHere(Comparison* comparison) {
  static constexpr std::array<std::pair<std::string_view, Comparison>, 6> kSigns = {{{"==", Comparison::kEqual},
                                                                                     {"!=", Comparison::kNotEqual},
                                                                                     {"<", Comparison::kLess},
                                                                                     {"<=", Comparison::kLessOrEqual},
                                                                                     {">", Comparison::kGreater},
                                                                                     {">=", Comparison::kGreaterOrEqual}}};
  for (const auto& [sign, meaning] : kSigns) {
    if (!SkipOperator(sign)) continue;
    *comparison = meaning;
    return true;
  }
  if (SkipName("in")) {
    *comparison = Comparison::kIn;
    return true;
  }
  if (!IsName("not") || !IsName("in", 1)) return false;
  Next();
  Next();
  *comparison = Comparison::kNotIn;
  return true;
}

ExpressionParser::Parsed ExpressionParser::Compare() {
  const int32_t line = Peek().line;
  AVOCET_TRY(ExpressionPtr first, Sum());
  std::vector<Comparison> comparisons;
  std::vector<ExpressionPtr> children = Children(std::move(first));
  for (Comparison comparison{}; ComparisonHere(&comparison);) {
    AVOCET_TRY(ExpressionPtr next, Sum());
    comparisons.push_back(comparison);
    children.push_back(std::move(next));
  }
  if (comparisons.empty()) return std::move(children[0]);
  AVOCET_TRY(ExpressionPtr node, Made(ExpressionKind::kCompare, line, std::move(children)));
  node->comparisons = std::move(comparisons);
  return node;
}

ExpressionParser::Parsed ExpressionParser::Sum() {
  AVOCET_TRY(ExpressionPtr left, Concat());
  while (IsOperator("+") || IsOperator("-")) {
    const BinaryOp operation = IsOperator("+") ? BinaryOp::kAdd : BinaryOp::kSubtract;
    const int32_t line = Next().line;
    AVOCET_TRY(ExpressionPtr right, Concat());
    AVOCET_TRY(left, Made(ExpressionKind::kArithmetic, line, Children(std::move(left), std::move(right))));
    left->operation = operation;
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::Concat() {
  const int32_t line = Peek().line;
  AVOCET_TRY(ExpressionPtr first, Product());
  if (!IsOperator("~")) return first;
  std::vector<ExpressionPtr> parts = Children(std::move(first));
  while (SkipOperator("~")) {
    AVOCET_TRY(ExpressionPtr part, Product());
    parts.push_back(std::move(part));
  }
  return Made(ExpressionKind::kConcat, line, std::move(parts));
}

ExpressionParser::Parsed ExpressionParser::Product() {
  AVOCET_TRY(ExpressionPtr left, Power());
  while (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%")) {
    const BinaryOp operation = IsOperator("*")    ? BinaryOp::kMultiply
                               : IsOperator("/")  ? BinaryOp::kDivide
                               : IsOperator("//") ? BinaryOp::kFloorDivide
                                                  : BinaryOp::kModulo;
    const int32_t line = Next().line;
    AVOCET_TRY(ExpressionPtr right, Power());
    AVOCET_TRY(left, Made(ExpressionKind::kArithmetic, line, Children(std::move(left), std::move(right))));
    left->operation = operation;
  }
  return left;
}

// Binds to the left, and less tightly than a sign: -2 ** 2 is 4.
ExpressionParser::Parsed ExpressionParser::Power() {
  AVOCET_TRY(ExpressionPtr left, Unary(Filtering::kYes));
  while (IsOperator("**")) {
    const int32_t line = Next().line;
    AVOCET_TRY(ExpressionPtr right, Unary(Filtering::kYes));
    AVOCET_TRY(left, Made(ExpressionKind::kArithmetic, line, Children(std::move(left), std::move(right))));
    left->operation = BinaryOp::kPower;
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::Unary(Filtering filtering) {
  const Depth depth(*this);
  AVOCET_TRY_VOID(depth.Check());
  ExpressionPtr node;
  if (IsOperator("-") || IsOperator("+")) {
    const ExpressionKind kind = IsOperator("-") ? ExpressionKind::kNegative : ExpressionKind::kPositive;
    const int32_t line = Next().line;
    AVOCET_TRY(ExpressionPtr operand, Unary(Filtering::kNo));
    AVOCET_TRY(node, Made(kind, line, Children(std::move(operand))));
  } else {
    AVOCET_TRY(node, Primary());
  }
  AVOCET_TRY(node, Postfix(std::move(node)));
  if (filtering == Filtering::kNo) return node;
  return FiltersAndTests(std::move(node));
}

ExpressionParser::Parsed ExpressionParser::Number() {
  ExpressionPtr node = Make(ExpressionKind::kLiteral, Peek().line);
  if (Is(TokenKind::kFloat)) {
    const std::optional<double> value = ParseFloat(Peek().text);
    if (!value) return Unexpected("a number");
    node->value = Value::Float(*value);
  } else {
    const std::optional<Integer> value = ParseInteger(Peek().text, 0);
    if (!value) return Refuse(fmt::format("the integer {} needs more than 128 bits", Peek().text.substr(0, 50)));
    node->value = Value::Int(*value);
  }
  Next();
  return node;
}

ExpressionParser::Parsed ExpressionParser::Primary() {
  const Token& token = Peek();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return Number();
  if (token.kind == TokenKind::kString) {
    std::string text = Next().text;
    while (Is(TokenKind::kString)) text += Next().text;
    ExpressionPtr node = Make(ExpressionKind::kLiteral, token.line);
    node->value = Value::String(std::move(text));
    return node;
  }
  if (token.kind == TokenKind::kName) {
    Next();
    ExpressionPtr node = Make(IsReserved(token.text) ? ExpressionKind::kLiteral : ExpressionKind::kName, token.line);
    if (node->kind == ExpressionKind::kName) {
      node->name = Intern(token.text);
      NoteUse(token.text);
    } else if (token.text[0] != 'n' && token.text[0] != 'N') {
      node->value = Value::Bool(token.text[0] == 't' || token.text[0] == 'T');
    }
    return node;
  }
  if (IsOperator("(")) return Parenthesised();
  if (IsOperator("[")) return List();
  if (IsOperator("{")) return Dict();
  return Unexpected("a value");
}

ExpressionParser::Parsed ExpressionParser::Parenthesised() {
  const int32_t line = Next().line;
  if (SkipOperator(")")) return Made(ExpressionKind::kTuple, line, {});
  AVOCET_TRY(ExpressionPtr node, ExprOrTuple());
  AVOCET_TRY_VOID(ExpectOperator(")"));
  return node;
}

ExpressionParser::Parsed ExpressionParser::List() {
  const int32_t line = Next().line;
  std::vector<ExpressionPtr> items;
  while (!IsOperator("]")) {
    AVOCET_TRY(ExpressionPtr item, Expr());
    items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
  }
  AVOCET_TRY_VOID(ExpectOperator("]"));
  return Made(ExpressionKind::kList, line, std::move(items));
}

ExpressionParser::Parsed ExpressionParser::Dict() {
  const int32_t line = Next().line;
  std::vector<ExpressionPtr> items;
  while (!IsOperator("}")) {
    AVOCET_TRY(ExpressionPtr key, Expr());
    AVOCET_TRY_VOID(ExpectOperator(":"));
    AVOCET_TRY(ExpressionPtr value, Expr());
    items.push_back(std::move(key));
    items.push_back(std::move(value));
    if (!SkipOperator(",")) break;
  }
  AVOCET_TRY_VOID(ExpectOperator("}"));
  return Made(ExpressionKind::kDict, line, std::move(items));
}

ExpressionParser::Parsed ExpressionParser::Postfix(ExpressionPtr node) {
  for (;;) {
    if (IsOperator(".")) {
      AVOCET_TRY(node, Attribute(std::move(node)));
    } else if (IsOperator("[")) {
      AVOCET_TRY(node, Subscript(std::move(node)));
    } else if (IsOperator("(")) {
      AVOCET_TRY(node, Call(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::Parsed ExpressionParser::FiltersAndTests(ExpressionPtr node) {
  for (;;) {
    if (IsOperator("|")) {
      AVOCET_TRY(node, Filters(std::move(node)));
    } else if (IsName("is")) {
      AVOCET_TRY(node, TestOf(std::move(node)));
    } else if (IsOperator("(")) {
      AVOCET_TRY(node, Call(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::Parsed ExpressionParser::Attribute(ExpressionPtr node) {
  const int32_t line = Next().line;
  if (Is(TokenKind::kInteger)) {
    AVOCET_TRY(ExpressionPtr index, Number());
    return Made(ExpressionKind::kItem, line, Children(std::move(node), std::move(index)));
  }
  AVOCET_TRY(std::string name, ExpectName("a name or a number after '.'"));
  AVOCET_TRY(ExpressionPtr attribute, Made(ExpressionKind::kAttribute, line, Children(std::move(node))));
  attribute->text = std::move(name);
  return attribute;
}

ExpressionParser::Parsed ExpressionParser::Subscript(ExpressionPtr node) {
  const int32_t line = Next().line;
  if (IsOperator(":")) return Slice(std::move(node), nullptr);
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!IsOperator("]")) {
    AVOCET_TRY(ExpressionPtr item, Expr());
    if (items.empty() && IsOperator(":")) return Slice(std::move(node), std::move(item));
    items.push_back(std::move(item));
    if (IsOperator("]")) break;
    AVOCET_TRY_VOID(ExpectOperator(","));
    is_tuple = true;
  }
  AVOCET_TRY_VOID(ExpectOperator("]"));
  if (items.empty()) return RefuseAt(line, "a subscript is empty");
  if (!is_tuple || items.size() == 1) return Made(ExpressionKind::kItem, line, Children(std::move(node), std::move(items[0])));
  AVOCET_TRY(ExpressionPtr tuple, Made(ExpressionKind::kTuple, line, std::move(items)));
  return Made(ExpressionKind::kItem, line, Children(std::move(node), std::move(tuple)));
}

// At the first colon.
ExpressionParser::Parsed ExpressionParser::Slice(ExpressionPtr node, ExpressionPtr first) {
  const int32_t line = Peek().line;
  std::vector<ExpressionPtr> parts = Children(std::move(node), std::move(first));
  while (parts.size() < 4 && SkipOperator(":")) {
    ExpressionPtr part;
    if (!IsOperator(":") && !IsOperator("]")) {
      AVOCET_TRY(part, Expr());
    }
    parts.push_back(std::move(part));
  }
  AVOCET_TRY_VOID(ExpectOperator("]"));
  parts.resize(4);
  return Made(ExpressionKind::kSlice, line, std::move(parts));
}

ExpressionParser::Parsed ExpressionParser::Call(ExpressionPtr node) {
  const int32_t line = Peek().line;
  ExpressionPtr call = Make(ExpressionKind::kCall, line);
  call->children.push_back(std::move(node));
  AVOCET_TRY(call->arguments, Arguments());
  return Checked(std::move(call));
}

Result<std::unique_ptr<CallArguments>> ExpressionParser::Arguments() {
  auto arguments = std::make_unique<CallArguments>();
  AVOCET_TRY_VOID(ExpectOperator("("));
  while (!IsOperator(")")) {
    AVOCET_TRY_VOID(Argument(*arguments));
    if (!SkipOperator(",")) break;
  }
  AVOCET_TRY_VOID(ExpectOperator(")"));
  return arguments;
}

Result<void> ExpressionParser::Argument(CallArguments& arguments) {
  if (IsOperator("*") || IsOperator("**")) {
    ExpressionPtr& rest = IsOperator("*") ? arguments.rest : arguments.named_rest;
    if (rest != nullptr || arguments.named_rest != nullptr) return Unexpected("another argument");
    Next();
    AVOCET_TRY(rest, Expr());
    return {};
  }
  if (arguments.named_rest != nullptr) return Refuse("an argument follows **");
  if (Is(TokenKind::kName) && IsOperator("=", 1)) {
    std::string name = Next().text;
    Next();
    if (std::ranges::find(arguments.named, name, &CallArguments::Named::name) != arguments.named.end()) {
      return Refuse(fmt::format("the argument '{}' is given twice", name));
    }
    AVOCET_TRY(ExpressionPtr value, Expr());
    arguments.named.push_back({std::move(name), std::move(value)});
    return {};
  }
  if (!arguments.named.empty() || arguments.rest != nullptr) return Refuse("an argument without a name follows one with a name or *");
  AVOCET_TRY(ExpressionPtr value, Expr());
  arguments.positional.push_back(std::move(value));
  return {};
}

Result<std::string> ExpressionParser::DottedName(std::string_view what) {
  AVOCET_TRY(std::string name, ExpectName(what));
  while (SkipOperator(".")) {
    AVOCET_TRY(const std::string part, ExpectName(what));
    name += "." + part;
  }
  return name;
}

ExpressionParser::Parsed ExpressionParser::FilterNamed(ExpressionPtr node) {
  const int32_t line = Peek().line;
  ExpressionPtr filter = Make(ExpressionKind::kFilter, line);
  AVOCET_TRY(filter->text, DottedName("the name of a filter"));
  filter->native = FindFilter(filter->text);
  if (filter->native == nullptr) unknown_names_.push_back({line, fmt::format("there is no filter '{}'", filter->text)});
  filter->children.push_back(std::move(node));
  if (IsOperator("(")) {
    AVOCET_TRY(filter->arguments, Arguments());
  }
  return Checked(std::move(filter));
}

ExpressionParser::Parsed ExpressionParser::Filters(ExpressionPtr node) {
  while (SkipOperator("|")) {
    AVOCET_TRY(node, FilterNamed(std::move(node)));
  }
  return node;
}

ExpressionParser::Parsed ExpressionParser::TestOf(ExpressionPtr node) {
  const int32_t line = Next().line;
  const bool is_negated = SkipName("not");
  ExpressionPtr test = Make(ExpressionKind::kTest, line);
  AVOCET_TRY(test->text, DottedName("the name of a test"));
  test->native = FindTest(test->text);
  if (test->native == nullptr) unknown_names_.push_back({line, fmt::format("there is no test '{}'", test->text)});
  test->children.push_back(std::move(node));
  const bool is_operand = Is(TokenKind::kName) || Is(TokenKind::kString) || Is(TokenKind::kInteger) || Is(TokenKind::kFloat) ||
                          IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    AVOCET_TRY(test->arguments, Arguments());
  } else if (is_operand && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) return Refuse("tests cannot be chained with 'is'");
    AVOCET_TRY(ExpressionPtr operand, Primary());
    AVOCET_TRY(operand, Postfix(std::move(operand)));
    test->arguments = std::make_unique<CallArguments>();
    test->arguments->positional.push_back(std::move(operand));
  }
  AVOCET_TRY(test, Checked(std::move(test)));
  if (!is_negated) return test;
  return Made(ExpressionKind::kNot, line, Children(std::move(test)));
}

Result<Target> ExpressionParser::AssignmentTarget(Attributes attributes) {
  AVOCET_TRY(Target first, TargetItem(attributes));
  if (!IsOperator(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.children.push_back(std::move(first));
  while (SkipOperator(",")) {
    if (Is(TokenKind::kBlockEnd) || IsOperator(")")) break;
    AVOCET_TRY(Target item, TargetItem(attributes));
    tuple.children.push_back(std::move(item));
  }
  return tuple;
}

Result<Target> ExpressionParser::BracketedTarget(Attributes attributes) {
  const Depth depth(*this);
  AVOCET_TRY_VOID(depth.Check());
  Next();
  if (SkipOperator(")")) return Target{Target::Kind::kTuple, {}, {}, {}};
  AVOCET_TRY(Target inner, AssignmentTarget(attributes));
  AVOCET_TRY_VOID(ExpectOperator(")"));
  return inner;
}

Result<Target> ExpressionParser::TargetItem(Attributes attributes) {
  if (IsOperator("(")) return BracketedTarget(Attributes::kRefused);
  if (Is(TokenKind::kName) && IsReserved(Peek().text)) return Refuse(fmt::format("cannot assign to {}", Describe(Peek())));
  AVOCET_TRY(const std::string name, ExpectName("a name to assign to"));
  Target target;
  target.name = Intern(name);
  if (attributes == Attributes::kRefused || !SkipOperator(".")) {
    NoteAssignment(name);
    return target;
  }
  target.kind = Target::Kind::kNamespace;
  AVOCET_TRY(target.attribute, ExpectName("the name of an attribute"));
  return target;
}

}  // namespace avocet::tokenizer::jinja
