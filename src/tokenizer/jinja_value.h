// Values of the template language, with Python's notions of truth, equality, order and text. Immutable and shared: copying a value
// copies a pointer. Strings are UTF-8 and count in code points.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

namespace avocet::tokenizer::jinja {

// Ends the rendering; caught in chat_template.cpp. is_raised: raise_exception was called, the text is the template author's.
struct TemplateError : std::runtime_error {
  explicit TemplateError(const std::string& text) : std::runtime_error(text) {}
  bool is_raised = false;
};

class Value;
class Evaluator;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Undefined {
  std::string name;
};
struct None {};
struct BigInt {  // an integer beyond 64 bits: it can be shown, not computed with
  std::string digits;
};
enum class SequenceKind { kList, kTuple };
struct SequenceData {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
};
struct MappingData {
  std::vector<std::pair<Value, Value>> items;  // in insertion order
  const Value* Find(const Value& key) const;
};
struct NamespaceData {
  std::vector<std::pair<std::string, Value>> items;
};
struct CallableData {
  std::string name;
  std::function<Value(Evaluator&, Arguments&)> call;
};
struct LoopData;  // the `loop` of a for statement, see jinja_eval.h

class Value {
 public:
  using String = std::shared_ptr<const std::string>;
  using Sequence = std::shared_ptr<const SequenceData>;
  using Mapping = std::shared_ptr<const MappingData>;
  using Namespace = std::shared_ptr<NamespaceData>;
  using Callable = std::shared_ptr<const CallableData>;
  using Loop = std::shared_ptr<LoopData>;

  Value() : data_(Undefined{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}  // NOLINT(google-explicit-constructor)
  static Value MakeNone() { return Value(Data(None{})); }
  static Value MakeBool(bool value) { return Value(Data(value)); }
  static Value MakeInt(int64_t value) { return Value(Data(value)); }
  static Value MakeFloat(double value) { return Value(Data(value)); }
  static Value MakeBig(std::string digits) { return Value(Data(BigInt{std::move(digits)})); }
  static Value MakeString(std::string text) { return Value(Data(std::make_shared<const std::string>(std::move(text)))); }
  static Value MakeList(std::vector<Value> items) {
    return Value(Data(std::make_shared<const SequenceData>(SequenceKind::kList, std::move(items))));
  }
  static Value MakeTuple(std::vector<Value> items) {
    return Value(Data(std::make_shared<const SequenceData>(SequenceKind::kTuple, std::move(items))));
  }
  static Value MakeMapping(std::vector<std::pair<Value, Value>> items);
  static Value MakeNamespace(std::vector<std::pair<std::string, Value>> items);
  static Value MakeCallable(std::string name, std::function<Value(Evaluator&, Arguments&)> call);
  static Value MakeLoop(Loop loop) { return Value(Data(std::move(loop))); }
  static Value FromJson(const nlohmann::ordered_json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_big() const { return std::holds_alternative<BigInt>(data_); }
  bool is_string() const { return std::holds_alternative<String>(data_); }
  bool is_sequence() const { return std::holds_alternative<Sequence>(data_); }
  bool is_mapping() const { return std::holds_alternative<Mapping>(data_); }
  bool is_namespace() const { return std::holds_alternative<Namespace>(data_); }
  bool is_callable() const { return std::holds_alternative<Callable>(data_); }
  bool is_loop() const { return std::holds_alternative<Loop>(data_); }
  bool is_number() const { return is_int() || is_float() || is_bool() || is_big(); }
  bool is_integral() const { return is_int() || is_bool(); }

  const Undefined& undefined() const { return std::get<Undefined>(data_); }
  const std::string& string() const { return *std::get<String>(data_); }
  const SequenceData& sequence() const { return *std::get<Sequence>(data_); }
  const MappingData& mapping() const { return *std::get<Mapping>(data_); }
  NamespaceData& ns() const { return *std::get<Namespace>(data_); }
  const CallableData& callable() const { return *std::get<Callable>(data_); }
  LoopData& loop() const { return *std::get<Loop>(data_); }
  const BigInt& big() const { return std::get<BigInt>(data_); }
  int64_t AsInt() const;    // of int or bool
  double AsDouble() const;  // of any number

  bool IsTrue() const;
  std::string_view TypeName() const;  // Python's: "str", "int", ...
  std::string Str() const;            // str(x)
  std::string Repr() const;           // repr(x)

 private:
  using Data = std::variant<Undefined, None, bool, int64_t, double, BigInt, String, Sequence, Mapping, Namespace, Callable, Loop>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

bool Equal(const Value& a, const Value& b);
// Python's a < b; throws for types without an order.
bool Less(const Value& a, const Value& b);
bool Contains(const Value& container, const Value& item);

// json.dumps with the options that tojson takes.
struct JsonStyle {
  int32_t indent = -1;  // none
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
void DumpJson(const Value& value, const JsonStyle& style, std::string& out);

std::string FloatRepr(double value);

// Sorts and keeps the order of equals. (std::stable_sort of g++ 12's library trips clang's deprecation warnings.)
template <typename T, typename LessFn>
void StableSort(std::vector<T>& items, const LessFn& less) {
  std::vector<std::pair<T, size_t>> numbered;
  numbered.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) numbered.emplace_back(std::move(items[i]), i);
  std::sort(numbered.begin(), numbered.end(), [&less](const auto& a, const auto& b) {
    if (less(a.first, b.first)) return true;
    return !less(b.first, a.first) && a.second < b.second;
  });
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(numbered[i].first);
}

// Code points.
int64_t CountCodePoints(std::string_view text);
std::u32string Decode(std::string_view text);
std::string Encode(std::u32string_view text);

}  // namespace avocet::tokenizer::jinja
