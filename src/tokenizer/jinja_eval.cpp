#include "tokenizer/jinja_eval.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/limits.h"

namespace avocet::tokenizer::jinja {

class Evaluator::Depth {
 public:
  explicit Depth(Evaluator& evaluator) : evaluator_(evaluator) {
    if (++evaluator_.depth_ > 5 * limits::kTemplateDepthMax) throw TemplateError("macros, blocks or expressions are nested too deeply");
  }
  ~Depth() { --evaluator_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Evaluator& evaluator_;
};

Evaluator::Evaluator(std::unordered_map<std::string, Value> globals) : globals_(std::move(globals)), scope_(std::make_shared<Scope>()) {}

std::string Evaluator::Render(const Block& block) {
  return Capture(block);
}

void Evaluator::Charge(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits::kTemplateStepsMax)
    throw TemplateError(fmt::format("the template takes more than {} steps", limits::kTemplateStepsMax));
}

void Evaluator::CheckBytes(size_t bytes) const {
  if (bytes > limits::kTemplateOutputBytesMax)
    throw TemplateError(fmt::format("the template makes a text of more than {} bytes", limits::kTemplateOutputBytesMax));
}

void Evaluator::Append(std::string_view text) {
  CheckBytes(out_->size() + text.size());
  Charge(1 + static_cast<int64_t>(text.size() / 1024));
  out_->append(text);
}

std::string Evaluator::Capture(const Block& block) {
  std::string text;
  std::string* outer = std::exchange(out_, &text);
  Run(block);
  out_ = outer;
  return text;
}

Evaluator::Flow Evaluator::Run(const Block& block) {
  const Depth depth(*this);
  for (const auto& statement : block) {
    const Flow flow = RunOne(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

namespace {

// Adds the line to errors that come from inside a statement, once.
template <typename F>
auto AtLine(int32_t line, const F& f) {
  try {
    return f();
  } catch (TemplateError& error) {
    if (error.is_raised || std::string_view(error.what()).starts_with("line ")) throw;
    throw TemplateError(fmt::format("line {}: {}", line, error.what()));
  }
}

}  // namespace

Evaluator::Flow Evaluator::RunOne(const Statement& s) {
  Charge(1);
  return AtLine(s.line, [&] {
    switch (s.kind) {
      case StatementKind::kText: Append(s.text); return Flow::kNormal;
      case StatementKind::kOutput: Append(Eval(*s.expression).Str()); return Flow::kNormal;
      case StatementKind::kIf:
        for (const Branch& branch : s.branches) {
          if (branch.condition == nullptr || Eval(*branch.condition).IsTrue()) return Run(branch.body);
        }
        return Flow::kNormal;
      case StatementKind::kFor: return RunFor(s);
      case StatementKind::kSet: Assign(*s.target, Eval(*s.expression)); return Flow::kNormal;
      case StatementKind::kSetBlock:
      case StatementKind::kFilterBlock: {
        Value text = Value::MakeString(Capture(s.body));
        if (s.expression != nullptr) {
          globals_
              ["\x01"
               "captured"] = text;  // a name no template can write: the input of the filter chain
          text = Eval(*s.expression);
        }
        if (s.kind == StatementKind::kSetBlock) {
          Assign(*s.target, text);
        } else {
          Append(text.Str());
        }
        return Flow::kNormal;
      }
      case StatementKind::kMacro: SetVariable(s.text, MakeMacro(s, s.text)); return Flow::kNormal;
      case StatementKind::kCallBlock: {
        Arguments arguments = EvalArguments(*s.expression);
        arguments.named.emplace_back("caller", MakeMacro(s, "caller"));
        const Value function = Eval(*s.expression->children[0]);
        Append(Call(function, arguments).Str());
        return Flow::kNormal;
      }
      case StatementKind::kBlock: {
        const ScopePtr outer = scope_;
        auto inner = std::make_shared<Scope>();
        inner->parent = outer;
        for (const Parameter& assignment : s.parameters) inner->variables.emplace_back(assignment.name, Eval(*assignment.default_value));
        if (!s.parameters.empty()) scope_ = inner;
        const Flow flow = Run(s.body);
        scope_ = outer;
        return flow;
      }
      case StatementKind::kBreak: return Flow::kBreak;
      case StatementKind::kContinue: return Flow::kContinue;
      case StatementKind::kDo: Eval(*s.expression); return Flow::kNormal;
    }
    return Flow::kNormal;
  });
}

Evaluator::Flow Evaluator::RunFor(const Statement& s) {
  Flow flow = Flow::kNormal;
  Append(RenderLoop(s, Eval(*s.expression), scope_, 1, &flow));
  return Flow::kNormal;
}

// One scope per iteration: what is set inside does not leak out.
std::string Evaluator::RenderLoop(const Statement& s, const Value& iterable, ScopePtr scope, int32_t loop_depth, Flow* flow) {
  const Depth depth(*this);
  const ScopePtr outer = std::exchange(scope_, scope);
  auto loop = std::make_shared<LoopData>();
  loop->depth = loop_depth;
  loop->statement = s.is_recursive ? &s : nullptr;
  loop->scope = scope;
  const auto enter = [&] {
    scope_ = std::make_shared<Scope>();
    scope_->parent = scope;
  };
  for (Value& item : Iterate(iterable)) {
    Charge(1);
    if (s.condition != nullptr) {
      enter();
      Assign(*s.target, item);
      if (!Eval(*s.condition).IsTrue()) continue;
    }
    loop->items.push_back(std::move(item));
  }
  std::string text;
  std::string* outer_out = std::exchange(out_, &text);
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    Charge(1);
    enter();
    scope_->variables.emplace_back("loop", Value::MakeLoop(loop));
    Assign(*s.target, loop->items[loop->index]);
    *flow = Run(s.body);
    if (*flow == Flow::kBreak) break;
  }
  scope_ = scope;
  if (loop->items.empty()) Run(s.else_body);
  out_ = outer_out;
  scope_ = outer;
  return text;
}

void Evaluator::SetVariable(const std::string& name, const Value& value) {
  for (auto& [own, old] : scope_->variables) {
    if (own == name) {
      old = value;
      return;
    }
  }
  scope_->variables.emplace_back(name, value);
}

void Evaluator::Assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) return SetVariable(target.text, value);
  if (target.kind == ExpressionKind::kAttribute) {
    const Value object = Eval(*target.children[0]);
    if (!object.is_namespace()) throw TemplateError("cannot assign attribute on non-namespace object");
    if (target.text.starts_with('_'))
      throw TemplateError(fmt::format("namespace attribute '{}' must not start with an underscore", target.text));
    for (auto& [own, old] : object.ns().items) {
      if (own == target.text) {
        old = value;
        return;
      }
    }
    object.ns().items.emplace_back(target.text, value);
    return;
  }
  const std::vector<Value> items = Iterate(value);
  if (items.size() != target.children.size()) {
    throw TemplateError(fmt::format("cannot unpack {} values into {} names", items.size(), target.children.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.children[i], items[i]);
}

Value Evaluator::MakeMacro(const Statement& s, std::string name) {
  const ScopePtr scope = scope_;
  const std::weak_ptr<Scope> weak = scope;  // a macro stored in its own scope must not keep it alive for ever
  return Value::MakeCallable(std::move(name), [&s, weak](Evaluator& evaluator, Arguments& arguments) {
    ScopePtr definition = weak.lock();
    if (definition == nullptr) definition = std::make_shared<Scope>();
    return evaluator.CallMacro(s, definition, arguments);
  });
}

Value Evaluator::CallMacro(const Statement& s, const ScopePtr& definition, Arguments& arguments) {
  const Depth depth(*this);
  auto scope = std::make_shared<Scope>();
  scope->parent = definition;
  std::vector<Value> rest;
  std::vector<std::pair<Value, Value>> other;
  for (const auto& [name, value] : arguments.named) {
    const bool is_known = std::ranges::find(s.parameters, name, &Parameter::name) != s.parameters.end();
    if (!is_known && name != "caller") other.emplace_back(Value::MakeString(name), value);
    if (name == "caller") scope->variables.emplace_back(name, value);
  }
  for (size_t i = s.parameters.size(); i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
  scope->variables.emplace_back("varargs", Value::MakeTuple(std::move(rest)));
  scope->variables.emplace_back("kwargs", Value::MakeMapping(std::move(other)));
  const ScopePtr outer = std::exchange(scope_, scope);
  for (size_t i = 0; i < s.parameters.size(); ++i) {
    const Parameter& parameter = s.parameters[i];
    const Value* given = Argument(arguments, i, parameter.name);
    Value value = given != nullptr                     ? *given
                  : parameter.default_value != nullptr ? Eval(*parameter.default_value)
                                                       : Value(Undefined{parameter.name});
    scope->variables.emplace_back(parameter.name, std::move(value));
  }
  Value text = Value::MakeString(Capture(s.body));
  scope_ = outer;
  return text;
}

Value Evaluator::Lookup(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [own, value] : scope->variables) {
      if (own == name) return value;
    }
  }
  const auto global = globals_.find(name);
  return global != globals_.end() ? global->second : Value(Undefined{name});
}

Value Evaluator::Eval(const Expression& e) {
  const Depth depth(*this);
  Charge(1);
  switch (e.kind) {
    case ExpressionKind::kLiteral: return e.value;
    case ExpressionKind::kName: return Lookup(e.text);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      std::vector<Value> items;
      for (const ExpressionPtr& child : e.children) items.push_back(Eval(*child));
      return e.kind == ExpressionKind::kList ? Value::MakeList(std::move(items)) : Value::MakeTuple(std::move(items));
    }
    case ExpressionKind::kMapping: {
      std::vector<std::pair<Value, Value>> items;
      for (size_t i = 0; i + 1 < e.children.size(); i += 2) {
        Value key = Eval(*e.children[i]);
        Value value = Eval(*e.children[i + 1]);
        const auto same = std::ranges::find_if(items, [&key](const auto& own) { return Equal(own.first, key); });
        if (same != items.end()) {
          same->second = std::move(value);
        } else {
          items.emplace_back(std::move(key), std::move(value));
        }
      }
      return Value::MakeMapping(std::move(items));
    }
    case ExpressionKind::kAttribute: return Attribute(Eval(*e.children[0]), e.text);
    case ExpressionKind::kItem: return Item(Eval(*e.children[0]), Eval(*e.children[1]));
    case ExpressionKind::kSlice: return EvalSlice(e);
    case ExpressionKind::kCall: return EvalCall(e);
    case ExpressionKind::kFilter: {
      const Value input = e.children[0] != nullptr ? Eval(*e.children[0])
                                                   : Lookup(
                                                         "\x01"
                                                         "captured");
      Arguments arguments = EvalArguments(e);
      return ApplyFilter(e.text, input, arguments);
    }
    case ExpressionKind::kTest: {
      const Value subject = Eval(*e.children[0]);
      Arguments arguments = EvalArguments(e);
      return Value::MakeBool(ApplyTest(e.text, subject, arguments));
    }
    case ExpressionKind::kUnary: return EvalUnary(e);
    case ExpressionKind::kBinary: return EvalBinary(e);
    case ExpressionKind::kCompare: return EvalCompare(e);
    case ExpressionKind::kConditional:
      if (Eval(*e.children[1]).IsTrue()) return Eval(*e.children[0]);
      return e.children[2] != nullptr ? Eval(*e.children[2])
                                      : Value(Undefined{"the inline if-expression evaluated to false and no else section was defined"});
  }
  return {};
}

Value Evaluator::EvalUnary(const Expression& e) {
  const Value value = Eval(*e.children[0]);
  if (e.text == "not") return Value::MakeBool(!value.IsTrue());
  if (value.is_undefined()) throw TemplateError(fmt::format("'{}' is undefined", value.undefined().name));
  if (!value.is_number() || value.is_big())
    throw TemplateError(fmt::format("bad operand type for unary {}: '{}'", e.text, value.TypeName()));
  if (value.is_float()) return Value::MakeFloat(e.text == "-" ? -value.AsDouble() : value.AsDouble());
  return BinaryOperation(*this, e.text, Value::MakeInt(0), value);
}

Value Evaluator::EvalBinary(const Expression& e) {
  Value left = Eval(*e.children[0]);
  if (e.text == "and") return left.IsTrue() ? Eval(*e.children[1]) : left;
  if (e.text == "or") return left.IsTrue() ? left : Eval(*e.children[1]);
  const Value right = Eval(*e.children[1]);
  if (e.text == "~") {
    std::string text = left.Str() + right.Str();
    CheckBytes(text.size());
    Charge(static_cast<int64_t>(text.size() / 1024));
    return Value::MakeString(std::move(text));
  }
  return BinaryOperation(*this, e.text, left, right);
}

Value Evaluator::EvalCompare(const Expression& e) {
  Value left = Eval(*e.children[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    const Value right = Eval(*e.children[i + 1]);
    const std::string& op = e.operators[i];
    Charge(right.is_sequence() ? static_cast<int64_t>(right.sequence().items.size() / 16)
           : right.is_string() ? static_cast<int64_t>(right.string().size() / 1024)
                               : 0);
    bool holds = false;
    if (op == "==") holds = Equal(left, right);
    if (op == "!=") holds = !Equal(left, right);
    if (op == "<") holds = Less(left, right);
    if (op == ">") holds = Less(right, left);
    if (op == "<=") holds = !Less(right, left);
    if (op == ">=") holds = !Less(left, right);
    if (op == "in") holds = Contains(right, left);
    if (op == "not in") holds = !Contains(right, left);
    if (!holds) return Value::MakeBool(false);
    left = right;
  }
  return Value::MakeBool(true);
}

Value Evaluator::EvalSlice(const Expression& e) {
  const Value object = Eval(*e.children[0]);
  const auto bound = [&](size_t i) -> Value { return e.children[i] != nullptr ? Eval(*e.children[i]) : Value::MakeNone(); };
  const Value first = bound(1), last = bound(2), stride = bound(3);
  if (object.is_undefined()) throw TemplateError(fmt::format("'{}' is undefined", object.undefined().name));
  if (!object.is_string() && !object.is_sequence())
    throw TemplateError(fmt::format("'{}' object is not subscriptable by a slice", object.TypeName()));
  for (const Value* value : {&first, &last, &stride}) {
    if (!value->is_none() && !value->is_integral()) throw TemplateError("slice indices must be integers or None");
  }
  const std::u32string text = object.is_string() ? Decode(object.string()) : std::u32string();
  const auto size = static_cast<int64_t>(object.is_string() ? text.size() : object.sequence().items.size());
  Charge(size / 16);
  const int64_t step = stride.is_none() ? 1 : stride.AsInt();
  if (step == 0) throw TemplateError("slice step cannot be zero");
  const auto clamp = [&](const Value& value, int64_t missing) {
    if (value.is_none()) return missing;
    const int64_t index = value.AsInt() < 0 ? std::max<int64_t>(value.AsInt(), -size - 1) + size : std::min(value.AsInt(), size);
    return step > 0 ? std::clamp<int64_t>(index, 0, size) : std::clamp<int64_t>(index, -1, size - 1);
  };
  const int64_t begin = clamp(first, step > 0 ? 0 : size - 1);
  const int64_t end = clamp(last, step > 0 ? size : -1);
  std::u32string cut;
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (object.is_string()) {
      cut += text[static_cast<size_t>(i)];
    } else {
      items.push_back(object.sequence().items[static_cast<size_t>(i)]);
    }
    if (step > size || step < -size) break;
    i += step;
  }
  if (object.is_string()) return Value::MakeString(Encode(cut));
  return object.sequence().kind == SequenceKind::kTuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

Arguments Evaluator::EvalArguments(const Expression& e) {
  Arguments arguments;
  for (size_t i = 1; i < e.children.size(); ++i) arguments.positional.push_back(Eval(*e.children[i]));
  for (const NamedArgument& named : e.named) arguments.named.emplace_back(named.name, Eval(*named.value));
  return arguments;
}

Value Evaluator::EvalCall(const Expression& e) {
  const Value function = Eval(*e.children[0]);
  Arguments arguments = EvalArguments(e);
  return Call(function, arguments);
}

Value Evaluator::Call(const Value& function, Arguments& arguments) {
  const Depth depth(*this);
  Charge(1);
  if (function.is_callable()) return function.callable().call(*this, arguments);
  if (function.is_loop()) {
    LoopData& loop = function.loop();
    if (loop.statement == nullptr) throw TemplateError("the loop is not recursive");
    if (arguments.positional.empty()) throw TemplateError("a recursive loop takes the items to go through");
    Flow flow = Flow::kNormal;
    return Value::MakeString(RenderLoop(*loop.statement, arguments.positional[0], loop.scope, loop.depth + 1, &flow));
  }
  if (function.is_undefined()) throw TemplateError(fmt::format("'{}' is undefined", function.undefined().name));
  throw TemplateError(fmt::format("'{}' object is not callable", function.TypeName()));
}

Value Evaluator::ApplyFilter(const std::string& name, const Value& input, Arguments& arguments) {
  const FilterFn filter = FindFilter(name);
  if (filter == nullptr) throw TemplateError(fmt::format("no filter named '{}'", name));
  return filter(*this, input, arguments);
}

bool Evaluator::ApplyTest(const std::string& name, const Value& subject, Arguments& arguments) {
  const TestFn test = FindTest(name);
  if (test == nullptr) throw TemplateError(fmt::format("no test named '{}'", name));
  return test(*this, subject, arguments);
}

Value Evaluator::LoopAttribute(const Value& value, const std::string& name) {
  LoopData& loop = value.loop();
  const auto size = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::MakeInt(index + 1);
  if (name == "index0") return Value::MakeInt(index);
  if (name == "revindex") return Value::MakeInt(size - index);
  if (name == "revindex0") return Value::MakeInt(size - index - 1);
  if (name == "first") return Value::MakeBool(index == 0);
  if (name == "last") return Value::MakeBool(index + 1 == size);
  if (name == "length") return Value::MakeInt(size);
  if (name == "depth") return Value::MakeInt(loop.depth);
  if (name == "depth0") return Value::MakeInt(loop.depth - 1);
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : Value(Undefined{"there is no previous item"});
  if (name == "nextitem") return index + 1 < size ? loop.items[loop.index + 1] : Value(Undefined{"there is no next item"});
  if (name == "cycle") {
    return Value::MakeCallable("cycle", [value](Evaluator&, Arguments& arguments) {
      if (arguments.positional.empty()) throw TemplateError("no items for cycling given");
      return arguments.positional[value.loop().index % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return Value::MakeCallable("changed", [value](Evaluator&, Arguments& arguments) {
      LoopData& own = value.loop();
      const bool is_same = own.has_changed_before && std::ranges::equal(own.last_changed, arguments.positional, Equal);
      own.last_changed = arguments.positional;
      own.has_changed_before = true;
      return Value::MakeBool(!is_same);
    });
  }
  return Undefined{name};
}

Value Evaluator::Attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) throw TemplateError(fmt::format("'{}' is undefined", object.undefined().name));
  if (object.is_loop()) return LoopAttribute(object, name);
  if (object.is_namespace()) {
    for (const auto& [own, value] : object.ns().items) {
      if (own == name) return value;
    }
    return Undefined{name};
  }
  if (name.starts_with("__"))
    throw TemplateError(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, object.TypeName()));
  Value method = FindMethod(object, name);
  if (!method.is_undefined()) return method;
  if (object.is_mapping()) {
    if (const Value* value = object.mapping().Find(Value::MakeString(name))) return *value;
  }
  return Undefined{name};
}

Value Evaluator::Item(const Value& object, const Value& key) {
  if (object.is_undefined()) throw TemplateError(fmt::format("'{}' is undefined", object.undefined().name));
  if (object.is_mapping()) {
    Charge(static_cast<int64_t>(object.mapping().items.size() / 16));
    if (const Value* value = object.mapping().Find(key)) return *value;
  } else if (key.is_integral() && (object.is_sequence() || object.is_string())) {
    const std::u32string text = object.is_string() ? Decode(object.string()) : std::u32string();
    const auto size = static_cast<int64_t>(object.is_string() ? text.size() : object.sequence().items.size());
    const int64_t index = key.AsInt() < 0 ? key.AsInt() + size : key.AsInt();
    if (index >= 0 && index < size) {
      const auto at = static_cast<size_t>(index);
      return object.is_string() ? Value::MakeString(Encode(std::u32string_view(text).substr(at, 1))) : object.sequence().items[at];
    }
    return Undefined{fmt::format("item {}", key.AsInt())};
  }
  if (key.is_string() && !object.is_mapping()) return Attribute(object, key.string());
  if (key.is_string())
    return FindMethod(object, key.string()).is_undefined() ? Value(Undefined{key.string()}) : FindMethod(object, key.string());
  return Undefined{key.Str()};
}

std::vector<Value> Evaluator::Iterate(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_sequence()) {
    items = value.sequence().items;
  } else if (value.is_mapping()) {
    for (const auto& entry : value.mapping().items) items.push_back(entry.first);
  } else if (value.is_string()) {
    for (char32_t c : Decode(value.string())) items.push_back(Value::MakeString(Encode(std::u32string_view(&c, 1))));
  } else {
    throw TemplateError(fmt::format("'{}' object is not iterable", value.TypeName()));
  }
  Charge(static_cast<int64_t>(items.size() / 4));
  return items;
}

const Value* Argument(const Arguments& arguments, size_t index, std::string_view name) {
  if (index < arguments.positional.size()) return &arguments.positional[index];
  for (const auto& [own, value] : arguments.named) {
    if (own == name) return &value;
  }
  return nullptr;
}

}  // namespace avocet::tokenizer::jinja
