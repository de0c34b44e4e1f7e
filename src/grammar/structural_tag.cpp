#include "grammar/structural_tag.h"

#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "grammar/ebnf.h"
#include "grammar/regex.h"

namespace avocet::grammar {
namespace {

constexpr size_t kMarkersBytesMax = 4096;  // of all beginnings together; 1 KB of table each

struct Tag {
  std::string begin;
  Expr content;
  std::string end;
};

class Parser {
 public:
  Parser(Spacing spacing, Builder& builder) : spacing_(spacing), builder_(builder) {}

  Result<Expr> Structures(const Json& tag) {
    std::vector<Tag> tags;
    AVOCET_TRY(const Json* list, List(tag, "structures"));
    for (const Json& one : *list) {
      AVOCET_TRY(std::string begin, Text(one, "begin"));
      AVOCET_TRY(std::string end, Text(one, "end"));
      AVOCET_TRY(const Expr content, Schema(one, "schema"));
      tags.push_back({std::move(begin), content, std::move(end)});
    }
    AVOCET_TRY(const std::vector<std::string> triggers, Texts(tag, "triggers"));
    return Triggered(triggers, tags);
  }

  Result<Expr> Format(const Json& format) {
    AVOCET_TRY(const std::string type, Text(format, "type"));
    if (type == "const_string") {
      AVOCET_TRY(const std::string value, Text(format, "value"));
      return builder_.Bytes(value);
    }
    if (type == "any_text") return builder_.Text({}, Builder::TextEnd::kAnywhere);
    if (type == "json_schema") return Schema(format, "json_schema");
    if (type == "regex") {
      AVOCET_TRY(const std::string pattern, Text(format, "pattern"));
      return ParseRegex(pattern, builder_, TextForm::kRaw, MatchKind::kWhole);
    }
    if (type == "grammar") {
      AVOCET_TRY(const std::string source, Text(format, "grammar"));
      return ParseEbnf(source, builder_);
    }
    if (type == "sequence" || type == "or") {
      AVOCET_TRY(const Json* list, List(format, "elements"));
      std::vector<Expr> parts;
      for (const Json& element : *list) {
        AVOCET_TRY(const Expr part, Format(element));
        parts.push_back(part);
      }
      return type == "or" ? builder_.Choice(std::move(parts)) : builder_.Sequence(std::move(parts));
    }
    if (type == "tag") {
      AVOCET_TRY(const Tag tag, OneTag(format));
      return Whole(tag);
    }
    if (type == "triggered_tags" || type == "tags_with_separator") return ManyTags(format, type);
    return Fail(Errc::kInvalidArgument, "format type \"{}\" is not offered", Printable(type));
  }

 private:
  static Result<const Json*> List(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key) || !object[key].is_array() || object[key].empty()) {
      return Fail(Errc::kInvalidArgument, "{} is missing or no list", key);
    }
    return &object[key];
  }
  static Result<std::string> Text(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key) || !object[key].is_string()) {
      return Fail(Errc::kInvalidArgument, "{} is missing or no text", key);
    }
    return object[key].get<std::string>();
  }
  static Result<std::vector<std::string>> Texts(const Json& object, const char* key) {
    AVOCET_TRY(const Json* list, List(object, key));
    std::vector<std::string> texts;
    size_t num_bytes = 0;
    for (const Json& text : *list) {
      if (!text.is_string() || text.get_ref<const std::string&>().empty()) return Fail(Errc::kInvalidArgument, "{} holds no text", key);
      texts.push_back(text.get<std::string>());
      num_bytes += texts.back().size();
    }
    if (num_bytes > kMarkersBytesMax) return Fail(Errc::kInvalidArgument, "{} have {} bytes, at most {}", key, num_bytes, kMarkersBytesMax);
    return texts;
  }
  static bool Flag(const Json& object, const char* key) { return object.contains(key) && object[key] == true; }

  Result<Expr> Schema(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key)) return Fail(Errc::kInvalidArgument, "{} is missing", key);
    SchemaGrammar schemas(object[key], builder_, spacing_);
    AVOCET_TRY(const Expr value, schemas.Value(object[key]));
    AVOCET_TRY_VOID(schemas.Finish());
    return value;
  }

  Expr Whole(const Tag& tag) { return builder_.Sequence({builder_.Bytes(tag.begin), tag.content, builder_.Bytes(tag.end)}); }

  Result<Tag> OneTag(const Json& format) {
    AVOCET_TRY(std::string begin, Text(format, "begin"));
    AVOCET_TRY(std::string end, Text(format, "end"));
    if (!format.contains("content")) return Fail(Errc::kInvalidArgument, "content is missing");
    const Json& content = format["content"];
    if (content.is_object() && content.contains("type") && content["type"] == "any_text" && !end.empty() &&
        end.size() <= kMarkersBytesMax) {
      const Expr text = builder_.Text({{end, builder_.Empty()}}, Builder::TextEnd::kAtMarkers);
      return Tag{std::move(begin), text, {}};
    }
    AVOCET_TRY(const Expr inner, Format(content));
    return Tag{std::move(begin), inner, std::move(end)};
  }

  Result<Expr> ManyTags(const Json& format, const std::string& type) {
    AVOCET_TRY(const Json* list, List(format, "tags"));
    std::vector<Tag> tags;
    std::vector<Expr> choices;
    for (const Json& one : *list) {
      AVOCET_TRY(Tag tag, OneTag(one));
      choices.push_back(Whole(tag));
      tags.push_back(std::move(tag));
    }
    if (type == "triggered_tags") {
      AVOCET_TRY(const std::vector<std::string> triggers, Texts(format, "triggers"));
      AVOCET_TRY(const Expr text, Triggered(triggers, tags));
      if (!Flag(format, "at_least_one")) return text;
      return builder_.Sequence({builder_.Choice(std::move(choices)), text});
    }
    AVOCET_TRY(const std::string separator, Text(format, "separator"));
    const RuleId rule = builder_.DeclareRule("tags");
    builder_.DefineRule(rule, builder_.Choice(std::move(choices)));
    const Expr one = builder_.Call(rule);
    if (Flag(format, "stop_after_first")) return Flag(format, "at_least_one") ? one : builder_.Optional(one);
    const Expr many = builder_.Sequence({one, builder_.Repeat(builder_.Sequence({builder_.Bytes(separator), one}), 0, kUnbounded)});
    return Flag(format, "at_least_one") ? many : builder_.Optional(many);
  }

  // Text; whoever begins with a trigger goes on as one of the tags that begin so.
  Result<Expr> Triggered(const std::vector<std::string>& triggers, const std::vector<Tag>& tags) {
    const RuleId rule = builder_.DeclareRule("text");
    std::vector<std::pair<std::string, Expr>> ends;
    for (const std::string& trigger : triggers) {
      std::vector<Expr> choices;
      for (const Tag& tag : tags) {
        if (!tag.begin.starts_with(trigger)) continue;
        choices.push_back(builder_.Sequence({builder_.Bytes(tag.begin.substr(trigger.size())), tag.content, builder_.Bytes(tag.end)}));
      }
      if (choices.empty()) return Fail(Errc::kInvalidArgument, "trigger \"{}\" begins none of the tags", Printable(trigger));
      ends.emplace_back(trigger, builder_.Sequence({builder_.Choice(std::move(choices)), builder_.Call(rule)}));
    }
    builder_.DefineRule(rule, builder_.Text(std::move(ends), Builder::TextEnd::kAnywhere));
    return builder_.Call(rule);
  }

  Spacing spacing_;
  Builder& builder_;
};

}  // namespace

Result<Expr> ParseStructuralTag(const Json& tag, Spacing spacing, Builder& builder) {
  if (!tag.is_object()) return Fail(Errc::kInvalidArgument, "it is no object");
  Parser parser(spacing, builder);
  return tag.contains("format") ? parser.Format(tag["format"]) : parser.Structures(tag);
}

}  // namespace avocet::grammar
