#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/printable.h"
#include "grammar/bounds.h"
#include "grammar/number_range.h"
#include "grammar/regex.h"

namespace avocet::grammar {
namespace {

constexpr int32_t kReferenceDepthMax = 32;

// Keywords that would have to be kept and are not: refusing is better than an answer that breaks them.
constexpr auto kRefused =
    std::to_array<const char*>({"multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "minProperties", "maxProperties",
                                "patternProperties", "propertyNames", "if", "then", "else", "not", "dependentRequired", "dependentSchemas",
                                "dependencies", "unevaluatedItems", "$dynamicRef", "$recursiveRef"});

// Keywords that say nothing about the value.
bool IsAnnotation(const std::string& keyword) {
  static const std::set<std::string> kAnnotations = {"title",     "description", "default", "examples",     "example",    "$schema",
                                                     "$id",       "$comment",    "$defs",   "definitions",  "deprecated", "readOnly",
                                                     "writeOnly", "$anchor",     "strict",  "discriminator"};
  return kAnnotations.contains(keyword);
}

bool AsksForNothing(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>());
}

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json* Find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<std::optional<int32_t>> Count(const Json& schema, const char* key) {
  const Json* value = Find(schema, key);
  if (value == nullptr) return std::nullopt;
  const bool is_integer =
      value->is_number_integer() || (value->is_number_float() && value->get<double>() == static_cast<int32_t>(value->get<double>()));
  if (!is_integer) return Fail(Errc::kInvalidArgument, "{} is no integer: {}", key, Printable(Dump(*value)));
  const double count = value->get<double>();
  if (count < 0 || count > kRepeatMax) return Fail(Errc::kInvalidArgument, "{} is {}, at most {}", key, count, kRepeatMax);
  return static_cast<int32_t>(count);
}

std::string_view FormatPattern(const std::string& format) {
  constexpr std::string_view kDate = R"([0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]))";
  constexpr std::string_view kTime = R"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
  constexpr std::string_view kDateTime =
      R"([0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
  constexpr std::string_view kUuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
  constexpr std::string_view kIpv4 = R"(((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9]))";
  constexpr std::string_view kEmail = R"([A-Za-z0-9._%+-]{1,64}@([A-Za-z0-9]([A-Za-z0-9-]{0,60}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24})";
  if (format == "date") return kDate;
  if (format == "time") return kTime;
  if (format == "date-time") return kDateTime;
  if (format == "uuid") return kUuid;
  if (format == "ipv4") return kIpv4;
  if (format == "email") return kEmail;
  return {};
}

// What the keywords say when there is no type.
std::string ImpliedType(const Json& schema) {
  for (const char* key : {"properties", "required", "additionalProperties"}) {
    if (Find(schema, key) != nullptr) return "object";
  }
  for (const char* key : {"items", "prefixItems", "minItems", "maxItems"}) {
    if (Find(schema, key) != nullptr) return "array";
  }
  for (const char* key : {"pattern", "minLength", "maxLength", "format"}) {
    if (Find(schema, key) != nullptr) return "string";
  }
  for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    if (Find(schema, key) != nullptr) return "number";
  }
  return {};
}

}  // namespace

SchemaGrammar::SchemaGrammar(const Json& root, Builder& builder, Spacing spacing) : root_(root), builder_(builder), spacing_(spacing) {}

Expr SchemaGrammar::AsRule(Expr body, const char* name) {
  const RuleId rule = builder_.DeclareRule(name);
  builder_.DefineRule(rule, body);
  return builder_.Call(rule);
}

Expr SchemaGrammar::Space() {
  if (spacing_ == Spacing::kNone) return builder_.Empty();
  if (!space_.has_value()) {
    space_ = builder_.DeclareRule("space");
    const Expr indent = builder_.Repeat(builder_.Bytes(" "), 0, 24);
    builder_.DefineRule(*space_,
                        builder_.Choice({builder_.Empty(), builder_.Bytes(" "), builder_.Sequence({builder_.Bytes("\n"), indent})}));
  }
  return builder_.Call(*space_);
}

Expr SchemaGrammar::StringChar() {
  if (!string_char_.has_value()) {
    string_char_ = builder_.DeclareRule("character");
    const Expr hex = builder_.Chars({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
    const Expr not_d = builder_.Chars({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}});
    // \uXXXX without surrogates, half of which would be no character.
    const Expr code =
        builder_.Choice({builder_.Sequence({not_d, builder_.Repeat(hex, 3, 3)}),
                         builder_.Sequence({builder_.Chars({{'D', 'D'}, {'d', 'd'}}), builder_.Chars({{'0', '7'}}), hex, hex})});
    const Expr escape =
        builder_.Choice({builder_.Chars({{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}}),
                         builder_.Sequence({builder_.Bytes("u"), code})});
    builder_.DefineRule(*string_char_, builder_.Choice({builder_.Chars({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}}),
                                                        builder_.Sequence({builder_.Bytes("\\"), escape})}));
  }
  return builder_.Call(*string_char_);
}

Expr SchemaGrammar::Quoted(Expr inner) {
  return builder_.Sequence({builder_.Bytes("\""), inner, builder_.Bytes("\"")});
}

Expr SchemaGrammar::AnyValue() {
  if (!any_value_.has_value()) {
    any_value_ = builder_.DeclareRule("value");
    const Expr value = builder_.Call(*any_value_);
    const Expr comma = builder_.Sequence({builder_.Bytes(","), Space()});
    const Expr items = builder_.Sequence({value, builder_.Repeat(builder_.Sequence({comma, value}), 0, kUnbounded)});
    const Expr array =
        builder_.Sequence({builder_.Bytes("["), Space(), builder_.Optional(builder_.Sequence({items, Space()})), builder_.Bytes("]")});
    const Expr text = Quoted(builder_.Repeat(StringChar(), 0, kUnbounded));
    const Expr digit = builder_.Chars({{'0', '9'}});
    const Expr whole =
        builder_.Choice({builder_.Bytes("0"), builder_.Sequence({builder_.Chars({{'1', '9'}}), builder_.Repeat(digit, 0, 17)})});
    const Expr fraction = builder_.Sequence({builder_.Bytes("."), builder_.Repeat(digit, 1, 16)});
    const Expr exponent = builder_.Sequence({builder_.Chars({{'E', 'E'}, {'e', 'e'}}),
                                             builder_.Optional(builder_.Chars({{'+', '+'}, {'-', '-'}})), builder_.Repeat(digit, 1, 2)});
    const Expr number =
        builder_.Sequence({builder_.Optional(builder_.Bytes("-")), whole, builder_.Optional(fraction), builder_.Optional(exponent)});
    builder_.DefineRule(*any_value_, builder_.Choice({AnyObject(), array, text, number, builder_.Bytes("true"), builder_.Bytes("false"),
                                                      builder_.Bytes("null")}));
  }
  return builder_.Call(*any_value_);
}

Expr SchemaGrammar::AnyObject() {
  if (!any_object_.has_value()) {
    any_object_ = builder_.DeclareRule("object");
    const Expr text = Quoted(builder_.Repeat(StringChar(), 0, kUnbounded));
    const Expr member = builder_.Sequence({text, builder_.Bytes(":"), Space(), AnyValue()});
    builder_.DefineRule(*any_object_, Members({}, member));
  }
  return builder_.Call(*any_object_);
}

// {members in order, some of which may be left out, then any number of others}
Expr SchemaGrammar::Members(const std::vector<std::pair<Expr, bool>>& members, std::optional<Expr> others) {
  const Expr comma = builder_.Sequence({builder_.Bytes(","), Space()});
  const Expr more = others.has_value() ? builder_.Repeat(builder_.Sequence({comma, *others}), 0, kUnbounded) : builder_.Empty();
  // Behind member i: when something was written before, and when nothing was. Rules, so that what follows is not written out twice.
  Expr after = more;
  Expr first = others.has_value() ? builder_.Optional(builder_.Sequence({*others, more})) : builder_.Empty();
  for (size_t i = members.size(); i-- > 0;) {
    const auto& [member, is_required] = members[i];
    const Expr shared = AsRule(after, "members");
    const Expr here = AsRule(member, "member");
    const Expr next = builder_.Sequence({comma, here, shared});
    const Expr begin = builder_.Sequence({here, shared});
    after = is_required ? next : builder_.Choice({next, shared});
    first = is_required ? begin : builder_.Choice({begin, AsRule(first, "first")});
  }
  return builder_.Sequence({builder_.Bytes("{"), Space(), first, Space(), builder_.Bytes("}")});
}

Expr SchemaGrammar::Key(std::string_view name) {
  return builder_.Sequence({builder_.Bytes(Dump(Json(name))), builder_.Bytes(":"), Space()});
}

// A key of letters, digits and the like that is none of the properties: it leaves every name that it has followed so far.
Expr SchemaGrammar::OtherKey(const Json& properties) {
  const auto is_plain = [](char32_t c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; };
  const Expr rest = builder_.Repeat(builder_.Chars({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}}), 0, 64);
  std::set<std::string> beginnings{""};
  for (const auto& [name, schema] : properties.items()) {
    for (size_t length = 1; length <= std::min<size_t>(name.size(), 64); ++length) beginnings.insert(name.substr(0, length));
  }
  std::vector<Expr> branches;
  for (const std::string& beginning : beginnings) {
    if (!std::ranges::all_of(beginning, [&](char c) { return is_plain(static_cast<unsigned char>(c)); })) continue;
    std::vector<CharRange> others;
    for (char32_t c = 0x20; c < 0x7F; ++c) {
      if (is_plain(c) && !beginnings.contains(beginning + static_cast<char>(c))) others.push_back({c, c});
    }
    branches.push_back(builder_.Sequence({builder_.Bytes(beginning), builder_.Chars(std::move(others)), rest}));
    if (!beginning.empty() && !properties.contains(beginning)) branches.push_back(builder_.Bytes(beginning));
  }
  return builder_.Sequence({Quoted(builder_.Choice(std::move(branches))), builder_.Bytes(":"), Space()});
}

Result<Expr> SchemaGrammar::Object(const Json& schema) {
  static const Json kNone = Json::object();
  const Json* listed = Find(schema, "properties");
  const Json& properties = listed == nullptr ? kNone : *listed;
  if (!properties.is_object()) return Fail(Errc::kInvalidArgument, "properties is no object");
  std::set<std::string> required;
  if (const Json* names = Find(schema, "required")) {
    if (!names->is_array()) return Fail(Errc::kInvalidArgument, "required is no list");
    for (const Json& name : *names) {
      if (!name.is_string()) return Fail(Errc::kInvalidArgument, "required holds {}, no name", Printable(Dump(name)));
      required.insert(name.get<std::string>());
    }
  }
  const Json* additional = schema.contains("additionalProperties") ? &schema["additionalProperties"] : nullptr;
  const bool allows_others = additional == nullptr ? properties.empty() : !AsksForNothing(*additional);
  if (additional == nullptr && properties.empty() && required.empty()) return AnyObject();
  std::vector<std::pair<Expr, bool>> members;
  for (const auto& [name, value] : properties.items()) {
    const bool is_required = required.erase(name) > 0;
    if (value == false) {
      if (is_required) return Fail(Errc::kInvalidArgument, "property {} is required and impossible", Printable(name));
      continue;
    }
    AVOCET_TRY(const Expr member, Value(value));
    members.emplace_back(builder_.Sequence({Key(name), member}), is_required);
  }
  const bool has_schema = additional != nullptr && additional->is_object();
  Expr other = AnyValue();
  if (has_schema) {
    AVOCET_TRY(other, Value(*additional));
  }
  for (const std::string& name : required) {  // required, and described by additionalProperties alone
    if (additional != nullptr && !allows_others) {
      return Fail(Errc::kInvalidArgument, "property {} is required and not allowed", Printable(name));
    }
    members.emplace_back(builder_.Sequence({Key(name), other}), true);
  }
  std::optional<Expr> others;
  if (allows_others) {
    Json names = properties;
    for (const std::string& name : required) names[name] = nullptr;
    others = AsRule(builder_.Sequence({OtherKey(names), other}), "other member");
  }
  return Members(members, others);
}

Result<Expr> SchemaGrammar::Array(const Json& schema) {
  AVOCET_TRY(const std::optional<int32_t> min, Count(schema, "minItems"));
  AVOCET_TRY(const std::optional<int32_t> max, Count(schema, "maxItems"));
  if (min.value_or(0) > max.value_or(kRepeatMax)) return Fail(Errc::kInvalidArgument, "minItems {} is above maxItems {}", *min, *max);
  std::vector<Expr> first;
  const Json* items = Find(schema, "items");
  const Json* prefix = Find(schema, "prefixItems");
  if (items != nullptr && items->is_array()) prefix = std::exchange(items, nullptr);  // as older drafts write it
  if (prefix != nullptr) {
    if (!prefix->is_array()) return Fail(Errc::kInvalidArgument, "prefixItems is no list");
    for (const Json& item : *prefix) {
      if (max.has_value() && first.size() >= static_cast<size_t>(*max)) break;
      AVOCET_TRY(const Expr one, Value(item));
      first.push_back(one);
    }
  }
  const bool allows_more = items == nullptr ? prefix == nullptr : *items != false;
  Expr item = AnyValue();
  if (items != nullptr && items->is_object()) {
    AVOCET_TRY(item, Value(*items));
  }
  item = AsRule(item, "item");
  const Expr comma = builder_.Sequence({builder_.Bytes(","), Space()});
  const auto num_first = static_cast<int32_t>(first.size());
  const int32_t more_min = std::max(min.value_or(0) - num_first, 0);
  const int32_t more_max = !allows_more ? 0 : max.has_value() ? *max - num_first : kUnbounded;
  if (!allows_more && more_min > 0) return Fail(Errc::kInvalidArgument, "minItems {} is above the items that are allowed", *min);
  std::vector<Expr> parts;
  for (const Expr one : first) {
    if (!parts.empty()) parts.push_back(comma);
    parts.push_back(one);
  }
  const Expr next = builder_.Sequence({comma, item});
  if (num_first > 0) {
    parts.push_back(builder_.Repeat(next, more_min, more_max));
  } else if (more_max != 0) {
    const int32_t rest_max = more_max == kUnbounded ? kUnbounded : more_max - 1;
    const Expr list = builder_.Sequence({item, builder_.Repeat(next, std::max(more_min - 1, 0), rest_max)});
    parts.push_back(more_min == 0 ? builder_.Optional(list) : list);
  }
  return builder_.Sequence({builder_.Bytes("["), Space(), builder_.Sequence(std::move(parts)), Space(), builder_.Bytes("]")});
}

Result<Expr> SchemaGrammar::String(const Json& schema) {
  AVOCET_TRY(const std::optional<int32_t> min, Count(schema, "minLength"));
  AVOCET_TRY(const std::optional<int32_t> max, Count(schema, "maxLength"));
  if (min.value_or(0) > max.value_or(kRepeatMax)) return Fail(Errc::kInvalidArgument, "minLength {} is above maxLength {}", *min, *max);
  const Json* pattern = Find(schema, "pattern");
  if (pattern != nullptr) {
    if (!pattern->is_string()) return Fail(Errc::kInvalidArgument, "pattern is no text");
    if (min.has_value() || max.has_value()) return Fail(Errc::kInvalidArgument, "pattern with minLength or maxLength is not offered");
    auto inner = ParseRegex(pattern->get_ref<const std::string&>(), builder_, TextForm::kJsonString, MatchKind::kSearch);
    if (!inner) return Fail(Errc::kInvalidArgument, "pattern {}: {}", Printable(Dump(*pattern)), inner.error().message);
    return Quoted(*inner);
  }
  const Json* format = Find(schema, "format");
  if (format != nullptr && format->is_string() && !min.has_value() && !max.has_value()) {
    const std::string_view known = FormatPattern(format->get<std::string>());
    if (!known.empty()) {
      AVOCET_TRY(const Expr inner, ParseRegex(known, builder_, TextForm::kJsonString, MatchKind::kWhole));
      return Quoted(inner);
    }
  }
  return Quoted(builder_.Repeat(StringChar(), min.value_or(0), max.value_or(kUnbounded)));
}

Result<Expr> SchemaGrammar::Number(const Json& schema, const std::string& type) {
  NumberBounds bounds;
  for (const char* key : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const Json* value = Find(schema, key);
    if (value == nullptr || value->is_boolean()) continue;
    if (!value->is_number()) return Fail(Errc::kInvalidArgument, "{} is no number: {}", key, Printable(Dump(*value)));
    const bool is_open = std::string_view(key).starts_with("exclusive");
    const double limit = value->get<double>();
    if (std::string_view(key).ends_with("inimum")) {
      if (bounds.min.has_value() && *bounds.min > limit) continue;
      bounds.min = limit;
      bounds.min_is_open = is_open;
    } else if (!bounds.max.has_value() || *bounds.max >= limit) {
      bounds.max = limit;
      bounds.max_is_open = is_open;
    }
  }
  if (const Json* open = Find(schema, "exclusiveMinimum"); open != nullptr && *open == true) bounds.min_is_open = true;  // draft 4
  if (const Json* open = Find(schema, "exclusiveMaximum"); open != nullptr && *open == true) bounds.max_is_open = true;
  if (type == "integer") return IntegerWithin(bounds, builder_);
  if (bounds.min.has_value() || bounds.max.has_value()) return NumberWithin(bounds, builder_);
  const Expr digit = builder_.Chars({{'0', '9'}});
  const Expr fraction = builder_.Sequence({builder_.Bytes("."), builder_.Repeat(digit, 1, 16)});
  const Expr exponent = builder_.Sequence({builder_.Chars({{'E', 'E'}, {'e', 'e'}}),
                                           builder_.Optional(builder_.Chars({{'+', '+'}, {'-', '-'}})), builder_.Repeat(digit, 1, 2)});
  return builder_.Sequence({IntegerWithin({}, builder_), builder_.Optional(fraction), builder_.Optional(exponent)});
}

Result<Expr> SchemaGrammar::OfType(const Json& schema, const std::string& type) {
  if (type.empty()) return AnyValue();
  if (type == "object") return Object(schema);
  if (type == "array") return Array(schema);
  if (type == "string") return String(schema);
  if (type == "integer" || type == "number") return Number(schema, type);
  if (type == "boolean") return builder_.Choice({builder_.Bytes("true"), builder_.Bytes("false")});
  if (type == "null") return builder_.Bytes("null");
  return Fail(Errc::kInvalidArgument, "type \"{}\" is unknown", Printable(type));
}

const Json& SchemaGrammar::Resolve(const Json& schema) const {
  const Json* at = &schema;
  for (int32_t depth = 0; depth < kReferenceDepthMax && at->is_object() && at->contains("$ref") && (*at)["$ref"].is_string(); ++depth) {
    std::string_view reference = (*at)["$ref"].get_ref<const std::string&>();
    if (!reference.starts_with('#')) break;
    const Json* target = &root_;
    for (reference.remove_prefix(1); !reference.empty() && target != nullptr;) {
      const size_t end = std::min(reference.find('/', 1), reference.size());
      std::string key(reference.substr(1, end - 1));
      reference.remove_prefix(end);
      for (const auto& [escaped, plain] : {std::pair("~1", "/"), std::pair("~0", "~")}) {
        for (size_t i = key.find(escaped); i != std::string::npos; i = key.find(escaped, i + 1)) key.replace(i, 2, plain);
      }
      target = target->is_object() && target->contains(key) ? &(*target)[key] : nullptr;
    }
    if (target == nullptr) break;
    at = target;
  }
  return *at;
}

Result<void> SchemaGrammar::MergeInto(Json& base, const Json& other, int32_t depth) const {
  if (depth > kReferenceDepthMax) return Fail(Errc::kInvalidArgument, "allOf refers to itself");
  const Json& resolved = Resolve(other);
  if (resolved == true) return {};
  if (!resolved.is_object()) return Fail(Errc::kInvalidArgument, "a schema is no object: {}", Printable(Dump(resolved)));
  AVOCET_TRY(const Json flat, AllOf(resolved, depth + 1));
  for (const auto& [key, value] : flat.items()) {
    if (IsAnnotation(key) || value.is_null()) continue;
    if (!base.contains(key)) {
      base[key] = value;
    } else if (key == "properties" && value.is_object() && base[key].is_object()) {
      for (const auto& [name, schema] : value.items()) {
        if (base[key].contains(name) && base[key][name] != schema) {
          base[key][name] = Json::object({{"allOf", Json::array({base[key][name], schema})}});
        } else {
          base[key][name] = schema;
        }
      }
    } else if (key == "required" && value.is_array() && base[key].is_array()) {
      for (const Json& name : value) base[key].push_back(name);
    } else if (base[key] != value) {
      return Fail(Errc::kInvalidArgument, "{} is stated twice, as {} and {}", Printable(key), Printable(Dump(base[key]), 40),
                  Printable(Dump(value), 40));
    }
  }
  return {};
}

// The schema with its allOf taken in.
Result<Json> SchemaGrammar::AllOf(const Json& schema, int32_t depth) const {
  const Json* branches = Find(schema, "allOf");
  Json merged = schema;
  if (branches == nullptr) return merged;
  if (!branches->is_array() || branches->empty()) return Fail(Errc::kInvalidArgument, "allOf is no list of schemas");
  merged.erase("allOf");
  for (const Json& branch : *branches) AVOCET_TRY_VOID(MergeInto(merged, branch, depth));
  return merged;
}

// anyOf, oneOf: every branch with what stands beside it.
Result<Expr> SchemaGrammar::Combined(const Json& schema, const char* keyword) {
  const Json& branches = schema[keyword];
  if (!branches.is_array() || branches.empty()) return Fail(Errc::kInvalidArgument, "{} is no list of schemas", keyword);
  Json beside = Json::object();
  for (const auto& [key, value] : schema.items()) {
    if (key != keyword && !IsAnnotation(key)) beside[key] = value;
  }
  std::vector<Expr> choices;
  for (const Json& branch : branches) {
    Json merged = beside;
    if (!beside.empty()) AVOCET_TRY_VOID(MergeInto(merged, branch, 0));
    AVOCET_TRY(const Expr choice, Value(beside.empty() ? branch : merged));
    choices.push_back(choice);
  }
  return builder_.Choice(std::move(choices));
}

Result<Expr> SchemaGrammar::Value(const Json& schema) {
  if (schema == true) return AnyValue();
  if (!schema.is_object()) return Fail(Errc::kInvalidArgument, "a schema is no object: {}", Printable(Dump(schema)));
  for (const char* keyword : kRefused) {
    if (schema.contains(keyword) && !AsksForNothing(schema[keyword])) return Fail(Errc::kInvalidArgument, "{} is not offered", keyword);
  }
  if (const Json* reference = Find(schema, "$ref")) {
    if (!reference->is_string()) return Fail(Errc::kInvalidArgument, "$ref is no text");
    const std::string& name = reference->get_ref<const std::string&>();
    if (&Resolve(schema) == &schema) {
      return Fail(Errc::kInvalidArgument, "$ref {} points at nothing in this schema; others are not followed", Printable(name));
    }
    const auto [place, is_new] = references_.try_emplace(name);
    if (is_new) {
      place->second = builder_.DeclareRule(name);
      pending_.push_back(name);
    }
    return builder_.Call(place->second);
  }
  if (const Json* value = schema.contains("const") ? &schema["const"] : nullptr) return builder_.Bytes(Dump(*value));
  if (const Json* values = Find(schema, "enum")) {
    if (!values->is_array() || values->empty()) return Fail(Errc::kInvalidArgument, "enum is no list of values");
    std::vector<Expr> choices;
    for (const Json& value : *values) choices.push_back(builder_.Bytes(Dump(value)));
    return builder_.Choice(std::move(choices));
  }
  if (Find(schema, "allOf") != nullptr) {
    AVOCET_TRY(const Json merged, AllOf(schema, 0));
    return Value(merged);
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (Find(schema, keyword) != nullptr) return Combined(schema, keyword);
  }
  const Json* type = Find(schema, "type");
  if (type == nullptr) return OfType(schema, ImpliedType(schema));
  if (type->is_string()) {
    AVOCET_TRY(const Expr value, OfType(schema, type->get<std::string>()));
    const Json* nullable = Find(schema, "nullable");
    return nullable != nullptr && *nullable == true ? builder_.Choice({value, builder_.Bytes("null")}) : value;
  }
  if (!type->is_array() || type->empty())
    return Fail(Errc::kInvalidArgument, "type is neither a name nor a list: {}", Printable(Dump(*type)));
  std::vector<Expr> choices;
  for (const Json& one : *type) {
    if (!one.is_string()) return Fail(Errc::kInvalidArgument, "type holds {}, no name", Printable(Dump(one)));
    AVOCET_TRY(const Expr choice, OfType(schema, one.get<std::string>()));
    choices.push_back(choice);
  }
  return builder_.Choice(std::move(choices));
}

Result<void> SchemaGrammar::Finish() {
  while (!pending_.empty()) {
    const std::string name = std::move(pending_.back());
    pending_.pop_back();
    if (references_.size() > kRulesMax) return Fail(Errc::kInvalidArgument, "more than {} references", kRulesMax);
    const Json reference = Json::object({{"$ref", name}});
    // One step: what it points at may be a reference itself.
    AVOCET_TRY(const Expr body, Value(Resolve(reference)));
    builder_.DefineRule(references_.at(name), body);
  }
  return {};
}

}  // namespace avocet::grammar
