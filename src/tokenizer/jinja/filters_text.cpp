// Filters of texts and numbers.
#include <algorithm>
#include <array>
#include <cmath>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/json.h"
#include "tokenizer/jinja/split.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/jinja/wrap.h"

namespace avocet::tokenizer::jinja {
namespace {

Value Like(const Value& original, std::string text) {
  return original.is_string() && original.string().is_markup ? Value::Markup(std::move(text)) : Value::String(std::move(text));
}

// What most filters of texts begin with: anything is made a text.
Result<Value> AsText(Evaluator& evaluator, const Value& value) {
  if (value.is_string()) return value;
  AVOCET_TRY(std::string text, Str(value, evaluator.budget()));
  return Value::String(std::move(text));
}

// Applies the method of that name to the value as a text.
Result<Value> ByMethod(Evaluator& evaluator, const Value& self, const Bound& bound, std::string_view method) {
  AVOCET_TRY(const Value text, AsText(evaluator, self));
  return RunNative(*FindMethod(text, method), evaluator, text, bound.all());
}

Result<Value> CapitalizeFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  return ByMethod(evaluator, self, bound, "capitalize");
}
Result<Value> LowerFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  return ByMethod(evaluator, self, bound, "lower");
}
Result<Value> UpperFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  return ByMethod(evaluator, self, bound, "upper");
}

Result<Value> TrimFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const Value text, AsText(evaluator, self));
  Arguments chars;
  if (bound.Has(0)) chars.positional.push_back(*bound[0]);
  return RunNative(*FindMethod(text, "strip"), evaluator, text, chars);
}

Result<Value> ReplaceFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  Arguments arguments;
  for (size_t i = 0; i < 2; ++i) {
    AVOCET_TRY(std::string text, Str(*bound[i], evaluator.budget()));
    arguments.positional.push_back(Value::String(std::move(text)));
  }
  if (!bound.IsNone(2)) arguments.positional.push_back(*bound[2]);
  AVOCET_TRY(std::string text, Str(self, evaluator.budget()));
  const Value plain = Value::String(std::move(text));
  return RunNative(*FindMethod(plain, "replace"), evaluator, plain, arguments);
}

Result<Value> CenterFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const Value text, AsText(evaluator, self));
  AVOCET_TRY(const int64_t width, bound.Int(0, 80));
  AVOCET_TRY(std::string centered, Center(text.text(), width, ' ', evaluator.budget()));
  return Like(text, std::move(centered));
}

bool SplitsWords(uint32_t c) {
  return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

// Words begin behind white space and opening brackets; unlike str.title, an apostrophe begins none.
Result<Value> TitleFilter(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY(const Value value, AsText(evaluator, self));
  AVOCET_TRY_VOID(evaluator.budget().Text(value.text().size() * kCaseGrowthMax));
  const std::string_view text = value.text();
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool is_split = SplitsWords(NextCodePoint(text, at));
    const size_t first_end = at;
    while (at < text.size()) {
      size_t next = at;
      if (SplitsWords(NextCodePoint(text, next)) != is_split) break;
      at = next;
    }
    out += Upper(text.substr(begin, first_end - begin));
    out += Lower(text.substr(first_end, at - first_end));
  }
  return Like(value, std::move(out));
}

Result<Value> StringFilter(Evaluator& evaluator, const Value& self, const Bound&) {
  return AsText(evaluator, self);
}

Result<Value> FormatFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  const Arguments& all = bound.all();
  if (!all.positional.empty() && !all.named.empty())
    return Fail(Errc::kInvalidArgument, "format takes positional or named arguments, not both");
  AVOCET_TRY(const Value form, AsText(evaluator, self));
  if (all.named.empty()) {
    AVOCET_TRY(const Value values, MakeTuple(all.positional, evaluator.budget()));
    return PercentFormat(form, values, evaluator.budget());
  }
  DictBuilder values;
  for (const auto& [name, value] : all.named) {
    AVOCET_TRY_VOID(values.Set(Value::String(name), value, evaluator.budget()));
  }
  return PercentFormat(form, values.Build(), evaluator.budget());
}

// indent(width=4, first=False, blank=False)
Result<Value> IndentFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  if (self.is_undefined()) return UndefinedError(self);
  if (!self.is_string()) return Fail(Errc::kInvalidArgument, "indent needs a string, not {}", self.type_name());
  std::string indent;
  if (bound.Has(0) && bound[0]->is_string()) {
    indent = bound[0]->text();
  } else {
    AVOCET_TRY(const int64_t width, bound.Int(0, 4));
    AVOCET_TRY_VOID(evaluator.budget().Text(static_cast<size_t>(std::max<int64_t>(width, 0))));
    indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool indents_first = bound.Truth(1, false);
  const bool indents_blank = bound.Truth(2, false);
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  const std::string text = std::string(self.text()) + "\n";
  const std::vector<std::string_view> lines = SplitLines(text, LineEnds::kDrop);
  AVOCET_TRY_VOID(evaluator.budget().Text(text.size() + std::min(indent.size() * lines.size(), limits::kTemplateOutputBytesMax)));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 ? indents_blank || !lines[i].empty() : indents_first) out += indent;
    out += lines[i];
  }
  return Like(self, std::move(out));
}

// truncate(length=255, killwords=False, end='...', leeway=5)
Result<Value> TruncateFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const int64_t length, bound.Int(0, 255));
  AVOCET_TRY(const std::string_view end, bound.Text(2, "..."));
  AVOCET_TRY(const int64_t leeway, bound.IsNone(3) ? Result<int64_t>(5) : bound.Int(3, 5));
  if (length < CountCodePoints(end))
    return Fail(Errc::kInvalidArgument, "a length of at least {} is needed, not {}", CountCodePoints(end), length);
  if (leeway < 0) return Fail(Errc::kInvalidArgument, "a leeway of {}", leeway);
  AVOCET_TRY(const int64_t size, Length(self));
  if (size <= length + leeway) return self;
  if (!self.is_string()) return Fail(Errc::kInvalidArgument, "truncate needs a string, not {}", self.type_name());
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size() + end.size()));
  std::string_view kept = self.text().substr(0, ByteOffset(self.text(), length - CountCodePoints(end)));
  if (!bound.Truth(1, false)) kept = SplitFromEnd(kept, " ", 1)[0];
  return Like(self, std::string(kept).append(end));
}

// wordwrap(width=79, break_long_words=True, wrapstring=None, break_on_hyphens=True)
Result<Value> WordWrapFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  if (!self.is_string()) return Fail(Errc::kInvalidArgument, "wordwrap needs a string, not {}", self.type_name());
  WrapStyle style;
  AVOCET_TRY(style.width, bound.Int(0, 79));
  if (style.width <= 0) return Fail(Errc::kInvalidArgument, "a width of {}", style.width);
  style.breaks_long_words = bound.Truth(1, true);
  AVOCET_TRY(const std::string_view line_end, bound.IsNone(2) ? Result<std::string_view>("\n") : bound.Text(2, "\n"));
  style.breaks_on_hyphens = bound.Truth(3, true);
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size() * 4));
  std::string out;
  bool is_first_paragraph = true;
  for (const std::string_view paragraph : SplitLines(self.text(), LineEnds::kDrop)) {
    if (!std::exchange(is_first_paragraph, false)) out += line_end;
    bool is_first_line = true;
    for (const std::string& line : WrapParagraph(paragraph, style)) {
      AVOCET_TRY_VOID(evaluator.budget().Text(line.size() + line_end.size()));
      AVOCET_TRY_VOID(evaluator.budget().Fits(out.size() + line.size() + line_end.size()));
      if (!std::exchange(is_first_line, false)) out += line_end;
      out += line;
    }
  }
  return Value::String(std::move(out));
}

Result<Value> WordCountFilter(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY(const Value text, AsText(evaluator, self));
  AVOCET_TRY_VOID(evaluator.budget().Text(text.text().size()));
  int64_t num_words = 0;
  bool is_in_word = false;
  for (size_t at = 0; at < text.text().size();) {
    const bool is_word = IsWordCharacter(NextCodePoint(text.text(), at));
    if (is_word && !is_in_word) ++num_words;
    is_in_word = is_word;
  }
  return Value::Int(num_words);
}

Result<Value> EscapeFilter(Evaluator& evaluator, const Value& self, const Bound&) {
  if (self.is_string() && self.string().is_markup) return self;
  AVOCET_TRY(const Value text, AsText(evaluator, self));
  AVOCET_TRY_VOID(evaluator.budget().Text(text.text().size() * kEscapeGrowthMax));
  return Value::Markup(EscapeHtml(text.text()));
}

Result<Value> ForceEscapeFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(std::string text, Str(self, evaluator.budget()));
  return EscapeFilter(evaluator, Value::String(std::move(text)), bound);
}

Result<Value> SafeFilter(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY(std::string text, Str(self, evaluator.budget()));
  return Value::Markup(std::move(text));
}

enum class UrlPart : uint8_t { kPath, kQuery };
Result<void> AppendQuoted(Evaluator& evaluator, const Value& value, UrlPart part, std::string& out) {
  AVOCET_TRY(const std::string text, Str(value, evaluator.budget()));
  AVOCET_TRY_VOID(evaluator.budget().Text(3 * text.size()));
  AVOCET_TRY_VOID(evaluator.budget().Fits(out.size() + 3 * text.size()));
  for (const char c : text) {
    const bool is_plain =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '.' || c == '-' || c == '~';
    if (is_plain || (c == '/' && part == UrlPart::kPath)) {
      out += c;
    } else if (c == ' ' && part == UrlPart::kQuery) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return {};
}

Result<Value> UrlEncodeFilter(Evaluator& evaluator, const Value& self, const Bound&) {
  std::string out;
  Result<std::vector<Value>> pairs =
      self.is_dict() ? Iterate(Value::View(ViewKind::kItems, self.dict_ref()), evaluator.budget()) : Iterate(self, evaluator.budget());
  if (self.is_string() || (!pairs && !evaluator.budget().is_exhausted())) {
    AVOCET_TRY_VOID(AppendQuoted(evaluator, self, UrlPart::kPath, out));
    return Value::String(std::move(out));
  }
  if (!pairs) return std::unexpected(std::move(pairs).error());
  for (size_t i = 0; i < pairs->size(); ++i) {
    AVOCET_TRY(const std::vector<Value> pair, Iterate((*pairs)[i], evaluator.budget()));
    if (pair.size() != 2) return Fail(Errc::kInvalidArgument, "cannot unpack {} values into 2 names", pair.size());
    if (i > 0) out += '&';
    AVOCET_TRY_VOID(AppendQuoted(evaluator, pair[0], UrlPart::kQuery, out));
    out += '=';
    AVOCET_TRY_VOID(AppendQuoted(evaluator, pair[1], UrlPart::kQuery, out));
  }
  return Value::String(std::move(out));
}

Result<Value> AbsFilter(Evaluator&, const Value& self, const Bound&) {
  if (self.is_float()) return Value::Float(std::fabs(self.real()));
  if (!self.is_integer()) return Fail(Errc::kInvalidArgument, "bad operand type for abs(): '{}'", self.type_name());
  if (self.integer() >= 0) return Value::Int(self.integer());
  AVOCET_TRY(const Integer result, IntegerOperation(BinaryOp::kSubtract, 0, self.integer()));
  return Value::Int(result);
}

// int(default=0, base=10)
Result<Value> IntFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  const Value default_value = bound.Has(0) ? *bound[0] : Value::Int(0);
  if (self.is_undefined()) return UndefinedError(self);
  if (self.is_integer()) return Value::Int(self.integer());
  if (self.is_float()) {
    if (std::isnan(self.real())) return default_value;
    const std::optional<Integer> whole = Truncate(self.real());
    if (!whole) return Fail(Errc::kInvalidArgument, "cannot convert float {} to integer", FloatRepr(self.real()));
    return Value::Int(*whole);
  }
  if (!self.is_string()) return default_value;
  AVOCET_TRY(const int64_t base, bound.Int(1, 10));
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  if (base == 0 || (base >= 2 && base <= 36)) {
    if (const std::optional<Integer> value = ParseInteger(self.text(), static_cast<int>(base))) return Value::Int(*value);
  }
  const std::optional<double> real = ParseFloat(self.text());
  const std::optional<Integer> whole = real ? Truncate(*real) : std::nullopt;
  return whole ? Value::Int(*whole) : default_value;
}

Result<Value> FloatFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  if (self.is_undefined()) return UndefinedError(self);
  if (self.is_number()) return Value::Float(self.real());
  if (self.is_string()) {
    AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
    if (const std::optional<double> value = ParseFloat(self.text())) return Value::Float(*value);
  }
  return bound.Has(0) ? *bound[0] : Value::Float(0);
}

// round(precision=0, method='common')
Result<Value> RoundFilter(Evaluator&, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::string_view method, bound.Text(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor")
    return Fail(Errc::kInvalidArgument, "method must be common, ceil or floor");
  AVOCET_TRY(const int64_t digits, bound.Int(0, 0));
  if (!self.is_number()) return Fail(Errc::kInvalidArgument, "type {} cannot be rounded", self.type_name());
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(digits));
    const double scaled = self.real() * scale;
    if (!std::isfinite(scaled)) return Fail(Errc::kInvalidArgument, "cannot convert float {} to integer", FloatRepr(scaled));
    return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (self.is_float()) return Value::Float(RoundFloat(self.real(), digits));
  const std::optional<Integer> rounded = RoundInteger(self.integer(), digits);
  if (!rounded) return Fail(Errc::kInvalidArgument, "an integer needs more than 128 bits");
  return Value::Int(*rounded);
}

Result<Value> FileSizeFilter(Evaluator&, const Value& self, const Bound& bound) {
  const std::optional<double> parsed = self.is_string()   ? ParseFloat(self.text())
                                       : self.is_number() ? std::optional(self.real())
                                                          : std::nullopt;
  if (!parsed) return Fail(Errc::kInvalidArgument, "filesizeformat needs a number, not {}", self.type_name());
  const bool is_binary = bound.Truth(0, false);
  const double base = is_binary ? 1024 : 1000;
  if (*parsed == 1) return Value::String("1 Byte");
  if (*parsed < base) {
    const std::optional<Integer> whole = Truncate(*parsed);
    if (!whole) return Fail(Errc::kInvalidArgument, "cannot convert float {} to integer", FloatRepr(*parsed));
    return Value::String(ToString(*whole) + " Bytes");
  }
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  for (unit = base * base; i + 1 < kPrefixes.size() && *parsed >= unit; ++i) unit *= base;
  const std::string prefix = is_binary && i == 0 ? "K" : std::string(1, kPrefixes[i]);
  return Value::String(
      fmt::format("{} {}{}", FormatFloat(base * *parsed / unit, {.type = 'f', .precision = 1}), prefix, is_binary ? "iB" : "B"));
}

// tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)
Result<Value> ToJsonFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  JsonStyle style;
  style.is_ascii = bound.Truth(0, false);
  style.sorts_keys = bound.Truth(3, false);
  if (!bound.IsNone(1)) {
    if (bound[1]->is_string()) {
      style.indent = std::string(bound[1]->text());
    } else {
      AVOCET_TRY(const int64_t width, bound.Int(1, 0));
      AVOCET_TRY_VOID(evaluator.budget().Text(static_cast<size_t>(std::max<int64_t>(width, 0))));
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (!bound.IsNone(2)) {
    AVOCET_TRY(const std::vector<Value> separators, Iterate(*bound[2], evaluator.budget()));
    if (separators.size() != 2) return Fail(Errc::kInvalidArgument, "two separators are needed, not {}", separators.size());
    for (const Value& separator : separators) {
      if (!separator.is_string()) return Fail(Errc::kInvalidArgument, "a separator is a string, not {}", separator.type_name());
      AVOCET_TRY_VOID(evaluator.budget().Text(separator.text().size()));
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  AVOCET_TRY(std::string text, DumpJson(self, style, evaluator.budget()));
  return Value::String(std::move(text));
}

Result<Value> DefaultFilter(Evaluator&, const Value& self, const Bound& bound) {
  if (!self.is_undefined() && !(bound.Truth(1, false) && !self.IsTrue())) return self;
  return bound.Has(0) ? *bound[0] : Value::String("");
}

Result<Value> AttrFilter(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::string_view name, bound.Text(0, ""));
  AVOCET_TRY(const std::optional<Value> attribute, evaluator.FindAttribute(self, name));
  return attribute ? *attribute : Value::Undefined({UndefinedData::Reason::kAttribute, std::string(name), self.type_name()});
}

constexpr std::array<NativeFunction, 27> kFilters = {{
    {"abs", {}, 0, AbsFilter},
    {"attr", {"name"}, 1, AttrFilter},
    {"capitalize", {}, 0, CapitalizeFilter},
    {"center", {"width"}, 0, CenterFilter},
    {"d", {"default_value", "boolean"}, 0, DefaultFilter},
    {"default", {"default_value", "boolean"}, 0, DefaultFilter},
    {"e", {}, 0, EscapeFilter},
    {"escape", {}, 0, EscapeFilter},
    {"filesizeformat", {"binary"}, 0, FileSizeFilter},
    {"float", {"default"}, 0, FloatFilter},
    {"forceescape", {}, 0, ForceEscapeFilter},
    {"format", {"*"}, 0, FormatFilter},
    {"indent", {"width", "first", "blank"}, 0, IndentFilter},
    {"int", {"default", "base"}, 0, IntFilter},
    {"lower", {}, 0, LowerFilter},
    {"replace", {"old", "new", "count"}, 2, ReplaceFilter},
    {"round", {"precision", "method"}, 0, RoundFilter},
    {"safe", {}, 0, SafeFilter},
    {"string", {}, 0, StringFilter},
    {"title", {}, 0, TitleFilter},
    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, ToJsonFilter},
    {"trim", {"chars"}, 0, TrimFilter},
    {"truncate", {"length", "killwords", "end", "leeway"}, 0, TruncateFilter},
    {"upper", {}, 0, UpperFilter},
    {"urlencode", {}, 0, UrlEncodeFilter},
    {"wordcount", {}, 0, WordCountFilter},
    {"wordwrap", {"width", "break_long_words", "wrapstring", "break_on_hyphens"}, 0, WordWrapFilter},
}};
static_assert(std::ranges::is_sorted(kFilters, {}, &NativeFunction::name));

}  // namespace

std::span<const NativeFunction> TextFilters() {
  return kFilters;
}

}  // namespace avocet::tokenizer::jinja
