// Values of the template language, with Python's notions of truth, equality, order and text. Immutable (but for namespaces, iterators
// and loops, which belong to one rendering) and shared: copying a value copies a pointer. What can grow with the size of a value takes
// the Budget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/jinja/budget.h"
#include "tokenizer/jinja/number.h"

namespace avocet::tokenizer::jinja {

class Value;
class Evaluator;
class FunctionData;
struct LoopData;  // jinja_eval.h

// In the order of Value's variant.
enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,
  kFloat,
  kString,
  kSequence,
  kDict,
  kRange,
  kIterator,
  kView,
  kNamespace,
  kLoop,
  kFunction
};

// Why a value is undefined, for the message when it is used.
struct UndefinedData {
  enum class Reason : uint8_t { kName, kAttribute, kElement, kHint };
  Reason reason = Reason::kName;
  std::string name;             // of the variable, the attribute, the element (as repr), or the whole message
  std::string_view owner_type;  // of the value that lacks it
  std::string Message() const;
};

struct StringData {
  std::string text;
  int64_t num_code_points = 0;
  bool is_markup = false;  // escape and safe mark their results: they are not escaped again
  bool is_ascii() const { return num_code_points == static_cast<int64_t>(text.size()); }
};

enum class SequenceKind : uint8_t { kList, kTuple, kGroup };  // kGroup: a tuple of groupby, whose items have names

struct SequenceData {
  SequenceKind kind = SequenceKind::kList;
  int32_t depth = 1;  // of nested containers, itself included
  std::vector<Value> items;
};

// In insertion order. Beyond a few keys an index finds them.
struct DictData {
  using Entry = std::pair<Value, Value>;
  int32_t depth = 1;
  std::vector<Entry> items;
  std::vector<uint32_t> slots;  // open addressing, a power of two; index + 1 into items, 0: free

  static constexpr size_t kNoItem = SIZE_MAX;
  size_t IndexOf(std::string_view key) const;
  Result<size_t> IndexOf(const Value& key, Budget& budget) const;  // fails for keys that Python cannot hash
  // nullptr: not there.
  const Value* Find(std::string_view key) const;
  Result<const Value*> Find(const Value& key, Budget& budget) const;
};

struct RangeData {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t size() const;
  int64_t at(int64_t index) const { return start + index * step; }
};

// A generator's values: each can be taken once.
struct IteratorData {
  int32_t depth = 1;
  std::vector<Value> items;
  size_t next = 0;
};

// keys(), values() and items() of a dict.
enum class ViewKind : uint8_t { kKeys, kValues, kItems };
struct ViewData {
  ViewKind kind = ViewKind::kKeys;
  std::shared_ptr<const DictData> dict;
};

struct NamespaceData {
  std::vector<std::pair<std::string, Value>> items;
};

class Value {
 public:
  using UndefinedRef = std::shared_ptr<const UndefinedData>;
  struct None {};
  using BigIntRef = std::shared_ptr<const Integer>;
  using StringRef = std::shared_ptr<const StringData>;
  using SequenceRef = std::shared_ptr<const SequenceData>;
  using DictRef = std::shared_ptr<const DictData>;
  using RangeRef = std::shared_ptr<const RangeData>;
  using IteratorRef = std::shared_ptr<IteratorData>;
  using ViewRef = std::shared_ptr<const ViewData>;
  using NamespaceRef = std::shared_ptr<NamespaceData>;
  using LoopRef = std::shared_ptr<LoopData>;
  using FunctionRef = std::shared_ptr<FunctionData>;

  Value() : data_(None{}) {}
  static Value Undefined(UndefinedData data) { return Value(Data(std::make_shared<const UndefinedData>(std::move(data)))); }
  static Value UndefinedName(std::string_view name) { return Undefined({UndefinedData::Reason::kName, std::string(name), {}}); }
  static Value UndefinedHint(std::string_view message) { return Undefined({UndefinedData::Reason::kHint, std::string(message), {}}); }
  static Value Bool(bool value) { return Value(Data(value)); }
  static Value Int(Integer value);
  static Value Float(double value) { return Value(Data(value)); }
  static Value String(std::string text);  // valid UTF-8
  static Value Markup(std::string text);
  // The caller has asked the Budget for items and nesting (MakeList and the like do).
  static Value Sequence(SequenceKind kind, std::vector<Value> items);
  static Value Iterator(std::vector<Value> items);
  static Value Dict(DictRef dict) { return Value(Data(std::move(dict))); }
  static Value Range(RangeData range) { return Value(Data(std::make_shared<const RangeData>(range))); }
  static Value View(ViewKind kind, DictRef dict) { return Value(Data(std::make_shared<const ViewData>(ViewData{kind, std::move(dict)}))); }
  static Value Namespace(NamespaceRef data) { return Value(Data(std::move(data))); }
  static Value Loop(LoopRef data) { return Value(Data(std::move(data))); }
  static Value Function(FunctionRef data) { return Value(Data(std::move(data))); }
  // Refuses what is nested deeper than kTemplateDepthMax; broken UTF-8 is replaced.
  static Result<Value> FromJson(const nlohmann::ordered_json& json, int32_t depth = 0);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_integer() const { return kind() == Kind::kBool || kind() == Kind::kInt || kind() == Kind::kBigInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_number() const { return is_integer() || is_float(); }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_sequence() const { return kind() == Kind::kSequence; }
  bool is_list() const { return is_sequence() && sequence().kind == SequenceKind::kList; }
  bool is_tuple() const { return is_sequence() && sequence().kind != SequenceKind::kList; }
  bool is_dict() const { return kind() == Kind::kDict; }

  const UndefinedData& undefined() const { return *Get<UndefinedRef>(); }
  bool boolean() const { return Get<bool>(); }
  Integer integer() const;
  double real() const;  // of any number
  const StringData& string() const { return *Get<StringRef>(); }
  std::string_view text() const { return string().text; }
  const SequenceData& sequence() const { return *Get<SequenceRef>(); }
  const DictData& dict() const { return *Get<DictRef>(); }
  const DictRef& dict_ref() const { return Get<DictRef>(); }
  const RangeData& range() const { return *Get<RangeRef>(); }
  IteratorData& iterator() const { return *Get<IteratorRef>(); }
  const ViewData& view() const { return *Get<ViewRef>(); }
  NamespaceData& name_space() const { return *Get<NamespaceRef>(); }
  LoopData& loop() const { return *Get<LoopRef>(); }
  const LoopRef& loop_ref() const { return Get<LoopRef>(); }
  FunctionData& function() const { return *Get<FunctionRef>(); }

  bool IsTrue() const;
  int32_t depth() const;               // of nested containers; 0 for what contains nothing
  std::string_view type_name() const;  // Python's
  const void* identity() const;        // of shared data; nullptr for scalars

 private:
  using Data = std::variant<UndefinedRef, None, bool, int64_t, BigIntRef, double, StringRef, SequenceRef, DictRef, RangeRef, IteratorRef,
                            ViewRef, NamespaceRef, LoopRef, FunctionRef>;
  explicit Value(Data data) : data_(std::move(data)) {}
  template <typename T>
  const T& Get() const {
    return *std::get_if<T>(&data_);
  }
  Data data_;
};

Result<Value> MakeSequence(SequenceKind kind, std::vector<Value> items, Budget& budget);
inline Result<Value> MakeList(std::vector<Value> items, Budget& budget) {
  return MakeSequence(SequenceKind::kList, std::move(items), budget);
}
inline Result<Value> MakeTuple(std::vector<Value> items, Budget& budget) {
  return MakeSequence(SequenceKind::kTuple, std::move(items), budget);
}
Result<Value> MakeIterator(std::vector<Value> items, Budget& budget);
Result<Value> MakeString(std::string text, Budget& budget);

// Collects a dict. Set replaces the value of an equal key, as Python does.
class DictBuilder {
 public:
  Result<void> Set(Value key, Value value, Budget& budget);
  void AppendNew(std::string_view key, Value value);  // the key is not yet there
  Result<bool> Has(const Value& key, Budget& budget) const;
  bool empty() const { return dict_.items.empty(); }
  Value Build();

 private:
  void Index(size_t item, uint64_t hash);
  DictData dict_;
};

// The values a loop over it goes through, in order; an iterator is used up. Fails for what cannot be iterated over.
Result<std::vector<Value>> Iterate(const Value& value, Budget& budget);
Result<int64_t> Length(const Value& value);

Result<bool> Equal(const Value& a, const Value& b, Budget& budget);
bool IsSame(const Value& a, const Value& b);  // Python's `is`
Result<bool> Less(const Value& a, const Value& b, Budget& budget);
enum class Order : uint8_t { kLess, kLessOrEqual, kGreater, kGreaterOrEqual };
Result<bool> Ordered(Order order, const Value& a, const Value& b, Budget& budget);
Result<bool> Contains(const Value& container, const Value& item, Budget& budget);
Result<uint64_t> Hash(const Value& value, Budget& budget);

// str(value) and repr(value), appended.
Result<void> AppendStr(const Value& value, Budget& budget, std::string& out);
Result<void> AppendRepr(const Value& value, Budget& budget, std::string& out);
Result<std::string> Str(const Value& value, Budget& budget);
Result<std::string> Repr(const Value& value, Budget& budget);

std::unexpected<Error> UndefinedError(const Value& undefined);

}  // namespace avocet::tokenizer::jinja
