// Filters of sequences as a whole: order, groups, extremes.
#include <algorithm>
#include <array>

#include "tokenizer/jinja/attribute_path.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/sort.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

Case CaseOf(const Bound& bound, size_t argument) {
  return bound.Truth(argument, false) ? Case::kSensitive : Case::kIgnored;
}

struct Keyed {
  Value key;
  Value item;
};

enum class Direction : uint8_t { kUp, kDown };
Result<void> SortByKey(std::vector<Keyed>& items, Direction direction, Budget& budget) {
  return StableSort(items, [&](const Keyed& a, const Keyed& b) -> Result<bool> {
    AVOCET_TRY_VOID(budget.Steps(1));
    return direction == Direction::kUp ? Less(a.key, b.key, budget) : Less(b.key, a.key, budget);
  });
}

std::vector<Value> ItemsOf(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& one : keyed) items.push_back(std::move(one.item));
  return items;
}

// sort(reverse=False, case_sensitive=False, attribute=None). Keys are lists: equal ones need not have an order.
Result<Value> Sort(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  const std::vector<AttributePath> paths = AttributePaths(bound[2]);
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      AVOCET_TRY(Value key, path.Get(evaluator, item, CaseOf(bound, 1)));
      keys.push_back(std::move(key));
    }
    AVOCET_TRY(Value key, MakeList(std::move(keys), evaluator.budget()));
    keyed.push_back({std::move(key), item});
  }
  AVOCET_TRY_VOID(SortByKey(keyed, bound.Truth(0, false) ? Direction::kDown : Direction::kUp, evaluator.budget()));
  return MakeList(ItemsOf(std::move(keyed)), evaluator.budget());
}

// dictsort(case_sensitive=False, by='key', reverse=False)
Result<Value> DictSort(Evaluator& evaluator, const Value& self, const Bound& bound) {
  const bool is_key = !bound.Has(1) || (bound[1]->is_string() && bound[1]->text() == "key");
  if (!is_key && !(bound[1]->is_string() && bound[1]->text() == "value")) {
    return Fail(Errc::kInvalidArgument, "a dict can only be sorted by either \"key\" or \"value\"");
  }
  if (self.is_undefined()) return UndefinedError(self);
  if (!self.is_dict()) return Fail(Errc::kInvalidArgument, "dictsort needs a mapping, not {}", self.type_name());
  AVOCET_TRY(std::vector<Value> entries, Iterate(Value::View(ViewKind::kItems, self.dict_ref()), evaluator.budget()));
  std::vector<Keyed> keyed;
  for (Value& entry : entries) {
    AVOCET_TRY(Value key, AttributePath().Get(evaluator, entry.sequence().items[is_key ? 0 : 1], CaseOf(bound, 0)));
    keyed.push_back({std::move(key), std::move(entry)});
  }
  AVOCET_TRY_VOID(SortByKey(keyed, bound.Truth(2, false) ? Direction::kDown : Direction::kUp, evaluator.budget()));
  return MakeList(ItemsOf(std::move(keyed)), evaluator.budget());
}

// groupby(attribute, default=None, case_sensitive=False)
Result<Value> GroupBy(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  AttributePath path = AttributePath::Of(bound[0]);
  if (!bound.IsNone(1)) path.set_default(*bound[1]);
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    AVOCET_TRY(Value key, path.Get(evaluator, item, CaseOf(bound, 2)));
    keyed.push_back({std::move(key), item});
  }
  AVOCET_TRY_VOID(SortByKey(keyed, Direction::kUp, evaluator.budget()));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < keyed.size(); ++end) {
      AVOCET_TRY(const bool is_equal, Equal(keyed[begin].key, keyed[end].key, evaluator.budget()));
      if (!is_equal) break;
      members.push_back(keyed[end].item);
    }
    AVOCET_TRY(Value grouper, path.Get(evaluator, members[0]));  // as the first member writes it
    AVOCET_TRY(Value list, MakeList(std::move(members), evaluator.budget()));
    AVOCET_TRY(Value group, MakeSequence(SequenceKind::kGroup, {std::move(grouper), std::move(list)}, evaluator.budget()));
    groups.push_back(std::move(group));
    begin = end;
  }
  return MakeList(std::move(groups), evaluator.budget());
}

// unique(case_sensitive=False, attribute=None)
Result<Value> Unique(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  const AttributePath path = AttributePath::Of(bound[1]);
  DictBuilder seen;
  std::vector<Value> kept;
  for (const Value& item : items) {
    AVOCET_TRY(Value key, path.Get(evaluator, item, CaseOf(bound, 0)));
    AVOCET_TRY(const bool is_known, seen.Has(key, evaluator.budget()));
    if (is_known) continue;
    AVOCET_TRY_VOID(seen.Set(std::move(key), Value(), evaluator.budget()));
    kept.push_back(item);
  }
  return MakeIterator(std::move(kept), evaluator.budget());
}

// min and max: (case_sensitive=False, attribute=None)
template <Order kOrder>
Result<Value> Extreme(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  if (items.empty()) return Value::UndefinedHint("No aggregated item, sequence was empty.");
  const AttributePath path = AttributePath::Of(bound[1]);
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    AVOCET_TRY(Value key, path.Get(evaluator, items[i], CaseOf(bound, 0)));
    if (i > 0) {
      AVOCET_TRY(const bool is_better, Ordered(kOrder, key, best_key, evaluator.budget()));
      if (!is_better) continue;
    }
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

// sum(attribute=None, start=0)
Result<Value> Sum(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  const AttributePath path = AttributePath::Of(bound[0]);
  Value total = bound.Has(1) ? *bound[1] : Value::Int(0);
  if (total.is_string()) return Fail(Errc::kInvalidArgument, "sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items) {
    AVOCET_TRY(const Value value, path.Get(evaluator, item));
    AVOCET_TRY(total, evaluator.Arithmetic(BinaryOp::kAdd, total, value));
  }
  return total;
}

// join(d='', attribute=None)
Result<Value> Join(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  const AttributePath path = AttributePath::Of(bound[1]);
  std::string separator;
  if (bound.Has(0)) {
    AVOCET_TRY(separator, Str(*bound[0], evaluator.budget()));
  }
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    AVOCET_TRY(const Value value, path.Get(evaluator, items[i]));
    if (i > 0) {
      AVOCET_TRY_VOID(evaluator.budget().Text(separator.size()));
      AVOCET_TRY_VOID(evaluator.budget().Fits(out.size() + separator.size()));
      out += separator;
    }
    AVOCET_TRY_VOID(AppendStr(value, evaluator.budget(), out));
  }
  return Value::String(std::move(out));
}

Result<Value> LengthFilter(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY(const int64_t length, evaluator.LengthOf(self));
  return Value::Int(length);
}

Result<Value> First(Evaluator& evaluator, const Value& self, const Bound&) {
  const Value none = Value::UndefinedHint("No first item, sequence was empty.");
  if (self.kind() == Kind::kIterator) {
    IteratorData& iterator = self.iterator();
    return iterator.next < iterator.items.size() ? iterator.items[iterator.next++] : none;
  }
  if (self.is_sequence()) return self.sequence().items.empty() ? none : self.sequence().items.front();
  if (self.is_string()) return self.text().empty() ? Result<Value>(none) : evaluator.GetItem(self, Value::Int(0));
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  return items.empty() ? none : items.front();
}

Result<Value> Last(Evaluator& evaluator, const Value& self, const Bound&) {
  const Value none = Value::UndefinedHint("No last item, sequence was empty.");
  if (self.kind() == Kind::kIterator) return Fail(Errc::kInvalidArgument, "'generator' object is not reversible");
  if (self.is_sequence()) return self.sequence().items.empty() ? none : self.sequence().items.back();
  if (self.is_string()) return self.text().empty() ? Result<Value>(none) : evaluator.GetItem(self, Value::Int(-1));
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  return items.empty() ? none : items.back();
}

Result<Value> List(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY(std::vector<Value> items, Iterate(self, evaluator.budget()));
  return MakeList(std::move(items), evaluator.budget());
}

Result<Value> Reverse(Evaluator& evaluator, const Value& self, const Bound&) {
  if (self.is_string()) {
    AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
    std::string out;
    for (std::string_view rest = self.text(); !rest.empty();) {
      const CodePoint last = LastCodePoint(rest);
      AppendUtf8(last.value, out);
      rest.remove_suffix(static_cast<size_t>(last.num_bytes));
    }
    return self.string().is_markup ? Value::Markup(std::move(out)) : Value::String(std::move(out));
  }
  AVOCET_TRY(std::vector<Value> items, Iterate(self, evaluator.budget()));
  std::ranges::reverse(items);
  if (self.kind() == Kind::kIterator) return MakeList(std::move(items), evaluator.budget());
  return MakeIterator(std::move(items), evaluator.budget());
}

Result<Value> Items(Evaluator& evaluator, const Value& self, const Bound&) {
  if (self.is_undefined()) return MakeIterator({}, evaluator.budget());
  if (!self.is_dict()) return Fail(Errc::kInvalidArgument, "can only get item pairs from a mapping, not {}", self.type_name());
  AVOCET_TRY(std::vector<Value> items, Iterate(Value::View(ViewKind::kItems, self.dict_ref()), evaluator.budget()));
  return MakeIterator(std::move(items), evaluator.budget());
}

// batch(linecount, fill_with=None)
Result<Value> Batch(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  AVOCET_TRY(const int64_t line_count, bound.Int(0, 0));
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == line_count) {
      AVOCET_TRY(Value full, MakeList(std::exchange(batch, {}), evaluator.budget()));
      batches.push_back(std::move(full));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    const int64_t num_missing = bound.IsNone(1) ? 0 : std::max<int64_t>(line_count - static_cast<int64_t>(batch.size()), 0);
    AVOCET_TRY_VOID(evaluator.budget().Items(static_cast<size_t>(num_missing)));
    if (num_missing > 0) batch.resize(static_cast<size_t>(line_count), *bound[1]);
    AVOCET_TRY(Value last, MakeList(std::move(batch), evaluator.budget()));
    batches.push_back(std::move(last));
  }
  return MakeIterator(std::move(batches), evaluator.budget());
}

// slice(slices, fill_with=None): that many lists of almost equal length
Result<Value> Slice(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  AVOCET_TRY(const int64_t num_slices, bound.Int(0, 0));
  if (num_slices == 0) return Fail(Errc::kInvalidArgument, "division by zero");
  AVOCET_TRY_VOID(evaluator.budget().Items(4 * static_cast<size_t>(std::max<int64_t>(num_slices, 0))));
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> slices;
  int64_t begin = 0;
  for (int64_t i = 0; i < num_slices; ++i) {
    const bool has_extra = i < size % num_slices;
    const int64_t end = begin + size / num_slices + (has_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (!bound.IsNone(1) && !has_extra) part.push_back(*bound[1]);
    AVOCET_TRY(Value list, MakeList(std::move(part), evaluator.budget()));
    slices.push_back(std::move(list));
    begin = end;
  }
  return MakeIterator(std::move(slices), evaluator.budget());
}

constexpr std::array<NativeFunction, 17> kFilters = {{
    {"batch", {"linecount", "fill_with"}, 1, Batch},
    {"count", {}, 0, LengthFilter},
    {"dictsort", {"case_sensitive", "by", "reverse"}, 0, DictSort},
    {"first", {}, 0, First},
    {"groupby", {"attribute", "default", "case_sensitive"}, 1, GroupBy},
    {"items", {}, 0, Items},
    {"join", {"d", "attribute"}, 0, Join},
    {"last", {}, 0, Last},
    {"length", {}, 0, LengthFilter},
    {"list", {}, 0, List},
    {"max", {"case_sensitive", "attribute"}, 0, Extreme<Order::kGreater>},
    {"min", {"case_sensitive", "attribute"}, 0, Extreme<Order::kLess>},
    {"reverse", {}, 0, Reverse},
    {"slice", {"slices", "fill_with"}, 1, Slice},
    {"sort", {"reverse", "case_sensitive", "attribute"}, 0, Sort},
    {"sum", {"attribute", "start"}, 0, Sum},
    {"unique", {"case_sensitive", "attribute"}, 0, Unique},
}};
static_assert(std::ranges::is_sorted(kFilters, {}, &NativeFunction::name));

}  // namespace

std::span<const NativeFunction> SequenceFilters() {
  return kFilters;
}

}  // namespace avocet::tokenizer::jinja
