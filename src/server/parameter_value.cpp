#include "server/parameter_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "server/json_input.h"

namespace avocet::server {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

struct SchemaType {
  std::string name;  // "" when the schema does not say
  bool nullable = false;
};

constexpr int kReferenceDepthMax = 8;

// The first type that is not null, through references and unions.
SchemaType TypeOf(const OrderedJson& schema, const OrderedJson& root, int depth = 0) {
  SchemaType type;
  if (!schema.is_object() || depth > kReferenceDepthMax) return type;
  if (const auto reference = schema.find("$ref"); reference != schema.end() && reference->is_string()) {
    const OrderedJson* target = FindReference(root, reference->get_ref<const std::string&>());
    return target == nullptr ? type : TypeOf(*target, root, depth + 1);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    if (!schema.contains(key) || !schema[key].is_array()) continue;
    for (const OrderedJson& branch : schema[key]) {
      const SchemaType one = TypeOf(branch, root, depth + 1);
      type.nullable = type.nullable || one.nullable || one.name == "null";
      if (type.name.empty() && one.name != "null") type.name = one.name;
    }
    return type;
  }
  type.nullable = schema.contains("nullable") && schema["nullable"] == true;
  if (!schema.contains("type")) return type;
  const OrderedJson& stated = schema["type"];
  if (stated.is_string()) type.name = Lower(stated.get<std::string>());
  if (stated.is_array()) {
    for (const OrderedJson& one : stated) {
      if (!one.is_string()) continue;
      if (one == "null") {
        type.nullable = true;
      } else if (type.name.empty()) {
        type.name = Lower(one.get<std::string>());
      }
    }
  }
  return type;
}

std::optional<OrderedJson> ParseInteger(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<OrderedJson> ParseNumber(std::string_view text) {
  if (auto integer = ParseInteger(text)) return integer;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

// JSON text of a Python literal: single quotes, True, False, None, tuples.
std::string JsonOfPythonLiteral(std::string_view text) {
  std::string json;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'' || c == '"') {
      std::string content;
      size_t j = i + 1;
      for (; j < text.size() && text[j] != c; ++j) {
        if (text[j] == '\\' && j + 1 < text.size()) {
          ++j;
          switch (text[j]) {
            case 'n': content += '\n'; break;
            case 't': content += '\t'; break;
            case 'r': content += '\r'; break;
            default: content += text[j];
          }
        } else {
          content += text[j];
        }
      }
      json += OrderedJson(content).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
      i = j;
    } else if (text.substr(i).starts_with("True")) {
      json += "true";
      i += 3;
    } else if (text.substr(i).starts_with("False")) {
      json += "false";
      i += 4;
    } else if (text.substr(i).starts_with("None")) {
      json += "null";
      i += 3;
    } else {
      json += c == '(' ? '[' : c == ')' ? ']' : c;
    }
  }
  return json;
}

std::optional<OrderedJson> ParseStructure(std::string_view text) {
  for (const std::string& json : {std::string(text), JsonOfPythonLiteral(text)}) {
    if (Result<OrderedJson> value = ParseJson(json, "the value")) return *std::move(value);
  }
  return std::nullopt;
}

std::optional<OrderedJson> Convert(std::string_view text, const std::string& type) {
  if (type == "integer" || type == "int") return ParseInteger(text);
  if (type == "number" || type == "float") return ParseNumber(text);
  if (type == "boolean" || type == "bool") {
    const std::string lower = Lower(text);
    if (lower == "true" || lower == "false") return OrderedJson(lower == "true");
    return std::nullopt;
  }
  if (type == "object" || type == "array" || type == "dict" || type == "list") return ParseStructure(text);
  return std::nullopt;
}

}  // namespace

const nlohmann::ordered_json* FindReference(const nlohmann::ordered_json& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  const OrderedJson* at = &root;
  for (reference.remove_prefix(1); !reference.empty();) {
    if (reference.front() != '/') return nullptr;
    const size_t end = std::min(reference.find('/', 1), reference.size());
    std::string key(reference.substr(1, end - 1));
    reference.remove_prefix(end);
    for (const auto& [escaped, plain] : {std::pair("~1", "/"), std::pair("~0", "~")}) {
      for (size_t i = key.find(escaped); i != std::string::npos; i = key.find(escaped, i + 1)) key.replace(i, 2, plain);
    }
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
  }
  return at;
}

nlohmann::ordered_json ConvertParameter(std::string_view raw, const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root) {
  const SchemaType type = TypeOf(schema, root);
  const bool is_text = type.name.empty() || type.name == "string" || type.name == "str" || type.name == "text" || type.name == "enum";
  const std::string lower = Lower(Trim(raw));
  if ((lower == "null" || lower == "none") && (type.nullable || !is_text)) return nullptr;
  if (!is_text) {
    if (auto value = Convert(Trim(raw), type.name)) return *std::move(value);
  }
  // Nobody says what it is: only what can be nothing else is converted.
  if (const std::string_view text = Trim(raw); type.name.empty() && (text.starts_with('{') || text.starts_with('['))) {
    if (Result<OrderedJson> value = ParseJson(text, "the value")) return *std::move(value);
  }
  return std::string(raw);
}

}  // namespace avocet::server
