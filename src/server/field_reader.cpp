#include "server/field_reader.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace avocet::server {

namespace {

constexpr size_t kProblemsShownMax = 10;     // serving.md 2.5
constexpr double kIntegerFloatMax = 0x1p53;  // beyond it a double skips integers

}  // namespace

void Problems::Add(ProblemKind kind, std::string path, std::string message) {
  ++num_;
  if (problems_.size() < kProblemsShownMax) problems_.push_back({kind, std::move(path), std::move(message)});
}

ApiError Problems::ToError() const {
  DCHECK(!problems_.empty(), "no problem to report");
  ApiError error{400, std::string(kRequestErrorType), {}, problems_.front().path};
  for (const Problem& problem : problems_) {
    if (problem.kind == ProblemKind::kSchema) error.type = kSchemaErrorType;
    if (!error.message.empty()) error.message += "; ";
    error.message += problem.path.empty() ? problem.message : problem.path + ": " + problem.message;
  }
  if (num_ > problems_.size()) error.message += fmt::format("; and {} more", num_ - problems_.size());
  return error;
}

std::optional<int64_t> IntegerOf(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) <= kIntegerFloatMax) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

std::optional<std::vector<int32_t>> TokenIdsOf(const Json& list, const std::string& path, int32_t vocab_size, Problems& problems) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<int64_t> id = IntegerOf(list[i]);
    if (!id.has_value() && !list[i].is_number_integer()) {
      problems.Add(ProblemKind::kSchema, fmt::format("{}.{}", path, i), "expected a token id, got " + Preview(list[i]));
      return std::nullopt;
    }
    if (!id.has_value() || *id < 0 || *id >= vocab_size) {
      problems.Add(ProblemKind::kValue, fmt::format("{}.{}", path, i),
                   fmt::format("token id {} is out of the vocabulary of {}", Preview(list[i]), vocab_size));
      return std::nullopt;
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

FieldReader::FieldReader(const Json& object, std::string path, Problems& problems)
    : object_(object), path_(std::move(path)), problems_(problems) {}

const Json* FieldReader::Find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string FieldReader::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void FieldReader::Expected(std::string_view name, std::string_view what, const Json& got) {
  problems_.Add(ProblemKind::kSchema, PathOf(name), fmt::format("expected {}, got {}", what, Preview(got)));
}

void FieldReader::NotAllowed(std::string_view name, std::string message) {
  problems_.Add(ProblemKind::kValue, PathOf(name), std::move(message));
}

std::optional<int64_t> FieldReader::Int(std::string_view name, int64_t min, int64_t max) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = IntegerOf(*value);
  const bool is_integer = number.has_value() || value->is_number_integer() ||
                          (value->is_number_float() && std::trunc(value->get<double>()) == value->get<double>());
  if (!is_integer) {
    Expected(name, "an integer", *value);
    return std::nullopt;
  }
  if (!number.has_value() || *number < min || *number > max) {
    NotAllowed(name, fmt::format("{} is out of the range {} to {}", Preview(*value), min, max));
    return std::nullopt;
  }
  return number;
}

std::optional<double> FieldReader::Number(std::string_view name, NumberRange range) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    Expected(name, "a number", *value);
    return std::nullopt;
  }
  const double number = value->get<double>();
  // Values are used as f32: what is finite and above zero here must be so there.
  const bool is_above_min = range.min_is_allowed ? number >= range.min : static_cast<float>(number) > static_cast<float>(range.min);
  if (!(is_above_min && number <= range.max && std::abs(number) <= std::numeric_limits<float>::max())) {
    NotAllowed(name, fmt::format("{} is out of range: {} {}{}", Preview(*value), range.min_is_allowed ? "at least" : "above", range.min,
                                 std::isinf(range.max) ? std::string() : fmt::format(", at most {}", range.max)));
    return std::nullopt;
  }
  return number;
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    Expected(name, "true or false", *value);
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string> FieldReader::String(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Expected(name, "a string", *value);
    return std::nullopt;
  }
  return value->get<std::string>();
}

const Json* FieldReader::Object(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr || value->is_object()) return value;
  Expected(name, "an object", *value);
  return nullptr;
}

ApiResult<void> EachObject(FieldReader& body, std::string_view name, std::string_view what,
                           FunctionRef<ApiResult<void>(FieldReader& fields, const std::string& path)> read) {
  const Json* list = body.List(name);
  if (list == nullptr) return {};
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = fmt::format("{}.{}", body.PathOf(name), i);
    if (!(*list)[i].is_object()) return Refuse(400, path, "{}: expected {}, got {}", path, what, Preview((*list)[i]));
    FieldReader fields((*list)[i], path, body.problems());
    AVOCET_TRY_VOID(read(fields, path));
  }
  return {};
}

const Json* FieldReader::List(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr || value->is_array()) return value;
  Expected(name, "a list", *value);
  return nullptr;
}

std::optional<std::vector<std::string>> FieldReader::Strings(std::string_view name) {
  const Json* list = List(name);
  if (list == nullptr) return std::nullopt;
  std::vector<std::string> strings;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& item = (*list)[i];
    if (!item.is_string()) {
      Expected(fmt::format("{}.{}", name, i), "a string", item);
      return std::nullopt;
    }
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

std::optional<std::vector<int32_t>> FieldReader::TokenIds(std::string_view name, int32_t vocab_size) {
  const Json* list = List(name);
  if (list == nullptr) return std::nullopt;
  return TokenIdsOf(*list, PathOf(name), vocab_size, problems_);
}

}  // namespace avocet::server
