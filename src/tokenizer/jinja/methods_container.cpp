// Methods of lists, tuples, dicts, ranges and numbers.
#include <algorithm>
#include <array>
#include <cmath>

#include "tokenizer/jinja/eval.h"

namespace avocet::tokenizer::jinja {
namespace {

Result<Value> CountItems(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  int64_t count = 0;
  for (const Value& item : items) {
    AVOCET_TRY(const bool is_equal, Equal(item, *bound[0], evaluator.budget()));
    count += is_equal ? 1 : 0;
  }
  return Value::Int(count);
}

// index(value, start=0, stop)
Result<Value> IndexOfItem(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  const auto size = static_cast<int64_t>(items.size());
  AVOCET_TRY(int64_t start, bound.Int(1, 0));
  AVOCET_TRY(int64_t stop, bound.Int(2, size));
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (stop < 0) stop += size;
  for (int64_t i = start; i < std::min(stop, size); ++i) {
    AVOCET_TRY(const bool is_equal, Equal(items[static_cast<size_t>(i)], *bound[0], evaluator.budget()));
    if (is_equal) return Value::Int(i);
  }
  return Fail(Errc::kInvalidArgument, "the value is not in the {}", self.type_name());
}

// Values do not change, so a copy is the same; but it must not be `sameas` the original.
Result<Value> CopyList(Evaluator& evaluator, const Value& self, const Bound&) {
  return MakeList(self.sequence().items, evaluator.budget());
}

Result<Value> CopyDict(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY_VOID(evaluator.budget().Items(2 * self.dict().items.size()));
  return Value::Dict(std::make_shared<const DictData>(self.dict()));
}

Result<Value> Get(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const Value* const found, self.dict().Find(*bound[0], evaluator.budget()));
  if (found != nullptr) return *found;
  return bound.Has(1) ? *bound[1] : Value();
}

// fromkeys(iterable, value=None): a new dict, whichever dict it is asked of
Result<Value> FromKeys(Evaluator& evaluator, const Value&, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> keys, Iterate(*bound[0], evaluator.budget()));
  DictBuilder dict;
  for (const Value& key : keys) {
    AVOCET_TRY_VOID(dict.Set(key, bound.Has(1) ? *bound[1] : Value(), evaluator.budget()));
  }
  return dict.Build();
}

template <ViewKind kKind>
Result<Value> View(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY_VOID(evaluator.budget().Nesting(self.depth() + 1));
  return Value::View(kKind, self.dict_ref());
}

Result<Value> BitLength(Evaluator&, const Value& self, const Bound&) {
  int64_t num_bits = 0;
  for (Integer rest = self.integer(); rest != 0; rest /= 2) ++num_bits;
  return Value::Int(num_bits);
}

Result<Value> IsInteger(Evaluator&, const Value& self, const Bound&) {
  return Value::Bool(std::isfinite(self.real()) && self.real() == std::floor(self.real()));
}

Result<Value> Conjugate(Evaluator&, const Value& self, const Bound&) {
  return self.is_bool() ? Value::Int(self.integer()) : self;
}

constexpr std::array<NativeFunction, 3> kOfLists = {{
    {"copy", {}, 0, CopyList},
    {"count", {"/value"}, 1, CountItems},
    {"index", {"/value", "/start", "/stop"}, 1, IndexOfItem},
}};
constexpr std::array<NativeFunction, 2> kOfTuples = {{
    {"count", {"/value"}, 1, CountItems},
    {"index", {"/value", "/start", "/stop"}, 1, IndexOfItem},
}};
constexpr std::array<NativeFunction, 6> kOfDicts = {{
    {"copy", {}, 0, CopyDict},
    {"fromkeys", {"/iterable", "/value"}, 1, FromKeys},
    {"get", {"/key", "/default"}, 1, Get},
    {"items", {}, 0, View<ViewKind::kItems>},
    {"keys", {}, 0, View<ViewKind::kKeys>},
    {"values", {}, 0, View<ViewKind::kValues>},
}};
constexpr std::array<NativeFunction, 2> kOfIntegers = {{{"bit_length", {}, 0, BitLength}, {"conjugate", {}, 0, Conjugate}}};
constexpr std::array<NativeFunction, 2> kOfFloats = {{{"conjugate", {}, 0, Conjugate}, {"is_integer", {}, 0, IsInteger}}};

}  // namespace

std::span<const NativeFunction> ContainerMethods(const Value& owner) {
  switch (owner.kind()) {
    case Kind::kSequence: return owner.is_list() ? std::span<const NativeFunction>(kOfLists) : kOfTuples;
    case Kind::kRange: return kOfTuples;
    case Kind::kDict: return kOfDicts;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt: return kOfIntegers;
    case Kind::kFloat: return kOfFloats;
    default: return {};
  }
}

}  // namespace avocet::tokenizer::jinja
