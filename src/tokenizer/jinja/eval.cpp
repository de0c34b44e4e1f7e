#include "tokenizer/jinja/eval.h"

#include <algorithm>

namespace avocet::tokenizer::jinja {

Evaluator::Evaluator(const Template& parsed, const Variables& variables)
    : template_(parsed), variables_(variables), loaded_(parsed.names.size()) {}

Evaluator::~Evaluator() {
  for (const auto& scope : scopes_) scope->variables.clear();
  for (const auto& data : namespaces_) data->items.clear();
  for (const auto& loop : remembering_loops_) loop->last_changed.reset();
}

Result<std::string> Evaluator::Render() {
  std::string text;
  out_ = &text;
  const ScopeGuard scope(*this, nullptr);
  AVOCET_TRY_VOID(Run(template_.body));
  return text;
}

std::unexpected<Error> Evaluator::Raise(std::string message) {
  is_raised_ = true;
  return std::unexpected(Error{Errc::kInvalidArgument, std::move(message), {}});
}

Value Evaluator::NewNamespace() {
  namespaces_.push_back(std::make_shared<NamespaceData>());
  return Value::Namespace(namespaces_.back());
}

Result<Value> Evaluator::LoadVariable(NameId name) {
  std::optional<Value>& loaded = loaded_[static_cast<size_t>(name)];
  if (loaded) return *loaded;
  const std::string& text = template_.names[static_cast<size_t>(name)];
  AVOCET_TRY(loaded, variables_.Find(text));
  if (!loaded) loaded = FindGlobal(text);
  if (!loaded) loaded = Value::UndefinedName(text);
  return *loaded;
}

Result<Value> Evaluator::Eval(const Expression& e) {
  if (e.kind == ExpressionKind::kLiteral) return e.value;
  Frame frame(*this);
  Result<void> has_room = frame.Check();
  Result<Value> result = has_room ? EvalNode(e) : Result<Value>(std::unexpected(std::move(has_room).error()));
  if (!result && error_line_ == 0) error_line_ = e.line;
  return result;
}

Result<Value> Evaluator::EvalNode(const Expression& e) {
  switch (e.kind) {
    case ExpressionKind::kLiteral: return e.value;
    case ExpressionKind::kName:
      for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
        const auto found = std::ranges::find(scope->variables, e.name, &std::pair<NameId, Value>::first);
        if (found != scope->variables.end()) return found->second;
      }
      return LoadVariable(e.name);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: return EvalSequence(e);
    case ExpressionKind::kDict: return EvalDict(e);
    case ExpressionKind::kAttribute: {
      AVOCET_TRY(const Value object, Eval(*e.children[0]));
      return GetAttribute(object, e.text);
    }
    case ExpressionKind::kItem: {
      AVOCET_TRY(const Value object, Eval(*e.children[0]));
      AVOCET_TRY(const Value key, Eval(*e.children[1]));
      return GetItem(object, key);
    }
    case ExpressionKind::kSlice: return EvalSlice(e);
    case ExpressionKind::kCall: return EvalCall(e);
    case ExpressionKind::kFilter: return EvalFilter(e);
    case ExpressionKind::kTest: return EvalTest(e);
    case ExpressionKind::kNot: {
      AVOCET_TRY(const Value value, Eval(*e.children[0]));
      return Value::Bool(!value.IsTrue());
    }
    case ExpressionKind::kNegative:
    case ExpressionKind::kPositive: return EvalSign(e);
    case ExpressionKind::kArithmetic: return EvalArithmetic(e);
    case ExpressionKind::kConcat: return EvalConcat(e);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      AVOCET_TRY(Value left, Eval(*e.children[0]));
      if (left.IsTrue() != (e.kind == ExpressionKind::kAnd)) return left;
      return Eval(*e.children[1]);
    }
    case ExpressionKind::kCompare: return EvalCompare(e);
    case ExpressionKind::kConditional: return EvalConditional(e);
  }
  return Value();
}

Result<Value> Evaluator::EvalSequence(const Expression& e) {
  std::vector<Value> items;
  items.reserve(e.children.size());
  for (const ExpressionPtr& child : e.children) {
    AVOCET_TRY(Value item, Eval(*child));
    items.push_back(std::move(item));
  }
  return MakeSequence(e.kind == ExpressionKind::kList ? SequenceKind::kList : SequenceKind::kTuple, std::move(items), budget_);
}

Result<Value> Evaluator::EvalDict(const Expression& e) {
  DictBuilder dict;
  for (size_t i = 0; i + 1 < e.children.size(); i += 2) {
    AVOCET_TRY(Value key, Eval(*e.children[i]));
    AVOCET_TRY(Value value, Eval(*e.children[i + 1]));
    AVOCET_TRY_VOID(dict.Set(std::move(key), std::move(value), budget_));
  }
  return dict.Build();
}

Result<Value> Evaluator::EvalConditional(const Expression& e) {
  AVOCET_TRY(const Value condition, Eval(*e.children[1]));
  if (condition.IsTrue()) return Eval(*e.children[0]);
  if (e.children[2] != nullptr) return Eval(*e.children[2]);
  return Value::UndefinedHint("the inline if-expression evaluated to false and no else section was defined");
}

Result<Value> Evaluator::EvalSign(const Expression& e) {
  AVOCET_TRY(Value value, Eval(*e.children[0]));
  const bool is_negative = e.kind == ExpressionKind::kNegative;
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_float()) return is_negative ? Value::Float(-value.real()) : value;
  if (!value.is_integer())
    return Fail(Errc::kInvalidArgument, "bad operand type for unary {}: '{}'", is_negative ? '-' : '+', value.type_name());
  AVOCET_TRY(const Integer result, IntegerOperation(is_negative ? BinaryOp::kSubtract : BinaryOp::kAdd, 0, value.integer()));
  return Value::Int(result);
}

Result<Value> Evaluator::EvalArithmetic(const Expression& e) {
  AVOCET_TRY(const Value left, Eval(*e.children[0]));
  AVOCET_TRY(const Value right, Eval(*e.children[1]));
  return Arithmetic(e.operation, left, right);
}

Result<Value> Evaluator::EvalConcat(const Expression& e) {
  std::string text;
  for (const ExpressionPtr& child : e.children) {
    AVOCET_TRY(const Value part, Eval(*child));
    AVOCET_TRY_VOID(AppendStr(part, budget_, text));
  }
  return Value::String(std::move(text));
}

namespace {

Result<bool> Holds(Comparison comparison, const Value& left, const Value& right, Budget& budget) {
  switch (comparison) {
    case Comparison::kEqual: return Equal(left, right, budget);
    case Comparison::kNotEqual: {
      AVOCET_TRY(const bool is_equal, Equal(left, right, budget));
      return !is_equal;
    }
    case Comparison::kLess: return Ordered(Order::kLess, left, right, budget);
    case Comparison::kLessOrEqual: return Ordered(Order::kLessOrEqual, left, right, budget);
    case Comparison::kGreater: return Ordered(Order::kGreater, left, right, budget);
    case Comparison::kGreaterOrEqual: return Ordered(Order::kGreaterOrEqual, left, right, budget);
    case Comparison::kIn: return Contains(right, left, budget);
    case Comparison::kNotIn: break;
  }
  AVOCET_TRY(const bool contains, Contains(right, left, budget));
  return !contains;
}

}  // namespace

Result<Value> Evaluator::EvalCompare(const Expression& e) {
  AVOCET_TRY(Value left, Eval(*e.children[0]));
  for (size_t i = 0; i < e.comparisons.size(); ++i) {
    AVOCET_TRY(Value right, Eval(*e.children[i + 1]));
    AVOCET_TRY(const bool holds, Holds(e.comparisons[i], left, right, budget_));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<void> Evaluator::AppendNamedRest(const Value& value, Arguments& arguments) {
  if (!value.is_dict()) return Fail(Errc::kInvalidArgument, "argument after ** must be a mapping, not {}", value.type_name());
  for (const auto& [key, item] : value.dict().items) {
    if (!key.is_string()) return Fail(Errc::kInvalidArgument, "keywords must be strings, not {}", key.type_name());
    AVOCET_TRY_VOID(budget_.Steps(1 + static_cast<int64_t>(arguments.named.size() / 16)));
    const auto is_name = [&key](const auto& named) { return named.first == key.text(); };
    if (std::ranges::any_of(arguments.named, is_name)) {
      return Fail(Errc::kInvalidArgument, "got multiple values for keyword argument '{}'", key.text());
    }
    arguments.named.emplace_back(key.text(), item);
  }
  return {};
}

Result<Arguments> Evaluator::EvalArguments(const CallArguments* arguments) {
  Arguments result;
  if (arguments == nullptr) return result;
  result.positional.reserve(arguments->positional.size());
  for (const ExpressionPtr& argument : arguments->positional) {
    AVOCET_TRY(Value value, Eval(*argument));
    result.positional.push_back(std::move(value));
  }
  if (arguments->rest != nullptr) {
    AVOCET_TRY(const Value rest, Eval(*arguments->rest));
    AVOCET_TRY(std::vector<Value> items, Iterate(rest, budget_));
    std::ranges::move(items, std::back_inserter(result.positional));
  }
  for (const CallArguments::Named& argument : arguments->named) {
    AVOCET_TRY(Value value, Eval(*argument.value));
    result.named.emplace_back(argument.name, std::move(value));
  }
  if (arguments->named_rest != nullptr) {
    AVOCET_TRY(const Value rest, Eval(*arguments->named_rest));
    AVOCET_TRY_VOID(AppendNamedRest(rest, result));
  }
  return result;
}

Result<Value> Evaluator::EvalCall(const Expression& e) {
  const Expression& callee = *e.children[0];
  if (callee.kind == ExpressionKind::kAttribute) {
    // object.method(...) without making a value of the method.
    AVOCET_TRY(const Value object, Eval(*callee.children[0]));
    if (const NativeFunction* method = FindMethod(object, callee.text)) {
      AVOCET_TRY(const Arguments arguments, EvalArguments(e.arguments.get()));
      return RunNative(*method, *this, object, arguments);
    }
    AVOCET_TRY(const Value function, GetAttribute(object, callee.text));
    AVOCET_TRY(Arguments arguments, EvalArguments(e.arguments.get()));
    return Call(function, arguments);
  }
  AVOCET_TRY(const Value function, Eval(callee));
  AVOCET_TRY(Arguments arguments, EvalArguments(e.arguments.get()));
  return Call(function, arguments);
}

Result<Value> Evaluator::Call(const Value& function, Arguments& arguments) {
  Frame frame(*this);
  AVOCET_TRY_VOID(frame.Check());
  switch (function.kind()) {
    case Kind::kFunction: return function.function().Call(*this, arguments);
    case Kind::kLoop: return CallLoop(function.loop(), arguments);
    case Kind::kUndefined: return UndefinedError(function);
    default: return Fail(Errc::kInvalidArgument, "'{}' object is not callable", function.type_name());
  }
}

Result<Value> Evaluator::EvalFilter(const Expression& e) {
  Value input;
  if (e.children[0] == nullptr) {
    input = std::exchange(block_text_, {});
  } else {
    AVOCET_TRY(input, Eval(*e.children[0]));
  }
  if (e.native == nullptr) return Fail(Errc::kInvalidArgument, "there is no filter '{}'", e.text);
  AVOCET_TRY(const Arguments arguments, EvalArguments(e.arguments.get()));
  return RunNative(*e.native, *this, input, arguments);
}

Result<Value> Evaluator::EvalTest(const Expression& e) {
  AVOCET_TRY(const Value subject, Eval(*e.children[0]));
  if (e.native == nullptr) return Fail(Errc::kInvalidArgument, "there is no test '{}'", e.text);
  AVOCET_TRY(const Arguments arguments, EvalArguments(e.arguments.get()));
  return RunNative(*e.native, *this, subject, arguments);
}

Result<Value> Evaluator::ApplyFilter(std::string_view name, const Value& input, const Arguments& arguments) {
  const NativeFunction* const filter = FindFilter(name);
  if (filter == nullptr) return Fail(Errc::kInvalidArgument, "there is no filter '{}'", name);
  Frame frame(*this);
  AVOCET_TRY_VOID(frame.Check());
  return RunNative(*filter, *this, input, arguments);
}

Result<bool> Evaluator::ApplyTest(std::string_view name, const Value& subject, const Arguments& arguments) {
  const NativeFunction* const test = FindTest(name);
  if (test == nullptr) return Fail(Errc::kInvalidArgument, "there is no test '{}'", name);
  AVOCET_TRY_VOID(budget_.Steps(1));
  AVOCET_TRY(const Value holds, RunNative(*test, *this, subject, arguments));
  return holds.IsTrue();
}

}  // namespace avocet::tokenizer::jinja
