#include "tokenizer/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <unicode/uchar.h>

namespace avocet::tokenizer::jinja {
namespace {

constexpr int kDepthMax = 200;  // of nested containers when shown, compared or dumped

void CheckDepth(int depth) {
  if (depth > kDepthMax) throw TemplateError("a value is nested too deeply");
}

// repr of a string: single quotes unless it contains only single ones; controls and unprintable characters escaped.
std::string StringRepr(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (char32_t c : Decode(text)) {
    if (c == static_cast<char32_t>(quote) || c == U'\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == U'\n') {
      out += "\\n";
    } else if (c == U'\r') {
      out += "\\r";
    } else if (c == U'\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7f || (c < 0x100 && c >= 0x80 && u_isprint(static_cast<UChar32>(c)) == 0)) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c >= 0x80 && (u_isprint(static_cast<UChar32>(c)) == 0 || (u_isspace(static_cast<UChar32>(c)) != 0))) {
      out += c > 0xffff ? fmt::format("\\U{:08x}", static_cast<uint32_t>(c))
             : c > 0xff ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                        : fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else {
      out += Encode(std::u32string_view(&c, 1));
    }
  }
  return out + quote;
}

void AppendRepr(const Value& value, std::string& out, int depth);

void AppendItems(const std::vector<Value>& items, std::string& out, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    AppendRepr(items[i], out, depth);
  }
}

void AppendRepr(const Value& value, std::string& out, int depth) {
  CheckDepth(depth);
  if (value.is_string()) {
    out += StringRepr(value.string());
  } else if (value.is_sequence()) {
    const bool is_tuple = value.sequence().kind == SequenceKind::kTuple;
    out += is_tuple ? '(' : '[';
    AppendItems(value.sequence().items, out, depth + 1);
    if (is_tuple && value.sequence().items.size() == 1) out += ',';
    out += is_tuple ? ')' : ']';
  } else if (value.is_mapping()) {
    out += '{';
    bool is_first = true;
    for (const auto& [key, item] : value.mapping().items) {
      if (!is_first) out += ", ";
      is_first = false;
      AppendRepr(key, out, depth + 1);
      out += ": ";
      AppendRepr(item, out, depth + 1);
    }
    out += '}';
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    out += value.Str();
  }
}

bool EqualAt(const Value& a, const Value& b, int depth) {
  CheckDepth(depth);
  if (a.is_number() && b.is_number()) {
    if (a.is_big() || b.is_big()) return a.is_big() && b.is_big() && a.big().digits == b.big().digits;
    return a.is_integral() && b.is_integral() ? a.AsInt() == b.AsInt() : a.AsDouble() == b.AsDouble();
  }
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_sequence() && b.is_sequence()) {
    return a.sequence().kind == b.sequence().kind &&
           std::ranges::equal(a.sequence().items, b.sequence().items,
                              [depth](const Value& x, const Value& y) { return EqualAt(x, y, depth + 1); });
  }
  if (a.is_mapping() && b.is_mapping()) {
    if (a.mapping().items.size() != b.mapping().items.size()) return false;
    return std::ranges::all_of(a.mapping().items, [&](const auto& entry) {
      const Value* other = b.mapping().Find(entry.first);
      return other != nullptr && EqualAt(entry.second, *other, depth + 1);
    });
  }
  if (a.is_none() && b.is_none()) return true;
  return a.is_undefined() && b.is_undefined();
}

void AppendEscaped(const std::string& text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (char32_t c : Decode(text)) {
    switch (c) {
      case U'"': out += "\\\""; break;
      case U'\\': out += "\\\\"; break;
      case U'\n': out += "\\n"; break;
      case U'\r': out += "\\r"; break;
      case U'\t': out += "\\t"; break;
      case U'\b': out += "\\b"; break;
      case U'\f': out += "\\f"; break;
      default:
        if (c < 0x20 || (ensure_ascii && c > 0x7e)) {
          if (c > 0xffff) {
            const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
            out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
          } else {
            out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
          }
        } else {
          out += Encode(std::u32string_view(&c, 1));
        }
    }
  }
  out += '"';
}

std::string JsonKey(const Value& key) {
  if (key.is_string()) return key.string();
  if (key.is_none()) return "null";
  if (key.is_bool()) return key.IsTrue() ? "true" : "false";
  if (key.is_number()) return key.Str();
  throw TemplateError("keys must be str, int, float, bool or None, not " + std::string(key.TypeName()));
}

void NewLine(const JsonStyle& style, int depth, std::string& out) {
  if (style.indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(style.indent) * static_cast<size_t>(depth), ' ');
}

void Dump(const Value& value, const JsonStyle& style, std::string& out, int depth) {
  CheckDepth(depth);
  if (value.is_string()) return AppendEscaped(value.string(), style.ensure_ascii, out);
  if (value.is_none()) return void(out += "null");
  if (value.is_bool()) return void(out += value.IsTrue() ? "true" : "false");
  if (value.is_float() && !std::isfinite(value.AsDouble()))
    return void(out += std::isnan(value.AsDouble()) ? "NaN" : value.AsDouble() > 0 ? "Infinity" : "-Infinity");
  if (value.is_number()) return void(out += value.Str());
  const std::string separator = style.indent >= 0 && style.item_separator == ", " ? "," : style.item_separator;
  if (value.is_sequence()) {
    const auto& items = value.sequence().items;
    if (items.empty()) return void(out += "[]");
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += separator;
      NewLine(style, depth + 1, out);
      Dump(items[i], style, out, depth + 1);
    }
    NewLine(style, depth, out);
    out += ']';
    return;
  }
  if (value.is_mapping()) {
    auto items = value.mapping().items;
    if (items.empty()) return void(out += "{}");
    if (style.sort_keys) StableSort(items, [](const auto& a, const auto& b) { return Less(a.first, b.first); });
    out += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += separator;
      NewLine(style, depth + 1, out);
      AppendEscaped(JsonKey(items[i].first), style.ensure_ascii, out);
      out += style.key_separator;
      Dump(items[i].second, style, out, depth + 1);
    }
    NewLine(style, depth, out);
    out += '}';
    return;
  }
  throw TemplateError("Object of type " + std::string(value.TypeName()) + " is not JSON serializable");
}

}  // namespace

const Value* MappingData::Find(const Value& key) const {
  for (const auto& [own, value] : items) {
    if (own.is_string() && key.is_string() ? own.string() == key.string() : Equal(own, key)) return &value;
  }
  return nullptr;
}

Value Value::MakeMapping(std::vector<std::pair<Value, Value>> items) {
  return Value(Data(std::make_shared<const MappingData>(MappingData{std::move(items)})));
}

Value Value::MakeNamespace(std::vector<std::pair<std::string, Value>> items) {
  return Value(Data(std::make_shared<NamespaceData>(NamespaceData{std::move(items)})));
}

Value Value::MakeCallable(std::string name, std::function<Value(Evaluator&, Arguments&)> call) {
  return Value(Data(std::make_shared<const CallableData>(CallableData{std::move(name), std::move(call)})));
}

Value Value::FromJson(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::null: return MakeNone();
    case nlohmann::ordered_json::value_t::boolean: return MakeBool(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer: return MakeInt(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      return value <= static_cast<uint64_t>(INT64_MAX) ? MakeInt(static_cast<int64_t>(value)) : MakeBig(std::to_string(value));
    }
    case nlohmann::ordered_json::value_t::number_float: return MakeFloat(json.get<double>());
    case nlohmann::ordered_json::value_t::string: return MakeString(json.get<std::string>());
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(FromJson(item));
      return MakeList(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(json.size());
      for (const auto& [key, item] : json.items()) items.emplace_back(MakeString(key), FromJson(item));
      return MakeMapping(std::move(items));
    }
    default: return {};
  }
}

int64_t Value::AsInt() const {
  return is_bool() ? static_cast<int64_t>(std::get<bool>(data_)) : std::get<int64_t>(data_);
}

double Value::AsDouble() const {
  if (is_float()) return std::get<double>(data_);
  if (is_big()) {
    double value = 0;
    std::from_chars(big().digits.data(), big().digits.data() + big().digits.size(), value);
    return value;
  }
  return static_cast<double>(AsInt());
}

bool Value::IsTrue() const {
  if (is_undefined() || is_none()) return false;
  if (is_big()) return true;
  if (is_number()) return AsDouble() != 0;
  if (is_string()) return !string().empty();
  if (is_sequence()) return !sequence().items.empty();
  if (is_mapping()) return !mapping().items.empty();
  return true;
}

std::string_view Value::TypeName() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int() || is_big()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_sequence()) return sequence().kind == SequenceKind::kTuple ? "tuple" : "list";
  if (is_mapping()) return "dict";
  if (is_namespace()) return "Namespace";
  return is_loop() ? "LoopContext" : "function";
}

std::string Value::Str() const {
  if (is_undefined()) return {};
  if (is_none()) return "None";
  if (is_bool()) return IsTrue() ? "True" : "False";
  if (is_int()) return std::to_string(AsInt());
  if (is_big()) return big().digits;
  if (is_float()) return FloatRepr(AsDouble());
  if (is_string()) return string();
  if (is_sequence() || is_mapping()) return Repr();
  return fmt::format("<{}>", TypeName());
}

std::string Value::Repr() const {
  std::string out;
  AppendRepr(*this, out, 0);
  return out;
}

bool Equal(const Value& a, const Value& b) {
  return EqualAt(a, b, 0);
}

bool Less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.is_integral() && b.is_integral() ? a.AsInt() < b.AsInt() : a.AsDouble() < b.AsDouble();
  if (a.is_string() && b.is_string()) return a.string() < b.string();  // UTF-8 sorts as code points do
  if (a.is_sequence() && b.is_sequence() && a.sequence().kind == b.sequence().kind) {
    const auto& x = a.sequence().items;
    const auto& y = b.sequence().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equal(x[i], y[i])) return Less(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  if (a.is_undefined() || b.is_undefined())
    throw TemplateError(fmt::format("'{}' is undefined", (a.is_undefined() ? a : b).undefined().name));
  throw TemplateError(fmt::format("'<' not supported between instances of '{}' and '{}'", a.TypeName(), b.TypeName()));
}

bool Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) throw TemplateError(fmt::format("'in <string>' requires string as left operand, not {}", item.TypeName()));
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_sequence())
    return std::ranges::any_of(container.sequence().items, [&item](const Value& own) { return Equal(own, item); });
  if (container.is_mapping()) return container.mapping().Find(item) != nullptr;
  if (container.is_undefined()) return false;
  throw TemplateError(fmt::format("argument of type '{}' is not iterable", container.TypeName()));
}

void DumpJson(const Value& value, const JsonStyle& style, std::string& out) {
  Dump(value, style, out, 0);
}

// The shortest digits that read back equal, laid out as Python does: exponents below -4 and from 16 on.
std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto scientific = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(scientific.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* digits = text.data() + e + 1;
  std::from_chars(*digits == '+' ? digits + 1 : digits, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", text.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  char fixed[64];
  const auto end = std::to_chars(fixed, fixed + sizeof(fixed), value, std::chars_format::fixed);
  std::string result(fixed, end.ptr);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

int64_t CountCodePoints(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::u32string Decode(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead >= 0x80 && (lead < 0xc2 || lead > 0xf4 || i + length > text.size())) {
      out += U'\ufffd';
      ++i;
      continue;
    }
    char32_t c = lead < 0x80 ? lead : lead & (0x7fu >> length);
    for (size_t j = 1; j < length; ++j) c = (c << 6) | (static_cast<unsigned char>(text[i + j]) & 0x3fu);
    out += c;
    i += length;
  }
  return out;
}

std::string Encode(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char32_t c : text) {
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xc0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      out += static_cast<char>(0xe0 | (c >> 12));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
      out += static_cast<char>(0x80 | (c & 0x3f));
    } else {
      out += static_cast<char>(0xf0 | (c >> 18));
      out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
      out += static_cast<char>(0x80 | (c & 0x3f));
    }
  }
  return out;
}

}  // namespace avocet::tokenizer::jinja
