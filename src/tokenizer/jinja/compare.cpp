// Equality, order and membership of values.
#include <algorithm>

#include "tokenizer/jinja/text.h"
#include "tokenizer/jinja/value.h"

namespace avocet::tokenizer::jinja {
namespace {

constexpr int kUnordered = 2;  // a NaN is involved

int CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  if (a.is_integer()) return Compare(a.integer(), b.real());
  if (b.is_integer()) {
    const int order = Compare(b.integer(), a.real());
    return order == kUnordered ? order : -order;
  }
  if (a.real() < b.real()) return -1;
  if (a.real() > b.real()) return 1;
  return a.real() == b.real() ? 0 : kUnordered;
}

Result<bool> EqualItems(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  AVOCET_TRY_VOID(budget.Items(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    AVOCET_TRY(const bool is_equal, Equal(a[i], b[i], budget));
    if (!is_equal) return false;
  }
  return true;
}

Result<bool> EqualDicts(const DictData& a, const DictData& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  AVOCET_TRY_VOID(budget.Items(a.items.size()));
  for (const auto& [key, value] : a.items) {
    AVOCET_TRY(const Value* const other, b.Find(key, budget));
    if (other == nullptr) return false;
    AVOCET_TRY(const bool is_equal, Equal(value, *other, budget));
    if (!is_equal) return false;
  }
  return true;
}

bool EqualRanges(const RangeData& a, const RangeData& b) {
  if (a.size() != b.size()) return false;
  return a.size() == 0 || (a.start == b.start && (a.size() == 1 || a.step == b.step));
}

bool Holds(Order order, int comparison) {
  switch (order) {
    case Order::kLess: return comparison == -1;
    case Order::kLessOrEqual: return comparison == -1 || comparison == 0;
    case Order::kGreater: return comparison == 1;
    case Order::kGreaterOrEqual: return comparison == 1 || comparison == 0;
  }
  return false;
}

std::string_view Symbol(Order order) {
  switch (order) {
    case Order::kLess: return "<";
    case Order::kLessOrEqual: return "<=";
    case Order::kGreater: return ">";
    case Order::kGreaterOrEqual: break;
  }
  return order == Order::kGreaterOrEqual ? ">=" : "";
}

int CompareSizes(size_t a, size_t b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

Result<bool> OrderedItems(Order order, const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  const size_t num_common = std::min(a.size(), b.size());
  for (size_t i = 0; i < num_common; ++i) {
    AVOCET_TRY_VOID(budget.Steps(1));
    AVOCET_TRY(const bool is_equal, Equal(a[i], b[i], budget));
    if (!is_equal) return Ordered(order, a[i], b[i], budget);
  }
  return Holds(order, CompareSizes(a.size(), b.size()));
}

Result<bool> ContainsItem(const std::vector<Value>& items, const Value& item, Budget& budget) {
  AVOCET_TRY_VOID(budget.Steps(static_cast<int64_t>(items.size() / 4)));
  for (const Value& own : items) {
    AVOCET_TRY(const bool is_equal, Equal(own, item, budget));
    if (is_equal) return true;
  }
  return false;
}

Result<bool> ViewContains(const ViewData& view, const Value& item, Budget& budget) {
  if (view.kind == ViewKind::kKeys) {
    AVOCET_TRY(const Value* const found, view.dict->Find(item, budget));
    return found != nullptr;
  }
  AVOCET_TRY(const std::vector<Value> items, Iterate(Value::View(view.kind, view.dict), budget));
  return ContainsItem(items, item, budget);
}

// Takes values up to the one that is found, as Python does.
Result<bool> IteratorContains(IteratorData& iterator, const Value& item, Budget& budget) {
  while (iterator.next < iterator.items.size()) {
    AVOCET_TRY_VOID(budget.Steps(1));
    AVOCET_TRY(const bool is_equal, Equal(iterator.items[iterator.next++], item, budget));
    if (is_equal) return true;
  }
  return false;
}

bool RangeContains(const RangeData& range, const Value& item) {
  if (item.is_float() && !Truncate(item.real())) return false;
  if (!item.is_number()) return false;
  const Integer value = item.is_integer() ? item.integer() : *Truncate(item.real());
  if (item.is_float() && Compare(value, item.real()) != 0) return false;
  const Integer offset = value - range.start;
  return offset % range.step == 0 && offset / range.step >= 0 && offset / range.step < range.size();
}

}  // namespace

bool IsSame(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return a.identity() == b.identity();
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt: return a.integer() == b.integer();
    case Kind::kFloat: return a.real() == b.real();
    case Kind::kString: return a.text() == b.text();
    default: return a.identity() == b.identity();
  }
}

Result<bool> Equal(const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
      AVOCET_TRY_VOID(budget.Steps(static_cast<int64_t>(std::min(a.text().size(), b.text().size()) / 4096)));
      return a.text() == b.text();
    case Kind::kSequence:
      if (a.identity() == b.identity()) return true;
      if (a.is_list() != b.is_list()) return false;
      return EqualItems(a.sequence().items, b.sequence().items, budget);
    case Kind::kDict: return a.identity() == b.identity() ? Result<bool>(true) : EqualDicts(a.dict(), b.dict(), budget);
    case Kind::kRange: return EqualRanges(a.range(), b.range());
    default: return a.identity() == b.identity();
  }
}

Result<bool> Ordered(Order order, const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) return Holds(order, CompareNumbers(a, b));
  if (a.is_string() && b.is_string()) {
    AVOCET_TRY_VOID(budget.Steps(static_cast<int64_t>(std::min(a.text().size(), b.text().size()) / 4096)));
    const int comparison = a.text().compare(b.text());  // UTF-8 sorts as its code points do
    return Holds(order, comparison < 0 ? -1 : comparison > 0 ? 1 : 0);
  }
  if (a.is_sequence() && b.is_sequence() && a.is_list() == b.is_list())
    return OrderedItems(order, a.sequence().items, b.sequence().items, budget);
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  return Fail(Errc::kInvalidArgument, "'{}' not supported between instances of '{}' and '{}'", Symbol(order), a.type_name(), b.type_name());
}

Result<bool> Less(const Value& a, const Value& b, Budget& budget) {
  return Ordered(Order::kLess, a, b, budget);
}

Result<bool> Contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString:
      if (!item.is_string()) return Fail(Errc::kInvalidArgument, "'in <string>' requires string as left operand, not {}", item.type_name());
      AVOCET_TRY_VOID(budget.Steps(static_cast<int64_t>(container.text().size() / limits::kTemplateStepBytes)));
      return FindText(container.text(), item.text()) != std::string_view::npos;
    case Kind::kSequence: return ContainsItem(container.sequence().items, item, budget);
    case Kind::kDict: {
      AVOCET_TRY(const Value* const found, container.dict().Find(item, budget));
      return found != nullptr;
    }
    case Kind::kView: return ViewContains(container.view(), item, budget);
    case Kind::kIterator: return IteratorContains(container.iterator(), item, budget);
    case Kind::kRange: return RangeContains(container.range(), item);
    default: return Fail(Errc::kInvalidArgument, "argument of type '{}' is not iterable", container.type_name());
  }
}

}  // namespace avocet::tokenizer::jinja
