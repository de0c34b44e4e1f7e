// What `is` asks.
#include <algorithm>
#include <array>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

template <bool (*kHolds)(const Value&)>
Result<Value> Plain(Evaluator&, const Value& self, const Bound&) {
  return Value::Bool(kHolds(self));
}

bool IsDefined(const Value& value) {
  return !value.is_undefined();
}
bool IsUndefined(const Value& value) {
  return value.is_undefined();
}
bool IsNone(const Value& value) {
  return value.is_none();
}
bool IsBoolean(const Value& value) {
  return value.is_bool();
}
bool IsTrue(const Value& value) {
  return value.is_bool() && value.boolean();
}
bool IsFalse(const Value& value) {
  return value.is_bool() && !value.boolean();
}
bool IsInteger(const Value& value) {
  return value.is_integer() && !value.is_bool();
}
bool IsFloat(const Value& value) {
  return value.is_float();
}
bool IsNumber(const Value& value) {
  return value.is_number();
}
bool IsString(const Value& value) {
  return value.is_string();
}
bool IsMapping(const Value& value) {
  return value.is_dict();
}
bool IsEscaped(const Value& value) {
  return value.is_string() && value.string().is_markup;
}

// Python's undefined can be called (and then fails), so it counts.
bool IsCallable(const Value& value) {
  return value.kind() == Kind::kFunction || value.kind() == Kind::kLoop || value.is_undefined();
}

bool IsSequence(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is_dict() || value.kind() == Kind::kRange || value.is_undefined();
}

bool IsIterable(const Value& value) {
  return IsSequence(value) || value.kind() == Kind::kIterator || value.kind() == Kind::kView || value.kind() == Kind::kLoop;
}

enum class Letters : uint8_t { kLower, kUpper };
template <Letters kLetters>
Result<Value> HasLetters(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY(const std::string text, Str(self, evaluator.budget()));
  return Value::Bool(kLetters == Letters::kLower ? IsLower(text) : IsUpper(text));
}

Result<Value> HasRest(Evaluator& evaluator, const Value& self, const Value& divisor, Integer rest) {
  AVOCET_TRY(const Value result, evaluator.Arithmetic(BinaryOp::kModulo, self, divisor));
  AVOCET_TRY(const bool is_equal, Equal(result, Value::Int(rest), evaluator.budget()));
  return Value::Bool(is_equal);
}

Result<Value> IsOdd(Evaluator& evaluator, const Value& self, const Bound&) {
  return HasRest(evaluator, self, Value::Int(2), 1);
}
Result<Value> IsEven(Evaluator& evaluator, const Value& self, const Bound&) {
  return HasRest(evaluator, self, Value::Int(2), 0);
}
Result<Value> IsDivisibleBy(Evaluator& evaluator, const Value& self, const Bound& bound) {
  return HasRest(evaluator, self, *bound[0], 0);
}

Result<Value> IsEqual(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const bool is_equal, Equal(self, *bound[0], evaluator.budget()));
  return Value::Bool(is_equal);
}

Result<Value> IsNotEqual(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const bool is_equal, Equal(self, *bound[0], evaluator.budget()));
  return Value::Bool(!is_equal);
}

template <Order kOrder>
Result<Value> IsOrdered(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const bool holds, Ordered(kOrder, self, *bound[0], evaluator.budget()));
  return Value::Bool(holds);
}

Result<Value> IsIn(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const bool contains, Contains(*bound[0], self, evaluator.budget()));
  return Value::Bool(contains);
}

Result<Value> IsSameAs(Evaluator&, const Value& self, const Bound& bound) {
  return Value::Bool(IsSame(self, *bound[0]));
}
Result<Value> IsFilter(Evaluator&, const Value& self, const Bound&) {
  return Value::Bool(self.is_string() && FindFilter(self.text()) != nullptr);
}
Result<Value> IsTest(Evaluator&, const Value& self, const Bound&) {
  return Value::Bool(self.is_string() && FindTest(self.text()) != nullptr);
}

constexpr std::array<NativeFunction, 39> kTests = {{
    {"!=", {"other"}, 1, IsNotEqual},
    {"<", {"other"}, 1, IsOrdered<Order::kLess>},
    {"<=", {"other"}, 1, IsOrdered<Order::kLessOrEqual>},
    {"==", {"other"}, 1, IsEqual},
    {">", {"other"}, 1, IsOrdered<Order::kGreater>},
    {">=", {"other"}, 1, IsOrdered<Order::kGreaterOrEqual>},
    {"boolean", {}, 0, Plain<IsBoolean>},
    {"callable", {}, 0, Plain<IsCallable>},
    {"defined", {}, 0, Plain<IsDefined>},
    {"divisibleby", {"num"}, 1, IsDivisibleBy},
    {"eq", {"other"}, 1, IsEqual},
    {"equalto", {"other"}, 1, IsEqual},
    {"escaped", {}, 0, Plain<IsEscaped>},
    {"even", {}, 0, IsEven},
    {"false", {}, 0, Plain<IsFalse>},
    {"filter", {}, 0, IsFilter},
    {"float", {}, 0, Plain<IsFloat>},
    {"ge", {"other"}, 1, IsOrdered<Order::kGreaterOrEqual>},
    {"greaterthan", {"other"}, 1, IsOrdered<Order::kGreater>},
    {"gt", {"other"}, 1, IsOrdered<Order::kGreater>},
    {"in", {"seq"}, 1, IsIn},
    {"integer", {}, 0, Plain<IsInteger>},
    {"iterable", {}, 0, Plain<IsIterable>},
    {"le", {"other"}, 1, IsOrdered<Order::kLessOrEqual>},
    {"lessthan", {"other"}, 1, IsOrdered<Order::kLess>},
    {"lower", {}, 0, HasLetters<Letters::kLower>},
    {"lt", {"other"}, 1, IsOrdered<Order::kLess>},
    {"mapping", {}, 0, Plain<IsMapping>},
    {"ne", {"other"}, 1, IsNotEqual},
    {"none", {}, 0, Plain<IsNone>},
    {"number", {}, 0, Plain<IsNumber>},
    {"odd", {}, 0, IsOdd},
    {"sameas", {"other"}, 1, IsSameAs},
    {"sequence", {}, 0, Plain<IsSequence>},
    {"string", {}, 0, Plain<IsString>},
    {"test", {}, 0, IsTest},
    {"true", {}, 0, Plain<IsTrue>},
    {"undefined", {}, 0, Plain<IsUndefined>},
    {"upper", {}, 0, HasLetters<Letters::kUpper>},
}};
static_assert(std::ranges::is_sorted(kTests, {}, &NativeFunction::name));

}  // namespace

std::span<const NativeFunction> Tests() {
  return kTests;
}

}  // namespace avocet::tokenizer::jinja
