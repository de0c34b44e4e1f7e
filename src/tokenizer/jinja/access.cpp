// Attributes and items of values, within the sandbox: Python's internals and whatever would change a list or dict are out of reach.
#include <algorithm>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

bool IsInternal(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

std::optional<Value> NumberAttribute(const Value& number, std::string_view name) {
  const auto integer = [&number] { return Value::Int(number.integer()); };
  if (number.is_integer()) {
    if (name == "real" || name == "numerator") return integer();
    if (name == "imag") return Value::Int(0);
    if (name == "denominator") return Value::Int(1);
  } else {
    if (name == "real") return number;
    if (name == "imag") return Value::Float(0);
  }
  return std::nullopt;
}

std::optional<Value> RangeAttribute(const RangeData& range, std::string_view name) {
  if (name == "start") return Value::Int(range.start);
  if (name == "stop") return Value::Int(range.stop);
  if (name == "step") return Value::Int(range.step);
  return std::nullopt;
}

std::optional<Value> GroupAttribute(const SequenceData& group, std::string_view name) {
  if (name == "grouper") return group.items[0];
  if (name == "list") return group.items[1];
  return std::nullopt;
}

std::optional<Value> NamespaceAttribute(const NamespaceData& data, std::string_view name) {
  const auto found = std::ranges::find(data.items, name, &std::pair<std::string, Value>::first);
  return found == data.items.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Value> PlainAttribute(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat: return NumberAttribute(object, name);
    case Kind::kRange: return RangeAttribute(object.range(), name);
    case Kind::kNamespace: return NamespaceAttribute(object.name_space(), name);
    case Kind::kFunction: return object.function().Attribute(name);
    case Kind::kSequence: return object.sequence().kind == SequenceKind::kGroup ? GroupAttribute(object.sequence(), name) : std::nullopt;
    default: return std::nullopt;
  }
}

// Python's indices: bools count, negative ones count from the end. Nothing: no such item.
std::optional<int64_t> IndexOf(const Value& key, int64_t size) {
  if (!key.is_integer()) return std::nullopt;
  const Integer index = key.integer() < 0 ? key.integer() + size : key.integer();
  if (index < 0 || index >= size) return std::nullopt;
  return static_cast<int64_t>(index);
}

std::string_view OwnerName(const Value& object) {
  return object.is_none() ? "None" : object.type_name();
}

}  // namespace

Value Evaluator::Unsafe(const Value& object, std::string_view name) const {
  return Value::UndefinedHint(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, object.type_name()));
}

Value Evaluator::Missing(const Value& object, std::string_view attribute) const {
  return Value::Undefined({UndefinedData::Reason::kAttribute, std::string(attribute), OwnerName(object)});
}

Result<Value> Evaluator::MissingElement(const Value& object, const Value& key) {
  if (key.is_string()) return Missing(object, key.text());
  const bool is_small = key.is_number() || key.is_none();
  AVOCET_TRY(std::string shown, is_small ? Repr(key, budget_) : Result<std::string>(std::string(key.type_name())));
  return Value::Undefined({UndefinedData::Reason::kElement, std::move(shown), OwnerName(object)});
}

Result<std::optional<Value>> Evaluator::FindAttribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) return UndefinedError(object);
  if (IsInternal(name)) return Unsafe(object, name);
  if (object.kind() == Kind::kLoop) return LoopAttribute(object, name);
  if (std::optional<Value> plain = PlainAttribute(object, name)) return plain;
  if (const NativeFunction* method = FindMethod(object, name)) {
    AVOCET_TRY(Value bound, BindMethod(*method, object, budget_));
    return bound;
  }
  if (IsMutator(object, name)) return Unsafe(object, name);
  return std::nullopt;
}

Result<Value> Evaluator::GetAttribute(const Value& object, std::string_view name) {
  AVOCET_TRY(const std::optional<Value> attribute, FindAttribute(object, name));
  if (attribute) return *attribute;
  if (object.is_dict()) {
    if (const Value* const item = object.dict().Find(name)) return *item;
  }
  return Missing(object, name);
}

Result<std::optional<Value>> Evaluator::FindItem(const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kUndefined: return UndefinedError(object);
    case Kind::kDict: {
      Result<const Value*> found = object.dict().Find(key, budget_);
      if (found) return *found == nullptr ? std::nullopt : std::optional(**found);
      // The reference takes a key that cannot be hashed for a missing one.
      if (budget_.is_exhausted()) return std::unexpected(std::move(found).error());
      return std::nullopt;
    }
    case Kind::kSequence: {
      const std::optional<int64_t> index = IndexOf(key, static_cast<int64_t>(object.sequence().items.size()));
      return index ? std::optional(object.sequence().items[static_cast<size_t>(*index)]) : std::nullopt;
    }
    case Kind::kRange: {
      const std::optional<int64_t> index = IndexOf(key, object.range().size());
      return index ? std::optional(Value::Int(object.range().at(*index))) : std::nullopt;
    }
    case Kind::kString: {
      const std::optional<int64_t> index = IndexOf(key, object.string().num_code_points);
      if (!index) return std::nullopt;
      const std::string_view text = object.text();
      if (!object.string().is_ascii()) {
        AVOCET_TRY_VOID(budget_.Steps(*index / static_cast<int64_t>(limits::kTemplateStepBytes)));
      }
      const size_t begin = object.string().is_ascii() ? static_cast<size_t>(*index) : ByteOffset(text, *index);
      size_t end = begin;
      NextCodePoint(text, end);
      return Value::String(std::string(text.substr(begin, end - begin)));
    }
    default: return std::nullopt;
  }
}

Result<Value> Evaluator::GetItem(const Value& object, const Value& key) {
  AVOCET_TRY(const std::optional<Value> item, FindItem(object, key));
  if (item) return *item;
  if (key.is_string()) {
    AVOCET_TRY(const std::optional<Value> attribute, FindAttribute(object, key.text()));
    if (attribute) return *attribute;
  }
  return MissingElement(object, key);
}

}  // namespace avocet::tokenizer::jinja
