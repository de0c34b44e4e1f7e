#include "server/structure_fields.h"

#include <utility>
#include <vector>

#include "base/printable.h"

namespace avocet::server {

namespace {

using grammar::Source;
using grammar::SourceKind;

class Reader {
 public:
  explicit Reader(FieldReader& body) : body_(body) {}

  std::optional<Structure> Read() {
    ReadResponseFormat();
    if (const Json* object = body_.Object("structured_outputs")) {
      FieldReader fields(*object, "structured_outputs", body_.problems());
      ReadKinds(fields, "");
      if (fields.Find("whitespace_pattern") != nullptr) fields.NotAllowed("whitespace_pattern", "a pattern for white space is not offered");
      if (fields.Bool("disable_any_whitespace").value_or(false)) spacing_ = grammar::Spacing::kNone;
    }
    ReadKinds(body_, "guided_");
    if (body_.Find("guided_whitespace_pattern") != nullptr) {
      body_.NotAllowed("guided_whitespace_pattern", "a pattern for white space is not offered");
    }
    if (found_.size() > 1) {
      body_.NotAllowed(found_[1].field, fmt::format("one kind of structured output only: {} and {}", found_[0].field, found_[1].field));
    }
    if (found_.empty()) return std::nullopt;
    found_.front().source.spacing = spacing_;
    return std::move(found_.front());
  }

 private:
  void Add(std::string field, Source source) { found_.push_back({std::move(source), std::move(field)}); }

  void ReadResponseFormat() {
    const Json* format = body_.Object("response_format");
    if (format == nullptr) return;
    FieldReader fields(*format, "response_format", body_.problems());
    const std::optional<std::string> type = fields.String("type");
    if (!type.has_value()) {
      if (fields.Find("type") == nullptr) fields.Expected("type", "text, json_object, json_schema or structural_tag", Json(nullptr));
    } else if (*type == "json_object") {
      Add("response_format", {.kind = SourceKind::kJsonObject});
    } else if (*type == "json_schema") {
      const Json* wrapper = fields.Object("json_schema");
      const Json* schema =
          wrapper == nullptr ? nullptr : FieldReader(*wrapper, "response_format.json_schema", body_.problems()).Find("schema");
      if (schema == nullptr) {
        fields.NotAllowed("json_schema", "response_format of type json_schema needs json_schema with a schema");
      } else {
        AddSchema("response_format.json_schema.schema", *schema);
      }
    } else if (*type == "structural_tag") {
      Add("response_format", {.kind = SourceKind::kStructuralTag, .json = *format});
    } else if (*type != "text") {
      fields.NotAllowed("type", fmt::format("\"{}\" is none of text, json_object, json_schema and structural_tag", Printable(*type)));
    }
  }

  // json, regex, choice, grammar with what the field's name begins with; without that also json_object and structural_tag.
  void ReadKinds(FieldReader& fields, const std::string& prefix) {
    if (const Json* schema = fields.Find(prefix + "json")) {
      const std::string path = fields.PathOf(prefix + "json");
      if (std::optional<Json> parsed = MaybeParsed(fields, prefix + "json", *schema)) AddSchema(path, *parsed);
    }
    for (const auto& [name, kind] : {std::pair("regex", SourceKind::kRegex), std::pair("grammar", SourceKind::kEbnf)}) {
      const std::optional<std::string> text = fields.String(prefix + name);
      if (!text.has_value()) continue;
      if (text->empty()) fields.NotAllowed(prefix + name, "it is empty");
      Add(fields.PathOf(prefix + name), {.kind = kind, .text = *text});
    }
    if (const auto choice = fields.Strings(prefix + "choice")) {
      if (choice->empty()) fields.NotAllowed(prefix + "choice", "there is nothing to choose from");
      Add(fields.PathOf(prefix + "choice"), {.kind = SourceKind::kChoice, .json = Json(*choice)});
    }
    if (!prefix.empty()) return;
    if (const auto wants_object = fields.Bool("json_object")) {
      if (!*wants_object) fields.NotAllowed("json_object", "false asks for nothing; leave it out");
      Add(fields.PathOf("json_object"), {.kind = SourceKind::kJsonObject});
    }
    if (const Json* tag = fields.Find("structural_tag")) {
      if (std::optional<Json> parsed = MaybeParsed(fields, "structural_tag", *tag)) {
        Add(fields.PathOf("structural_tag"), {.kind = SourceKind::kStructuralTag, .json = *std::move(parsed)});
      }
    }
  }

  void AddSchema(const std::string& path, const Json& schema) {
    if (!schema.is_object() && !schema.is_boolean()) {
      body_.problems().Add(ProblemKind::kValue, path, path + ": expected a JSON schema, got " + Preview(schema));
    }
    Add(path, {.kind = SourceKind::kJsonSchema, .json = schema});
  }

  // JSON, or a text that holds it.
  static std::optional<Json> MaybeParsed(FieldReader& fields, const std::string& name, const Json& value) {
    if (!value.is_string()) return value;
    Result<Json> parsed = ParseJson(value.get_ref<const std::string&>(), "the text");
    if (parsed.has_value()) return *std::move(parsed);
    fields.NotAllowed(name, parsed.error().message);
    return std::nullopt;
  }

  FieldReader& body_;
  std::vector<Structure> found_;
  grammar::Spacing spacing_ = grammar::Spacing::kBounded;
};

}  // namespace

std::optional<Structure> ReadStructure(FieldReader& reader) {
  return Reader(reader).Read();
}

}  // namespace avocet::server
