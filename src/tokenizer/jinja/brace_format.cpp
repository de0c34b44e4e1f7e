// "...".format(...).
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

constexpr int kLevelsMax = 3;  // the form, the specifications of its fields, and those of fields in these: as in Python

class BraceFormatter {
 public:
  BraceFormatter(Evaluator& evaluator, const Value& form, const Arguments& arguments, const Value* mapping)
      : evaluator_(evaluator), form_(form), arguments_(arguments), mapping_(mapping) {}

  Result<Value> Run() {
    AVOCET_TRY(std::string text, Expand(form_.text(), kLevelsMax));
    return form_.string().is_markup ? Value::Markup(std::move(text)) : Value::String(std::move(text));
  }

 private:
  struct Field {
    std::string_view name;
    char conversion = '\0';
    std::string_view specification;
  };

  Result<std::string> Expand(std::string_view form, int num_levels) {
    if (form.empty()) return std::string();
    if (num_levels == 0) return Fail(Errc::kInvalidArgument, "a format's fields are nested too deeply");
    std::string out;
    for (size_t at = 0; at < form.size();) {
      const char c = form[at];
      if (c != '{' && c != '}') {
        const size_t end = std::min(form.find_first_of("{}", at), form.size());
        out.append(form, at, end - at);
        at = end;
        continue;
      }
      if (at + 1 < form.size() && form[at + 1] == c) {
        out += c;
        at += 2;
        continue;
      }
      if (c == '}') return Fail(Errc::kInvalidArgument, "single '}}' encountered in a format");
      ++at;
      AVOCET_TRY(const Field field, ReadField(form, &at));
      AVOCET_TRY(const std::string text, FieldText(field, num_levels));
      AVOCET_TRY_VOID(evaluator_.budget().Fits(out.size() + text.size()));
      out += text;
    }
    return out;
  }

  // at: behind the field's opening brace; moves behind its closing one.
  static Result<Field> ReadField(std::string_view form, size_t* at) {
    Field field;
    size_t end = *at;
    bool is_in_brackets = false;
    for (; end < form.size(); ++end) {
      const char c = form[end];
      if (c == '[') is_in_brackets = true;
      if (c == ']') is_in_brackets = false;
      if (is_in_brackets) continue;
      if (c == '{') return Fail(Errc::kInvalidArgument, "unexpected '{{' in a format's field");
      if (c == '}' || c == ':' || c == '!') break;
    }
    field.name = form.substr(*at, end - *at);
    if (end < form.size() && form[end] == '!') {
      if (end + 1 < form.size()) field.conversion = form[end + 1];
      end += 2;
      if (end >= form.size() || (form[end] != ':' && form[end] != '}'))
        return Fail(Errc::kInvalidArgument, "expected ':' after a conversion in a format");
    }
    size_t begin = end;
    if (end < form.size() && form[end] == ':') {
      begin = ++end;
      for (int depth = 1; end < form.size(); ++end) {
        depth += form[end] == '{' ? 1 : form[end] == '}' ? -1 : 0;
        if (depth == 0) break;
      }
    }
    if (end >= form.size()) return Fail(Errc::kInvalidArgument, "expected '}}' before the end of a format");
    field.specification = form.substr(begin, end - begin);
    *at = end + 1;
    return field;
  }

  Result<std::string> FieldText(const Field& field, int num_levels) {
    AVOCET_TRY_VOID(evaluator_.budget().Steps(2));
    AVOCET_TRY(Value value, FieldValue(field.name));
    Budget& budget = evaluator_.budget();
    switch (field.conversion) {
      case '\0': break;
      case 's': {
        AVOCET_TRY(std::string text, Str(value, budget));
        value = Value::String(std::move(text));
        break;
      }
      case 'r':
      case 'a': {
        AVOCET_TRY(std::string text, Repr(value, budget));
        value = Value::String(field.conversion == 'a' ? AsciiOnly(text) : std::move(text));
        break;
      }
      default: return Fail(Errc::kInvalidArgument, "unknown conversion '{}' in a format", field.conversion);
    }
    AVOCET_TRY(const std::string specification, Expand(field.specification, num_levels - 1));
    AVOCET_TRY(std::string text, FormatValue(value, specification, budget));
    const bool is_escaped = form_.string().is_markup && !(value.is_string() && value.string().is_markup);
    return is_escaped ? EscapeHtml(text) : text;
  }

  static bool IsNumber(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }

  Result<Value> FirstValue(std::string_view name) {
    if (name.empty()) {
      if (numbering_ == Numbering::kManual)
        return Fail(Errc::kInvalidArgument, "cannot switch from manual field specification to automatic field numbering");
      numbering_ = Numbering::kAutomatic;
      return Positional(next_++);
    }
    if (IsNumber(name)) {
      if (numbering_ == Numbering::kAutomatic)
        return Fail(Errc::kInvalidArgument, "cannot switch from automatic field numbering to manual field specification");
      numbering_ = Numbering::kManual;
      return Positional(ParseInteger(name, 10).value_or(INT64_MAX));
    }
    if (mapping_ != nullptr) {
      if (const Value* const found = mapping_->dict().Find(name)) return *found;
    }
    for (const auto& [own, value] : arguments_.named) {
      if (own == name) return value;
    }
    return Fail(Errc::kInvalidArgument, "a format's field '{}' has no value", name);
  }

  Result<Value> Positional(Integer index) const {
    if (index >= static_cast<Integer>(arguments_.positional.size()))
      return Fail(Errc::kInvalidArgument, "a format's field {} has no value", ToString(index));
    return arguments_.positional[static_cast<size_t>(index)];
  }

  // name(.attribute | [item])...
  Result<Value> FieldValue(std::string_view name) {
    size_t at = std::min(name.find_first_of(".["), name.size());
    AVOCET_TRY(Value value, FirstValue(name.substr(0, at)));
    while (at < name.size()) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        const std::string_view attribute = name.substr(at + 1, end - at - 1);
        if (attribute.empty()) return Fail(Errc::kInvalidArgument, "empty attribute in a format");
        AVOCET_TRY(value, evaluator_.GetAttribute(value, attribute));
        at = end;
      } else if (name[at] == '[') {
        const size_t end = name.find(']', at + 1);
        if (end == std::string_view::npos) return Fail(Errc::kInvalidArgument, "missing ']' in a format");
        const std::string_view item = name.substr(at + 1, end - at - 1);
        if (item.empty()) return Fail(Errc::kInvalidArgument, "empty attribute in a format");
        const Value key = IsNumber(item) ? Value::Int(ParseInteger(item, 10).value_or(INT64_MAX)) : Value::String(std::string(item));
        AVOCET_TRY(value, evaluator_.GetItem(value, key));
        at = end + 1;
      } else {
        return Fail(Errc::kInvalidArgument, "only '.' or '[' may follow ']' in a format's field");
      }
    }
    return value;
  }

  enum class Numbering : uint8_t { kOpen, kAutomatic, kManual };

  Evaluator& evaluator_;
  const Value& form_;
  const Arguments& arguments_;
  const Value* mapping_;
  Numbering numbering_ = Numbering::kOpen;
  int64_t next_ = 0;
};

}  // namespace

Result<Value> BraceFormat(Evaluator& evaluator, const Value& form, const Arguments& arguments) {
  return BraceFormatter(evaluator, form, arguments, nullptr).Run();
}

Result<Value> BraceFormatMap(Evaluator& evaluator, const Value& form, const Value& mapping) {
  if (!mapping.is_dict()) return Fail(Errc::kInvalidArgument, "format_map() needs a mapping, not {}", mapping.type_name());
  return BraceFormatter(evaluator, form, Arguments{}, &mapping).Run();
}

}  // namespace avocet::tokenizer::jinja
