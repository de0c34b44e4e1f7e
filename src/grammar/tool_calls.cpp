#include "grammar/tool_calls.h"

#include <algorithm>
#include <set>

#include "base/printable.h"
#include "grammar/regex.h"

namespace avocet::grammar {
namespace {

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Values that are written raw: those that may be text, and those of which nothing is known.
bool IsText(const Json& schema, const SchemaGrammar& grammar, int32_t depth = 0) {
  const Json& resolved = grammar.Resolve(schema);
  if (!resolved.is_object() || depth > 8) return true;
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const Json* branches = Find(resolved, key);
    if (branches != nullptr && branches->is_array()) {
      return std::ranges::any_of(*branches, [&](const Json& branch) { return IsText(branch, grammar, depth + 1); });
    }
  }
  const auto is_text = [](const Json& value) { return value == "string"; };
  if (const Json* type = Find(resolved, "type")) return type->is_array() ? std::ranges::any_of(*type, is_text) : is_text(*type);
  if (const Json* values = Find(resolved, "enum"); values != nullptr && values->is_array()) {
    return std::ranges::any_of(*values, [](const Json& value) { return value.is_string(); });
  }
  if (const Json* value = Find(resolved, "const")) return value->is_string();
  return Find(resolved, "properties") == nullptr && Find(resolved, "items") == nullptr;
}

std::string Written(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

constexpr std::string_view kValueEnd = "\n</parameter>\n";

// The value and the tag that closes it.
Result<Expr> RawValue(const Json& schema, Builder& builder) {
  const Expr end = builder.Bytes(kValueEnd);
  if (const Json* value = Find(schema, "const")) return builder.Sequence({builder.Bytes(Written(*value)), end});
  if (const Json* values = Find(schema, "enum"); values != nullptr && values->is_array() && !values->empty()) {
    std::vector<Expr> choices;
    for (const Json& value : *values) choices.push_back(builder.Bytes(Written(value)));
    return builder.Sequence({builder.Choice(std::move(choices)), end});
  }
  if (const Json* pattern = Find(schema, "pattern"); pattern != nullptr && pattern->is_string()) {
    AVOCET_TRY(const Expr inner, ParseRegex(pattern->get_ref<const std::string&>(), builder, TextForm::kRaw, MatchKind::kSearch));
    return builder.Sequence({inner, end});
  }
  return builder.Text({{std::string(kValueEnd), builder.Empty()}}, Builder::TextEnd::kAtMarkers);
}

Result<Expr> TaggedParameters(const Json& parameters, SchemaGrammar& schemas, Builder& builder) {
  std::set<std::string> required;
  if (const Json* names = Find(parameters, "required"); names != nullptr && names->is_array()) {
    for (const Json& name : *names) {
      if (name.is_string()) required.insert(name.get<std::string>());
    }
  }
  std::vector<Expr> parts;
  const Json* properties = Find(parameters, "properties");
  if (properties == nullptr || !properties->is_object()) return builder.Empty();
  for (const auto& [name, schema] : properties->items()) {
    const Expr open = builder.Bytes("<parameter=" + name + ">\n");
    Expr value = builder.Empty();
    if (IsText(schema, schemas)) {
      AVOCET_TRY(value, RawValue(schemas.Resolve(schema), builder));
    } else {
      AVOCET_TRY(const Expr json, schemas.Value(schema));
      value = builder.Sequence({json, builder.Bytes(kValueEnd)});
    }
    const Expr parameter = builder.Sequence({open, value});
    parts.push_back(required.contains(name) ? parameter : builder.Optional(parameter));
  }
  return builder.Sequence(std::move(parts));
}

Result<Expr> OneCall(const Tool& tool, CallMarkup markup, Builder& builder) {
  SchemaGrammar schemas(tool.parameters, builder, Spacing::kBounded);
  Expr call = builder.Empty();
  if (markup == CallMarkup::kFunctionTags) {
    AVOCET_TRY(const Expr parameters, TaggedParameters(tool.parameters, schemas, builder));
    call = builder.Sequence(
        {builder.Bytes("<tool_call>\n<function=" + tool.name + ">\n"), parameters, builder.Bytes("</function>\n</tool_call>")});
  } else {
    Expr arguments = builder.Bytes("{}");
    if (const Json* properties = Find(tool.parameters, "properties"); properties != nullptr && !properties->empty()) {
      AVOCET_TRY(arguments, schemas.Value(tool.parameters));
    }
    const std::string name = Json(tool.name).dump(-1, ' ', false, Json::error_handler_t::replace);
    call = builder.Sequence(
        {builder.Bytes("<tool_call>\n{\"name\": " + name + ", \"arguments\": "), arguments, builder.Bytes("}\n</tool_call>")});
  }
  AVOCET_TRY_VOID(schemas.Finish());
  return call;
}

}  // namespace

Result<Expr> ToolCalls(const std::vector<Tool>& tools, CallMarkup markup, CallCount count, Builder& builder) {
  std::vector<Expr> choices;
  for (const Tool& tool : tools) {
    Result<Expr> call = OneCall(tool, markup, builder);
    if (!call) return Fail(call.error().code, "tool {}: {}", Printable(tool.name), call.error().message);
    choices.push_back(*call);
  }
  const RuleId any = builder.DeclareRule("call");
  builder.DefineRule(any, builder.Choice(std::move(choices)));
  std::vector<Expr> parts{builder.Optional(builder.Bytes("\n\n")), builder.Call(any)};
  if (count == CallCount::kOneOrMore) {
    parts.push_back(builder.Repeat(builder.Sequence({builder.Bytes("\n"), builder.Call(any)}), 0, kUnbounded));
  }
  return builder.Sequence(std::move(parts));
}

}  // namespace avocet::grammar
