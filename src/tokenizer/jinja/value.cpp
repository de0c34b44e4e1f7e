#include "tokenizer/jinja/value.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

constexpr size_t kUnindexedKeysMax = 8;  // so many keys are found faster without an index

int32_t DepthOf(const std::vector<Value>& items) {
  int32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

uint64_t Mix(uint64_t hash) {
  hash ^= hash >> 32;
  hash *= 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

uint64_t HashText(std::string_view text) {
  return Mix(std::hash<std::string_view>{}(text));
}
uint64_t HashInteger(Integer value) {
  return Mix(static_cast<uint64_t>(value) ^ (static_cast<uint64_t>(value >> 64) * 31));
}

std::unexpected<Error> Unhashable(const Value& value) {
  return Fail(Errc::kInvalidArgument, "unhashable type: '{}'", value.type_name());
}

}  // namespace

std::string UndefinedData::Message() const {
  switch (reason) {
    case Reason::kName: return fmt::format("'{}' is undefined", name);
    case Reason::kAttribute: return fmt::format("'{} object' has no attribute '{}'", owner_type, name);
    case Reason::kElement: return fmt::format("{} object has no element {}", owner_type, name);
    case Reason::kHint: break;
  }
  return name;
}

std::unexpected<Error> UndefinedError(const Value& undefined) {
  return Fail(Errc::kInvalidArgument, "{}", undefined.undefined().Message());
}

size_t DictData::IndexOf(std::string_view key) const {
  const auto is_key = [key](const Entry& entry) { return entry.first.is_string() && entry.first.text() == key; };
  if (slots.empty()) {
    const auto found = std::ranges::find_if(items, is_key);
    return found == items.end() ? kNoItem : static_cast<size_t>(found - items.begin());
  }
  for (size_t at = HashText(key) & (slots.size() - 1); slots[at] != 0; at = (at + 1) & (slots.size() - 1)) {
    if (is_key(items[slots[at] - 1])) return slots[at] - 1;
  }
  return kNoItem;
}

Result<size_t> DictData::IndexOf(const Value& key, Budget& budget) const {
  if (key.is_string()) return IndexOf(key.text());
  AVOCET_TRY(const uint64_t hash, Hash(key, budget));
  if (slots.empty()) {
    for (size_t i = 0; i < items.size(); ++i) {
      AVOCET_TRY(const bool is_equal, Equal(items[i].first, key, budget));
      if (is_equal) return i;
    }
    return kNoItem;
  }
  for (size_t at = hash & (slots.size() - 1); slots[at] != 0; at = (at + 1) & (slots.size() - 1)) {
    AVOCET_TRY(const bool is_equal, Equal(items[slots[at] - 1].first, key, budget));
    if (is_equal) return slots[at] - 1;
  }
  return kNoItem;
}

const Value* DictData::Find(std::string_view key) const {
  const size_t index = IndexOf(key);
  return index == kNoItem ? nullptr : &items[index].second;
}

Result<const Value*> DictData::Find(const Value& key, Budget& budget) const {
  AVOCET_TRY(const size_t index, IndexOf(key, budget));
  return index == kNoItem ? nullptr : &items[index].second;
}

int64_t RangeData::size() const {
  // The bounds are within +-2^62 (globals check them), so the differences do not overflow.
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value Value::Int(Integer value) {
  if (value >= std::numeric_limits<int64_t>::min() && value <= std::numeric_limits<int64_t>::max())
    return Value(Data(static_cast<int64_t>(value)));
  return Value(Data(std::make_shared<const Integer>(value)));
}

Value Value::String(std::string text) {
  const int64_t num_code_points = CountCodePoints(text);
  return Value(Data(std::make_shared<const StringData>(StringData{std::move(text), num_code_points, false})));
}

Value Value::Markup(std::string text) {
  const int64_t num_code_points = CountCodePoints(text);
  return Value(Data(std::make_shared<const StringData>(StringData{std::move(text), num_code_points, true})));
}

Value Value::Sequence(SequenceKind kind, std::vector<Value> items) {
  const int32_t depth = DepthOf(items);
  return Value(Data(std::make_shared<const SequenceData>(SequenceData{kind, depth, std::move(items)})));
}

Value Value::Iterator(std::vector<Value> items) {
  const int32_t depth = DepthOf(items);
  return Value(Data(std::make_shared<IteratorData>(IteratorData{depth, std::move(items), 0})));
}

Result<Value> Value::FromJson(const nlohmann::ordered_json& json, int32_t depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth >= limits::kTemplateDepthMax) return Fail(Errc::kInvalidArgument, "values nested more than {} deep", limits::kTemplateDepthMax);
  switch (json.type()) {
    case Type::boolean: return Bool(*json.get_ptr<const bool*>());
    case Type::number_integer: return Int(*json.get_ptr<const int64_t*>());
    case Type::number_unsigned: return Int(*json.get_ptr<const uint64_t*>());
    case Type::number_float: return Float(*json.get_ptr<const double*>());
    case Type::string: {
      const std::string& text = *json.get_ptr<const std::string*>();
      return String(ValidPrefixBytes(text) == text.size() ? text : ReplaceInvalid(text));
    }
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) {
        AVOCET_TRY(Value value, FromJson(item, depth + 1));
        items.push_back(std::move(value));
      }
      return Sequence(SequenceKind::kList, std::move(items));
    }
    case Type::object: {
      DictBuilder dict;
      for (const auto& [key, item] : *json.get_ptr<const nlohmann::ordered_json::object_t*>()) {
        AVOCET_TRY(Value value, FromJson(item, depth + 1));
        dict.AppendNew(ValidPrefixBytes(key) == key.size() ? key : ReplaceInvalid(key), std::move(value));
      }
      return dict.Build();
    }
    case Type::null:
    case Type::binary:
    case Type::discarded: break;
  }
  return Value();
}

Integer Value::integer() const {
  if (kind() == Kind::kInt) return Get<int64_t>();
  return kind() == Kind::kBool ? Integer{boolean()} : *Get<BigIntRef>();
}

double Value::real() const {
  return is_float() ? Get<double>() : static_cast<double>(integer());
}

bool Value::IsTrue() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt: return integer() != 0;
    case Kind::kFloat: return real() != 0;
    case Kind::kString: return !text().empty();
    case Kind::kSequence: return !sequence().items.empty();
    case Kind::kDict: return !dict().items.empty();
    case Kind::kRange: return range().size() > 0;
    case Kind::kView: return !view().dict->items.empty();
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kFunction: break;
  }
  return true;
}

int32_t Value::depth() const {
  switch (kind()) {
    case Kind::kSequence: return sequence().depth;
    case Kind::kDict: return dict().depth;
    case Kind::kView: return view().dict->depth + 1;
    case Kind::kIterator: return iterator().depth;
    case Kind::kLoop: return loop().nesting;
    case Kind::kFunction: return function().depth();
    default: return 0;
  }
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt:
    case Kind::kBigInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return string().is_markup ? "Markup" : "str";
    case Kind::kSequence: return is_list() ? "list" : "tuple";
    case Kind::kDict: return "dict";
    case Kind::kRange: return "range";
    case Kind::kIterator: return "generator";
    case Kind::kView: return view().kind == ViewKind::kKeys ? "dict_keys" : view().kind == ViewKind::kValues ? "dict_values" : "dict_items";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kFunction: break;
  }
  return "function";
}

const void* Value::identity() const {
  return std::visit(
      [](const auto& data) -> const void* {
        if constexpr (requires { data.get(); }) {
          return data.get();
        } else {
          return nullptr;
        }
      },
      data_);
}

Result<Value> MakeSequence(SequenceKind kind, std::vector<Value> items, Budget& budget) {
  AVOCET_TRY_VOID(budget.Items(items.size()));
  Value value = Value::Sequence(kind, std::move(items));
  AVOCET_TRY_VOID(budget.Nesting(value.depth()));
  return value;
}

Result<Value> MakeIterator(std::vector<Value> items, Budget& budget) {
  AVOCET_TRY_VOID(budget.Items(items.size()));
  Value value = Value::Iterator(std::move(items));
  AVOCET_TRY_VOID(budget.Nesting(value.depth()));
  return value;
}

Result<Value> MakeString(std::string text, Budget& budget) {
  AVOCET_TRY_VOID(budget.Text(text.size()));
  return Value::String(std::move(text));
}

void DictBuilder::Index(size_t item, uint64_t hash) {
  size_t at = hash & (dict_.slots.size() - 1);
  while (dict_.slots[at] != 0) at = (at + 1) & (dict_.slots.size() - 1);
  dict_.slots[at] = static_cast<uint32_t>(item) + 1;
}

Result<bool> DictBuilder::Has(const Value& key, Budget& budget) const {
  AVOCET_TRY(const Value* const found, dict_.Find(key, budget));
  return found != nullptr;
}

Result<void> DictBuilder::Set(Value key, Value value, Budget& budget) {
  AVOCET_TRY_VOID(budget.Items(2));
  AVOCET_TRY_VOID(budget.Nesting(std::max(key.depth(), value.depth()) + 1));
  AVOCET_TRY(const size_t index, dict_.IndexOf(key, budget));
  if (index != DictData::kNoItem) {
    dict_.depth = std::max(dict_.depth, value.depth() + 1);
    dict_.items[index].second = std::move(value);
    return {};
  }
  AVOCET_TRY(const uint64_t hash, Hash(key, budget));
  dict_.depth = std::max({dict_.depth, key.depth() + 1, value.depth() + 1});
  dict_.items.emplace_back(std::move(key), std::move(value));
  const size_t num_items = dict_.items.size();
  if (num_items <= kUnindexedKeysMax) return {};
  if (2 * num_items <= dict_.slots.size()) {
    Index(num_items - 1, hash);
    return {};
  }
  dict_.slots.assign(std::bit_ceil(4 * num_items), 0);
  for (size_t i = 0; i < num_items; ++i) {
    AVOCET_TRY(const uint64_t old_hash, Hash(dict_.items[i].first, budget));
    Index(i, old_hash);
  }
  return {};
}

void DictBuilder::AppendNew(std::string_view key, Value value) {
  dict_.depth = std::max(dict_.depth, value.depth() + 1);
  dict_.items.emplace_back(Value::String(std::string(key)), std::move(value));
}

Value DictBuilder::Build() {
  if (dict_.slots.empty() && dict_.items.size() > kUnindexedKeysMax) {
    // All keys are strings: others come through Set, which keeps the index.
    dict_.slots.assign(std::bit_ceil(2 * dict_.items.size()), 0);
    for (size_t i = 0; i < dict_.items.size(); ++i) Index(i, HashText(dict_.items[i].first.text()));
  }
  return Value::Dict(std::make_shared<const DictData>(std::exchange(dict_, {})));
}

namespace {

void AppendCharacters(std::string_view text, std::vector<Value>& items) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    NextCodePoint(text, at);
    items.push_back(Value::String(std::string(text.substr(begin, at - begin))));
  }
}

Result<std::vector<Value>> IterateView(const ViewData& view, Budget& budget) {
  std::vector<Value> items;
  AVOCET_TRY_VOID(budget.Items(view.dict->items.size() * (view.kind == ViewKind::kItems ? 3 : 1)));
  items.reserve(view.dict->items.size());
  for (const auto& [key, value] : view.dict->items) {
    if (view.kind == ViewKind::kItems) {
      AVOCET_TRY_VOID(budget.Nesting(std::max(key.depth(), value.depth()) + 1));
      items.push_back(Value::Sequence(SequenceKind::kTuple, {key, value}));
    } else {
      items.push_back(view.kind == ViewKind::kKeys ? key : value);
    }
  }
  return items;
}

}  // namespace

Result<std::vector<Value>> Iterate(const Value& value, Budget& budget) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined: return items;
    case Kind::kString:
      AVOCET_TRY_VOID(budget.Items(2 * static_cast<size_t>(value.string().num_code_points)));
      items.reserve(static_cast<size_t>(value.string().num_code_points));
      AppendCharacters(value.text(), items);
      return items;
    case Kind::kSequence: AVOCET_TRY_VOID(budget.Items(value.sequence().items.size())); return value.sequence().items;
    case Kind::kDict: return IterateView({ViewKind::kKeys, value.dict_ref()}, budget);
    case Kind::kView: return IterateView(value.view(), budget);
    case Kind::kRange:
      AVOCET_TRY_VOID(budget.Items(static_cast<size_t>(value.range().size())));
      for (int64_t i = 0; i < value.range().size(); ++i) items.push_back(Value::Int(value.range().at(i)));
      return items;
    case Kind::kIterator: {
      IteratorData& iterator = value.iterator();
      AVOCET_TRY_VOID(budget.Items(iterator.items.size() - iterator.next));
      items.assign(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      return items;
    }
    default: return Fail(Errc::kInvalidArgument, "'{}' object is not iterable", value.type_name());
  }
}

Result<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return value.string().num_code_points;
    case Kind::kSequence: return static_cast<int64_t>(value.sequence().items.size());
    case Kind::kDict: return static_cast<int64_t>(value.dict().items.size());
    case Kind::kView: return static_cast<int64_t>(value.view().dict->items.size());
    case Kind::kRange: return value.range().size();
    default: return Fail(Errc::kInvalidArgument, "object of type '{}' has no len()", value.type_name());
  }
}

Result<uint64_t> Hash(const Value& value, Budget& budget) {
  switch (value.kind()) {
    case Kind::kUndefined: return Mix(1);
    case Kind::kNone: return Mix(2);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt: return HashInteger(value.integer());
    case Kind::kFloat: {
      // Equal numbers hash alike, whatever their types.
      const std::optional<Integer> whole = Truncate(value.real());
      if (whole && Compare(*whole, value.real()) == 0) return HashInteger(*whole);
      return Mix(std::hash<double>{}(value.real()));
    }
    case Kind::kString: return HashText(value.text());
    case Kind::kSequence: {
      if (value.is_list()) return Unhashable(value);
      AVOCET_TRY_VOID(budget.Steps(static_cast<int64_t>(value.sequence().items.size())));
      uint64_t hash = 3;
      for (const Value& item : value.sequence().items) {
        AVOCET_TRY(const uint64_t item_hash, Hash(item, budget));
        hash = Mix(hash * 31 + item_hash);
      }
      return hash;
    }
    case Kind::kRange: return Mix(static_cast<uint64_t>(value.range().size() * 31 + value.range().start));
    case Kind::kDict:
    case Kind::kView: return Unhashable(value);
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kFunction: break;
  }
  return Mix(std::hash<const void*>{}(value.identity()));
}

}  // namespace avocet::tokenizer::jinja
