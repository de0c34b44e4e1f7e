// For loops.
#include <algorithm>

#include "tokenizer/jinja/eval.h"

namespace avocet::tokenizer::jinja {

// loop.cycle and loop.changed.
class LoopMethod : public FunctionData {
 public:
  enum class Which : uint8_t { kCycle, kChanged };
  LoopMethod(Which which, Value loop) : FunctionData(loop.depth() + 1), which_(which), loop_(std::move(loop)) {}

  Result<Value> Call(Evaluator& evaluator, Arguments& arguments) override {
    if (!arguments.named.empty()) return Fail(Errc::kInvalidArgument, "got an unexpected keyword argument '{}'", arguments.named[0].first);
    return which_ == Which::kCycle ? Cycle(arguments) : Changed(evaluator, arguments);
  }
  std::string Show() const override { return "<bound method of a loop>"; }

 private:
  Result<Value> Cycle(const Arguments& arguments) const {
    if (arguments.positional.empty()) return Fail(Errc::kInvalidArgument, "no items for cycling given");
    return arguments.positional[static_cast<size_t>(loop_.loop().index0) % arguments.positional.size()];
  }

  Result<Value> Changed(Evaluator& evaluator, Arguments& arguments) const {
    LoopData& loop = loop_.loop();
    if (loop.last_changed && loop.last_changed->size() == arguments.positional.size()) {
      bool is_same = true;
      for (size_t i = 0; i < arguments.positional.size() && is_same; ++i) {
        AVOCET_TRY(is_same, Equal((*loop.last_changed)[i], arguments.positional[i], evaluator.budget()));
      }
      if (is_same) return Value::Bool(false);
    }
    AVOCET_TRY_VOID(evaluator.budget().Items(arguments.positional.size()));
    if (!loop.last_changed) evaluator.remembering_loops_.push_back(loop_.loop_ref());
    loop.last_changed = arguments.positional;
    return Value::Bool(true);
  }

  Which which_;
  Value loop_;
};

Result<std::shared_ptr<LoopData>> Evaluator::NewLoop(const Statement& s, const Value& iterable, Scope* scope, int32_t depth0) {
  auto loop = std::make_shared<LoopData>();
  loop->statement = &s;
  loop->scope = scope;
  loop->depth0 = depth0;
  loop->source = iterable;
  loop->nesting = iterable.depth() + 1;
  AVOCET_TRY_VOID(budget_.Nesting(loop->nesting));
  if (!iterable.is_sequence() && iterable.kind() != Kind::kIterator) {
    AVOCET_TRY(loop->items, Iterate(iterable, budget_));
  }
  if (s.is_recursive) CaptureScopes(scope);
  return loop;
}

// The next item of the source, the condition aside.
Result<std::optional<Value>> Evaluator::TakeItem(LoopData& loop) {
  AVOCET_TRY_VOID(budget_.Steps(1));
  if (loop.source.kind() == Kind::kIterator) {
    IteratorData& iterator = loop.source.iterator();
    if (iterator.next == iterator.items.size()) return std::nullopt;
    return iterator.items[iterator.next++];
  }
  const std::vector<Value>& items = loop.source.is_sequence() ? loop.source.sequence().items : loop.items;
  if (loop.next == items.size()) return std::nullopt;
  return items[loop.next++];
}

Result<bool> Evaluator::Passes(LoopData& loop, const Value& item) {
  if (loop.statement->condition == nullptr) return true;
  const ScopeGuard scope(*this, loop.scope);
  AVOCET_TRY_VOID(Assign(loop.statement->targets[0], item));
  AVOCET_TRY(const Value condition, Eval(*loop.statement->condition));
  return condition.IsTrue();
}

Result<std::optional<Value>> Evaluator::NextItem(LoopData& loop) {
  if (loop.after) return std::exchange(loop.after, std::nullopt);
  if (loop.rest) {
    if (loop.rest->empty()) return std::nullopt;
    Value item = std::move(loop.rest->back());
    loop.rest->pop_back();
    return item;
  }
  for (;;) {
    AVOCET_TRY(std::optional<Value> item, TakeItem(loop));
    if (!item) return std::nullopt;
    AVOCET_TRY(const bool passes, Passes(loop, *item));
    if (passes) return item;
  }
}

Result<const std::optional<Value>*> Evaluator::PeekItem(LoopData& loop) {
  if (!loop.after) {
    AVOCET_TRY(loop.after, NextItem(loop));
  }
  return &loop.after;
}

// Where the source cannot tell its length, or a condition drops items, the rest is taken to count it.
Result<int64_t> Evaluator::LoopLength(LoopData& loop) {
  if (loop.length) return *loop.length;
  if (loop.statement->condition == nullptr && loop.source.kind() != Kind::kIterator) {
    AVOCET_TRY(loop.length, Length(loop.source));
    return *loop.length;
  }
  const std::optional<Value> after = std::exchange(loop.after, std::nullopt);
  std::vector<Value> rest;
  for (;;) {
    AVOCET_TRY(std::optional<Value> item, NextItem(loop));
    if (!item) break;
    rest.push_back(*std::move(item));
  }
  loop.length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 + (after ? 1 : 0);
  std::ranges::reverse(rest);
  loop.rest = std::move(rest);
  loop.after = after;
  return *loop.length;
}

Result<int64_t> Evaluator::LengthOf(const Value& value) {
  return value.kind() == Kind::kLoop ? LoopLength(value.loop()) : Length(value);
}

Result<Evaluator::Flow> Evaluator::RunLoop(const std::shared_ptr<LoopData>& loop) {
  const Statement& s = *loop->statement;
  // The reference runs the else part unless some pass has come to the end of the body, be it that `continue` left all of them early.
  bool has_completed = false;
  for (;;) {
    AVOCET_TRY(std::optional<Value> item, NextItem(*loop));
    if (!item) break;
    ++loop->index0;
    loop->before = std::exchange(loop->current, *std::move(item));
    const ScopeGuard scope(*this, loop->scope);
    SetVariable(s.name, Value::Loop(loop));
    AVOCET_TRY_VOID(Assign(s.targets[0], loop->current));
    AVOCET_TRY(const Flow flow, Run(s.body));
    has_completed = has_completed || flow == Flow::kNormal;
    if (flow == Flow::kBreak) break;
  }
  if (has_completed) return Flow::kNormal;
  const ScopeGuard scope(*this, loop->scope);
  return Run(s.else_body);  // its `break` belongs to the loop around this one
}

Result<Evaluator::Flow> Evaluator::RunFor(const Statement& s) {
  AVOCET_TRY(const Value iterable, Eval(*s.expressions[0]));
  AVOCET_TRY(const std::shared_ptr<LoopData> loop, NewLoop(s, iterable, scope_, 0));
  return RunLoop(loop);
}

// loop(items) in a recursive loop: the body's text for these items.
Result<Value> Evaluator::CallLoop(LoopData& loop, const Arguments& arguments) {
  if (!loop.statement->is_recursive)
    return Fail(Errc::kInvalidArgument, "the loop must have the 'recursive' marker to be called recursively");
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    return Fail(Errc::kInvalidArgument, "a loop is called with what it is to go through");
  AVOCET_TRY(const std::shared_ptr<LoopData> inner, NewLoop(*loop.statement, arguments.positional[0], loop.scope, loop.depth0 + 1));
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  Result<Flow> flow = RunLoop(inner);
  out_ = outer;
  if (!flow) return std::unexpected(std::move(flow).error());
  return Value::String(std::move(text));
}

Result<std::optional<Value>> Evaluator::LoopAttribute(const Value& value, std::string_view name) {
  LoopData& loop = value.loop();
  const auto number = [](int64_t n) { return std::optional(Value::Int(n)); };
  if (name == "index") return number(loop.index0 + 1);
  if (name == "index0") return number(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "depth") return number(loop.depth0 + 1);
  if (name == "depth0") return number(loop.depth0);
  if (name == "previtem") return loop.index0 > 0 ? loop.before : Value::UndefinedHint("there is no previous item");
  if (name == "last" || name == "nextitem") {
    AVOCET_TRY(const std::optional<Value>* const next, PeekItem(loop));
    if (name == "last") return Value::Bool(!next->has_value());
    return next->has_value() ? **next : Value::UndefinedHint("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    AVOCET_TRY(const int64_t length, LoopLength(loop));
    return number(name == "length" ? length : length - loop.index0 - (name == "revindex" ? 0 : 1));
  }
  if (name == "cycle") return Value::Function(std::make_shared<LoopMethod>(LoopMethod::Which::kCycle, value));
  if (name == "changed") return Value::Function(std::make_shared<LoopMethod>(LoopMethod::Which::kChanged, value));
  return std::nullopt;
}

}  // namespace avocet::tokenizer::jinja
