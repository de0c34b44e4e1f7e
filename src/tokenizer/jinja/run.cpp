// Statements, scopes and macros.
#include <algorithm>

#include "tokenizer/jinja/eval.h"

namespace avocet::tokenizer::jinja {
namespace {

class MacroFunction : public FunctionData {
 public:
  MacroFunction(const MacroData& macro, Scope* definition) : FunctionData(0), macro_(macro), definition_(definition) {}

  Result<Value> Call(Evaluator& evaluator, Arguments& arguments) override { return evaluator.CallMacro(macro_, definition_, arguments); }
  std::string Show() const override { return fmt::format("<Macro '{}'>", macro_.name); }

  std::optional<Value> Attribute(std::string_view name) const override {
    if (name == "name") return Value::String(macro_.name);
    if (name == "catch_kwargs") return Value::Bool(macro_.takes_kwargs);
    if (name == "catch_varargs") return Value::Bool(macro_.takes_varargs);
    if (name == "caller") return Value::Bool(macro_.takes_caller);
    if (name == "explicit_caller") return Value::Bool(macro_.has_caller_parameter);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const Parameter& parameter : macro_.parameters) names.push_back(Value::String(parameter.text));
    return Value::Sequence(SequenceKind::kTuple, std::move(names));
  }

 private:
  const MacroData& macro_;
  Scope* definition_;  // captured: lives as long as the rendering
};

}  // namespace

Scope* Evaluator::NewScope(Scope* parent) {
  if (free_scopes_.empty()) {
    scopes_.push_back(std::make_unique<Scope>());
    free_scopes_.push_back(scopes_.back().get());
  }
  Scope* const scope = free_scopes_.back();
  free_scopes_.pop_back();
  scope->parent = parent;
  return scope;
}

void Evaluator::Release(Scope* scope) {
  if (scope->is_captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

void Evaluator::CaptureScopes(Scope* scope) {
  for (; scope != nullptr && !scope->is_captured; scope = scope->parent) scope->is_captured = true;
}

void Evaluator::SetVariable(NameId name, Value value) {
  const auto found = std::ranges::find(scope_->variables, name, &std::pair<NameId, Value>::first);
  if (found != scope_->variables.end()) {
    found->second = std::move(value);
  } else {
    scope_->variables.emplace_back(name, std::move(value));
  }
}

Result<void> Evaluator::AssignNamespace(const Target& target, const Value& value) {
  Expression name;
  name.kind = ExpressionKind::kName;
  name.name = target.name;
  AVOCET_TRY(const Value object, Eval(name));
  if (object.kind() != Kind::kNamespace)
    return Fail(Errc::kInvalidArgument, "cannot assign an attribute of something that is not a namespace");
  if (target.attribute.starts_with('_'))
    return Fail(Errc::kInvalidArgument, "the attribute '{}' of a namespace starts with an underscore", target.attribute);
  std::vector<std::pair<std::string, Value>>& items = object.name_space().items;
  AVOCET_TRY_VOID(budget_.Steps(static_cast<int64_t>(items.size() / 16)));
  const auto found = std::ranges::find(items, target.attribute, &std::pair<std::string, Value>::first);
  if (found != items.end()) {
    found->second = value;
  } else {
    items.emplace_back(target.attribute, value);
  }
  return {};
}

Result<void> Evaluator::Assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kName) {
    SetVariable(target.name, value);
    return {};
  }
  if (target.kind == Target::Kind::kNamespace) return AssignNamespace(target, value);
  if (value.is_undefined() && !target.children.empty())
    return Fail(Errc::kInvalidArgument, "not enough values to unpack: {}", value.undefined().Message());
  AVOCET_TRY(const std::vector<Value> items, Iterate(value, budget_));
  if (items.size() != target.children.size()) {
    return Fail(Errc::kInvalidArgument, "cannot unpack {} values into {} names", items.size(), target.children.size());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    AVOCET_TRY_VOID(Assign(target.children[i], items[i]));
  }
  return {};
}

Result<void> Evaluator::Append(std::string_view text) {
  AVOCET_TRY_VOID(budget_.Text(text.size()));
  AVOCET_TRY_VOID(budget_.Fits(out_->size() + text.size()));
  out_->append(text);
  return {};
}

Result<Evaluator::Flow> Evaluator::Run(const Block& block) {
  Frame frame(*this);
  AVOCET_TRY_VOID(frame.Check());
  for (const auto& statement : block) {
    AVOCET_TRY(const Flow flow, RunOne(*statement));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::Capture(const Block& block, std::string* text) {
  std::string* const outer = std::exchange(out_, text);
  const ScopeGuard scope(*this, scope_);
  Result<Flow> flow = Run(block);
  out_ = outer;
  return flow;
}

Result<Evaluator::Flow> Evaluator::RunOne(const Statement& s) {
  Result<Flow> flow = RunNode(s);
  if (!flow && error_line_ == 0) error_line_ = s.line;
  return flow;
}

Result<Evaluator::Flow> Evaluator::RunNode(const Statement& s) {
  AVOCET_TRY_VOID(budget_.Steps(1));
  switch (s.kind) {
    case StatementKind::kText: AVOCET_TRY_VOID(Append(s.text)); return Flow::kNormal;
    case StatementKind::kOutput: return RunOutput(s);
    case StatementKind::kIf: return RunIf(s);
    case StatementKind::kFor: return RunFor(s);
    case StatementKind::kSet: {
      AVOCET_TRY(const Value value, Eval(*s.expressions[0]));
      AVOCET_TRY_VOID(Assign(s.targets[0], value));
      return Flow::kNormal;
    }
    case StatementKind::kSetBlock: return RunSetBlock(s);
    case StatementKind::kMacro: SetVariable(s.name, NewMacro(*s.macro)); return Flow::kNormal;
    case StatementKind::kCallBlock: return RunCallBlock(s);
    case StatementKind::kFilterBlock: return RunFilterBlock(s);
    case StatementKind::kWith: return RunWith(s);
    case StatementKind::kGeneration: return RunGeneration(s);
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: break;
  }
  return Flow::kContinue;
}

Result<Evaluator::Flow> Evaluator::RunOutput(const Statement& s) {
  for (const ExpressionPtr& expression : s.expressions) {
    AVOCET_TRY(const Value value, Eval(*expression));
    if (value.is_string()) {
      AVOCET_TRY_VOID(Append(value.text()));
    } else {
      AVOCET_TRY_VOID(AppendStr(value, budget_, *out_));
    }
  }
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::RunIf(const Statement& s) {
  for (const Branch& branch : s.branches) {
    if (branch.condition == nullptr) return Run(branch.body);
    AVOCET_TRY(const Value condition, Eval(*branch.condition));
    if (condition.IsTrue()) return Run(branch.body);
  }
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::RunSetBlock(const Statement& s) {
  std::string text;
  AVOCET_TRY(const Flow flow, Capture(s.body, &text));
  if (flow != Flow::kNormal) return flow;
  Value value = Value::String(std::move(text));
  if (!s.expressions.empty()) {
    block_text_ = std::move(value);
    AVOCET_TRY(value, Eval(*s.expressions[0]));
  }
  AVOCET_TRY_VOID(Assign(s.targets[0], value));
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::RunFilterBlock(const Statement& s) {
  std::string text;
  AVOCET_TRY(const Flow flow, Capture(s.body, &text));
  if (flow != Flow::kNormal) return flow;
  block_text_ = Value::String(std::move(text));
  AVOCET_TRY(const Value value, Eval(*s.expressions[0]));
  if (!value.is_string()) return Fail(Errc::kInvalidArgument, "the filters of a block make a text, not {}", value.type_name());
  AVOCET_TRY_VOID(Append(value.text()));
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::RunCallBlock(const Statement& s) {
  const Expression& call = *s.expressions[0];
  AVOCET_TRY(const Value function, Eval(*call.children[0]));
  AVOCET_TRY(Arguments arguments, EvalArguments(call.arguments.get()));
  arguments.named.emplace_back("caller", NewMacro(*s.macro));
  AVOCET_TRY(const Value value, this->Call(function, arguments));
  AVOCET_TRY_VOID(AppendStr(value, budget_, *out_));
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::RunWith(const Statement& s) {
  std::vector<Value> values;  // none sees what another sets
  for (const ExpressionPtr& expression : s.expressions) {
    AVOCET_TRY(Value value, Eval(*expression));
    values.push_back(std::move(value));
  }
  const ScopeGuard scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) {
    AVOCET_TRY_VOID(Assign(s.targets[i], values[i]));
  }
  return Run(s.body);
}

Result<Evaluator::Flow> Evaluator::RunGeneration(const Statement& s) {
  const ScopeGuard scope(*this, scope_);
  return Run(s.body);
}

Value Evaluator::NewMacro(const MacroData& macro) {
  CaptureScopes(scope_);
  return Value::Function(std::make_shared<MacroFunction>(macro, scope_));
}

namespace {

// Takes the argument of that name out of the call.
std::optional<Value> TakeNamed(Arguments& arguments, std::string_view name) {
  const auto found = std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
  if (found == arguments.named.end()) return std::nullopt;
  Value value = std::move(found->second);
  arguments.named.erase(found);
  return value;
}

}  // namespace

// As the reference's Macro.__call__: positional arguments, then named ones and defaults, then caller, kwargs and varargs if the body
// speaks of them; anything left over is an error.
Result<void> Evaluator::BindParameters(const MacroData& macro, Arguments& arguments) {
  const size_t num_given = std::min(arguments.positional.size(), macro.parameters.size());
  std::vector<std::optional<Value>> values(arguments.positional.begin(), arguments.positional.begin() + static_cast<ptrdiff_t>(num_given));
  bool has_caller = macro.has_caller_parameter;
  for (size_t i = num_given; i < macro.parameters.size(); ++i) values.push_back(TakeNamed(arguments, macro.parameters[i].text));
  std::optional<Value> caller;
  if (macro.takes_caller && !has_caller) {
    caller = TakeNamed(arguments, "caller");
    if (!caller || caller->is_none()) caller = Value::UndefinedHint("No caller defined");
  }
  if (!macro.takes_kwargs && !arguments.named.empty()) {
    return Fail(Errc::kInvalidArgument, "macro '{}' takes no keyword argument '{}'", macro.name, arguments.named[0].first);
  }
  if (!macro.takes_varargs && arguments.positional.size() > macro.parameters.size()) {
    return Fail(Errc::kInvalidArgument, "macro '{}' takes not more than {} argument(s)", macro.name, macro.parameters.size());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (!values[i] && parameter.default_value != nullptr) {
      AVOCET_TRY(values[i], Eval(*parameter.default_value));
    }
    SetVariable(parameter.name,
                values[i] ? *std::move(values[i]) : Value::UndefinedHint(fmt::format("parameter '{}' was not provided", parameter.text)));
  }
  if (caller) SetVariable(macro.caller, *std::move(caller));
  if (macro.takes_kwargs) {
    DictBuilder kwargs;
    for (auto& [name, value] : arguments.named) {
      AVOCET_TRY_VOID(kwargs.Set(Value::String(name), std::move(value), budget_));
    }
    SetVariable(macro.kwargs, kwargs.Build());
  }
  if (macro.takes_varargs) {
    AVOCET_TRY(Value varargs,
               MakeTuple({arguments.positional.begin() + static_cast<ptrdiff_t>(num_given), arguments.positional.end()}, budget_));
    SetVariable(macro.varargs, std::move(varargs));
  }
  return {};
}

Result<Value> Evaluator::CallMacro(const MacroData& macro, Scope* definition, Arguments& arguments) {
  std::string text;
  const ScopeGuard scope(*this, definition);
  AVOCET_TRY_VOID(BindParameters(macro, arguments));
  std::string* const outer = std::exchange(out_, &text);
  Result<Flow> flow = Run(macro.body);
  out_ = outer;
  if (!flow) return std::unexpected(std::move(flow).error());
  return Value::String(std::move(text));
}

}  // namespace avocet::tokenizer::jinja
