// Arithmetic and slices.
#include <algorithm>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {

namespace {

// Python clamps the bounds of slices to what an index can be.
Result<std::optional<int64_t>> SliceBound(const Value& value) {
  if (value.is_none()) return std::nullopt;
  if (!value.is_integer()) return Fail(Errc::kInvalidArgument, "slice indices must be integers or None, not {}", value.type_name());
  constexpr Integer kMax = INT64_MAX / 2;
  return static_cast<int64_t>(std::clamp(value.integer(), -kMax, kMax));
}

struct SliceRange {
  int64_t begin = 0;
  int64_t step = 1;
  int64_t num_items = 0;
};

SliceRange Resolve(std::optional<int64_t> first, std::optional<int64_t> last, int64_t step, int64_t size) {
  const auto clamp = [&](int64_t bound) {
    if (bound < 0) bound += size;
    return step > 0 ? std::clamp<int64_t>(bound, 0, size) : std::clamp<int64_t>(bound, -1, size - 1);
  };
  const int64_t begin = first ? clamp(*first) : step > 0 ? 0 : size - 1;
  const int64_t end = last ? clamp(*last) : step > 0 ? size : -1;
  const int64_t span = step > 0 ? end - begin : begin - end;
  return {begin, step, span <= 0 ? 0 : (span - 1) / (step > 0 ? step : -step) + 1};
}

std::string SliceText(const StringData& text, const SliceRange& slice) {
  std::string_view bytes = text.text;
  if (slice.num_items == 0) return {};
  if (slice.step == 1) {
    const size_t begin = text.is_ascii() ? static_cast<size_t>(slice.begin) : ByteOffset(bytes, slice.begin);
    bytes.remove_prefix(begin);
    return std::string(bytes.substr(0, text.is_ascii() ? static_cast<size_t>(slice.num_items) : ByteOffset(bytes, slice.num_items)));
  }
  std::vector<uint32_t> begins;
  begins.reserve(static_cast<size_t>(text.num_code_points));
  for (size_t at = 0; at < bytes.size(); NextCodePoint(bytes, at)) begins.push_back(static_cast<uint32_t>(at));
  std::string out;
  for (int64_t i = 0; i < slice.num_items; ++i) {
    size_t at = begins[static_cast<size_t>(slice.begin + i * slice.step)];
    AppendUtf8(NextCodePoint(bytes, at), out);
  }
  return out;
}

}  // namespace

Result<Value> Evaluator::EvalSlice(const Expression& e) {
  AVOCET_TRY(const Value object, Eval(*e.children[0]));
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (e.children[i + 1] == nullptr) continue;
    AVOCET_TRY(const Value bound, Eval(*e.children[i + 1]));
    AVOCET_TRY(bounds[i], SliceBound(bound));
  }
  const int64_t step = bounds[2].value_or(1);
  if (object.is_undefined()) return UndefinedError(object);
  if (object.is_dict()) return Fail(Errc::kInvalidArgument, "unhashable type: 'slice'");
  if (!object.is_string() && !object.is_sequence() && object.kind() != Kind::kRange) {
    return Fail(Errc::kInvalidArgument, "'{}' object is not subscriptable", object.type_name());
  }
  if (step == 0) return Fail(Errc::kInvalidArgument, "slice step cannot be zero");
  AVOCET_TRY(const int64_t size, Length(object));
  const SliceRange slice = Resolve(bounds[0], bounds[1], step, size);
  if (object.kind() == Kind::kRange) {
    const RangeData& range = object.range();
    const int64_t start = range.start + slice.begin * range.step;
    const int64_t new_step = slice.num_items > 1 ? range.step * step : 1;  // a step beyond the range would overflow, and is not taken
    return Value::Range({start, start + slice.num_items * new_step, new_step});
  }
  if (object.is_string()) {
    AVOCET_TRY_VOID(budget_.Text(object.text().size()));
    std::string text = SliceText(object.string(), slice);
    return object.string().is_markup ? Value::Markup(std::move(text)) : Value::String(std::move(text));
  }
  AVOCET_TRY_VOID(budget_.Items(static_cast<size_t>(slice.num_items)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(slice.num_items));
  for (int64_t i = 0; i < slice.num_items; ++i) items.push_back(object.sequence().items[static_cast<size_t>(slice.begin + i * step)]);
  return Value::Sequence(object.is_list() ? SequenceKind::kList : SequenceKind::kTuple, std::move(items));
}

namespace {

Result<Value> Repeat(const Value& value, const Value& times, Budget& budget) {
  const Integer count = std::clamp(times.integer(), Integer{0}, Integer{INT32_MAX});
  const auto num_times = static_cast<size_t>(count);
  if (value.is_string()) {
    AVOCET_TRY_VOID(budget.Text(std::min(value.text().size() * num_times, limits::kTemplateOutputBytesMax + 1)));
    std::string text;
    text.reserve(value.text().size() * num_times);
    for (size_t i = 0; i < num_times && !value.text().empty(); ++i) text += value.text();
    return value.string().is_markup ? Value::Markup(std::move(text)) : Value::String(std::move(text));
  }
  const std::vector<Value>& items = value.sequence().items;
  AVOCET_TRY_VOID(budget.Items(items.size() * num_times));
  std::vector<Value> repeated;
  repeated.reserve(items.size() * num_times);
  for (size_t i = 0; i < num_times && !items.empty(); ++i) repeated.insert(repeated.end(), items.begin(), items.end());
  return Value::Sequence(value.is_list() ? SequenceKind::kList : SequenceKind::kTuple, std::move(repeated));
}

Result<Value> Joined(const Value& a, const Value& b, Budget& budget) {
  if (a.is_sequence()) {
    std::vector<Value> items;
    items.reserve(a.sequence().items.size() + b.sequence().items.size());
    AVOCET_TRY_VOID(budget.Items(a.sequence().items.size() + b.sequence().items.size()));
    items = a.sequence().items;
    items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
    return Value::Sequence(a.is_list() ? SequenceKind::kList : SequenceKind::kTuple, std::move(items));
  }
  const bool is_markup = a.string().is_markup || b.string().is_markup;
  AVOCET_TRY_VOID(budget.Text((a.text().size() + b.text().size()) * (is_markup ? kEscapeGrowthMax : 1)));
  if (!is_markup) return Value::String(std::string(a.text()).append(b.text()));
  const auto escaped = [](const Value& value) { return value.string().is_markup ? std::string(value.text()) : EscapeHtml(value.text()); };
  return Value::Markup(escaped(a) + escaped(b));
}

Result<Value> NumberArithmetic(BinaryOp op, const Value& a, const Value& b) {
  const bool makes_float = op == BinaryOp::kDivide || (op == BinaryOp::kPower && b.is_integer() && b.integer() < 0);
  if (a.is_integer() && b.is_integer() && !makes_float) {
    AVOCET_TRY(const Integer result, IntegerOperation(op, a.integer(), b.integer()));
    return Value::Int(result);
  }
  AVOCET_TRY(const double result, FloatOperation(op, a.real(), b.real()));
  return Value::Float(result);
}

}  // namespace

Result<Value> Evaluator::Arithmetic(BinaryOp op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return NumberArithmetic(op, a, b);
  if (op == BinaryOp::kModulo && a.is_string()) return PercentFormat(a, b, budget_);
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (op == BinaryOp::kAdd) {
    if (a.is_string() && b.is_string()) return Joined(a, b, budget_);
    if (a.is_sequence() && b.is_sequence() && a.is_list() == b.is_list()) return Joined(a, b, budget_);
  }
  if (op == BinaryOp::kMultiply) {
    if ((a.is_string() || a.is_sequence()) && b.is_integer()) return Repeat(a, b, budget_);
    if ((b.is_string() || b.is_sequence()) && a.is_integer()) return Repeat(b, a, budget_);
  }
  return Fail(Errc::kInvalidArgument, "unsupported operand types for {}: '{}' and '{}'", Symbol(op), a.type_name(), b.type_name());
}

}  // namespace avocet::tokenizer::jinja
