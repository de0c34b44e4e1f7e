// Methods of strings, lists and mappings, and the binary operators. What would change a value is refused, as the reference's immutable
// sandbox does.
#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include "base/limits.h"
#include "tokenizer/jinja_eval.h"

namespace avocet::tokenizer::jinja {
namespace {

using StringMethod = Value (*)(Evaluator&, const std::string&, Arguments&);

bool IsSpaceChar(char32_t c) {
  return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0 || (c >= 0x1c && c <= 0x1f);
}

const std::string& StringArgument(const Arguments& arguments, size_t index, const char* method) {
  const Value* value = Argument(arguments, index, "");
  if (value == nullptr || !value->is_string()) throw TemplateError(fmt::format("{}() takes a string", method));
  return value->string();
}

int64_t IntArgument(const Arguments& arguments, size_t index, const char* name, int64_t missing) {
  const Value* value = Argument(arguments, index, name);
  if (value == nullptr || value->is_none()) return missing;
  if (!value->is_integral()) throw TemplateError(fmt::format("'{}' object cannot be interpreted as an integer", value->TypeName()));
  return value->AsInt();
}

enum class Side { kLeft, kRight, kBoth };

std::string StripChars(const std::string& text, const Value* chars, Side side) {
  const std::u32string all = Decode(text);
  const bool strips_space = chars == nullptr || chars->is_none();
  if (!strips_space && !chars->is_string()) throw TemplateError("strip arg must be None or str");
  const std::u32string set = strips_space ? std::u32string() : Decode(chars->string());
  const auto goes = [&](char32_t c) { return strips_space ? IsSpaceChar(c) : set.find(c) != std::u32string::npos; };
  size_t begin = 0, end = all.size();
  while (side != Side::kRight && begin < end && goes(all[begin])) ++begin;
  while (side != Side::kLeft && end > begin && goes(all[end - 1])) --end;
  return Encode(std::u32string_view(all).substr(begin, end - begin));
}

Value Strings(const std::vector<std::string>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string& part : parts) items.push_back(Value::MakeString(part));
  return Value::MakeList(std::move(items));
}

std::vector<std::string> SplitSpace(const std::string& text, int64_t limit) {
  const std::u32string all = Decode(text);
  std::vector<std::string> parts;
  size_t i = 0;
  for (;;) {
    while (i < all.size() && IsSpaceChar(all[i])) ++i;
    if (i >= all.size()) return parts;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(StripChars(Encode(std::u32string_view(all).substr(i)), nullptr, Side::kRight));
      return parts;
    }
    size_t end = i;
    while (end < all.size() && !IsSpaceChar(all[end])) ++end;
    parts.push_back(Encode(std::u32string_view(all).substr(i, end - i)));
    i = end;
  }
}

Value Split(Evaluator& evaluator, const std::string& text, Arguments& arguments) {
  evaluator.Charge(static_cast<int64_t>(text.size() / 16));
  const Value* separator = Argument(arguments, 0, "sep");
  const int64_t limit = IntArgument(arguments, 1, "maxsplit", -1);
  if (separator == nullptr || separator->is_none()) return Strings(SplitSpace(text, limit));
  if (!separator->is_string() || separator->string().empty()) throw TemplateError("empty separator");
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at = text.find(separator->string()); at != std::string::npos && (limit < 0 || static_cast<int64_t>(parts.size()) < limit);
       at = text.find(separator->string(), begin)) {
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator->string().size();
  }
  parts.push_back(text.substr(begin));
  return Strings(parts);
}

Value RightSplit(Evaluator& evaluator, const std::string& text, Arguments& arguments) {
  const Value* separator = Argument(arguments, 0, "sep");
  const int64_t limit = IntArgument(arguments, 1, "maxsplit", -1);
  if (separator == nullptr || separator->is_none()) {
    if (limit < 0) return Split(evaluator, text, arguments);
    std::vector<std::string> parts = SplitSpace(text, -1);
    if (static_cast<int64_t>(parts.size()) > limit + 1) throw TemplateError("rsplit() by white space with a limit is not offered");
    return Strings(parts);
  }
  if (!separator->is_string() || separator->string().empty()) throw TemplateError("empty separator");
  std::vector<std::string> parts;
  size_t end = text.size();
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at =
        end >= separator->string().size() ? text.rfind(separator->string(), end - separator->string().size()) : std::string::npos;
    if (at == std::string::npos) break;
    parts.push_back(text.substr(at + separator->string().size(), end - at - separator->string().size()));
    end = at;
  }
  parts.push_back(text.substr(0, end));
  std::ranges::reverse(parts);
  return Strings(parts);
}

std::string ReplaceAll(const Evaluator& evaluator, const std::string& text, const std::string& from, const std::string& to, int64_t limit) {
  std::string out;
  if (from.empty()) {
    int64_t count = 0;
    for (char32_t c : Decode(text)) {
      if (limit < 0 || count++ < limit) out += to;
      out += Encode(std::u32string_view(&c, 1));
      evaluator.CheckBytes(out.size());
    }
    if (limit < 0 || count < limit) out += to;
    return out;
  }
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string::npos && limit != 0; at = text.find(from, begin), --limit) {
    out.append(text, begin, at - begin);
    out += to;
    evaluator.CheckBytes(out.size());
    begin = at + from.size();
  }
  out.append(text, begin);
  return out;
}

Value Replace(Evaluator& evaluator, const std::string& text, Arguments& arguments) {
  evaluator.Charge(static_cast<int64_t>(text.size() / 16));
  return Value::MakeString(ReplaceAll(evaluator, text, StringArgument(arguments, 0, "replace"), StringArgument(arguments, 1, "replace"),
                                      IntArgument(arguments, 2, "count", -1)));
}

template <bool kFront>
bool MatchesEnd(const std::string& text, const Arguments& arguments) {
  const Value* what = Argument(arguments, 0, "");
  const auto matches = [&text](const Value& one) {
    if (!one.is_string()) throw TemplateError("startswith/endswith takes a string or a tuple of strings");
    return kFront ? text.starts_with(one.string()) : text.ends_with(one.string());
  };
  if (what != nullptr && what->is_sequence()) return std::ranges::any_of(what->sequence().items, matches);
  return what != nullptr && matches(*what);
}

std::string Cased(const std::string& text, bool is_upper) {
  icu::UnicodeString unicode = icu::UnicodeString::fromUTF8(text);
  is_upper ? unicode.toUpper(icu::Locale::getRoot()) : unicode.toLower(icu::Locale::getRoot());
  std::string out;
  return unicode.toUTF8String(out);
}

// Python's str.title: a letter after a letter is lower case, any other upper case.
std::string Title(const std::string& text) {
  std::u32string out;
  bool follows_letter = false;
  for (char32_t c : Decode(text)) {
    const auto code = static_cast<UChar32>(c);
    out += static_cast<char32_t>(follows_letter ? u_tolower(code) : u_totitle(code));
    follows_letter = u_isalpha(code) != 0;
  }
  return Encode(out);
}

std::string Capitalize(const std::string& text) {
  std::u32string all = Decode(text);
  if (all.empty()) return text;
  const auto first = static_cast<char32_t>(u_totitle(static_cast<UChar32>(all[0])));
  return Encode(std::u32string_view(&first, 1)) + Cased(Encode(std::u32string_view(all).substr(1)), false);
}

// Index in code points of what find() looks for; -1.
int64_t FindIndex(const std::string& text, const Arguments& arguments, bool from_right) {
  const std::string& what = StringArgument(arguments, 0, "find");
  const std::u32string all = Decode(text), part = Decode(what);
  const auto size = static_cast<int64_t>(all.size());
  const auto clamp = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t begin = clamp(IntArgument(arguments, 1, "start", 0)), end = clamp(IntArgument(arguments, 2, "end", size));
  if (begin > end) return -1;
  const std::u32string_view window = std::u32string_view(all).substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  const size_t at = from_right ? window.rfind(part) : window.find(part);
  return at == std::u32string_view::npos ? -1 : static_cast<int64_t>(at) + begin;
}

template <typename Predicate>
bool AllChars(const std::string& text, const Predicate& predicate) {
  const std::u32string all = Decode(text);
  return !all.empty() && std::ranges::all_of(all, [&](char32_t c) { return predicate(static_cast<UChar32>(c)); });
}

bool HasCase(const std::string& text, bool is_upper) {
  bool has_cased = false;
  for (char32_t c : Decode(text)) {
    const auto code = static_cast<UChar32>(c);
    if (is_upper ? u_islower(code) != 0 : u_isupper(code) != 0) return false;
    has_cased = has_cased || u_islower(code) != 0 || u_isupper(code) != 0;
  }
  return has_cased;
}

std::string Pad(const Evaluator& evaluator, const std::string& text, const Arguments& arguments, Side side) {
  const int64_t width = IntArgument(arguments, 0, "width", 0);
  const Value* fill = Argument(arguments, 1, "fillchar");
  const std::string filler = fill != nullptr ? fill->Str() : " ";
  const int64_t missing = width - CountCodePoints(text);
  if (missing <= 0) return text;
  evaluator.CheckBytes(text.size() + static_cast<size_t>(missing) * filler.size());
  // Python puts the odd one to the left when the width is odd as well.
  const int64_t left = side == Side::kLeft ? missing : side == Side::kRight ? 0 : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += filler;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += filler;
  return out;
}

Value Join(Evaluator& evaluator, const std::string& separator, Arguments& arguments) {
  const Value* items = Argument(arguments, 0, "");
  if (items == nullptr) throw TemplateError("join() takes the items to join");
  std::string out;
  bool is_first = true;
  for (const Value& item : evaluator.Iterate(*items)) {
    if (!item.is_string()) throw TemplateError(fmt::format("sequence item: expected str instance, {} found", item.TypeName()));
    if (!is_first) out += separator;
    is_first = false;
    out += item.string();
    evaluator.CheckBytes(out.size());
  }
  return Value::MakeString(std::move(out));
}

// '{}', '{0}', '{name}' and '{{', '}}'; format specifications are refused.
Value Format(Evaluator& evaluator, const std::string& text, Arguments& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
      out += c;
      ++i;
    } else if (c == '{') {
      const size_t end = text.find('}', i);
      if (end == std::string::npos) throw TemplateError("expected '}' before end of string");
      const std::string field = text.substr(i + 1, end - i - 1);
      if (field.find_first_of(":!.[") != std::string::npos) throw TemplateError(fmt::format("format field '{}' is not offered", field));
      const bool is_index = !field.empty() && std::ranges::all_of(field, [](char d) { return d >= '0' && d <= '9'; }) && field.size() < 6;
      const Value* value = field.empty() ? Argument(arguments, next++, "")
                           : is_index    ? Argument(arguments, static_cast<size_t>(std::stoi(field)), "")
                                         : Argument(arguments, SIZE_MAX, field);
      if (value == nullptr) throw TemplateError("format() misses an argument");
      out += value->Str();
      i = end;
    } else {
      out += c;
    }
    evaluator.CheckBytes(out.size());
  }
  return Value::MakeString(std::move(out));
}

Value SplitLines(Evaluator&, const std::string& text, Arguments& arguments) {
  const Value* keep = Argument(arguments, 0, "keepends");
  const bool keeps = keep != nullptr && keep->IsTrue();
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find_first_of("\r\n\v\f", begin);
    const size_t stop = std::min(end, text.size());
    size_t next = stop < text.size() ? stop + 1 : stop;
    if (stop < text.size() && text[stop] == '\r' && next < text.size() && text[next] == '\n') ++next;
    lines.push_back(text.substr(begin, (keeps ? next : stop) - begin));
    begin = next;
  }
  return Strings(lines);
}

Value Partition(const std::string& text, const Arguments& arguments, bool from_right) {
  const std::string& separator = StringArgument(arguments, 0, "partition");
  if (separator.empty()) throw TemplateError("empty separator");
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  const auto make = [](std::string a, std::string b, std::string c) {
    return Value::MakeTuple({Value::MakeString(std::move(a)), Value::MakeString(std::move(b)), Value::MakeString(std::move(c))});
  };
  if (at == std::string::npos) return from_right ? make("", "", text) : make(text, "", "");
  return make(text.substr(0, at), separator, text.substr(at + separator.size()));
}

Value Index(const std::string& text, const Arguments& arguments, bool from_right) {
  const int64_t at = FindIndex(text, arguments, from_right);
  if (at < 0) throw TemplateError("substring not found");
  return Value::MakeInt(at);
}

Value CountPart(Evaluator&, const std::string& text, Arguments& arguments) {
  const std::string& part = StringArgument(arguments, 0, "count");
  if (part.empty()) return Value::MakeInt(CountCodePoints(text) + 1);
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return Value::MakeInt(count);
}

std::string ZeroFill(const Evaluator& evaluator, const std::string& text, const Arguments& arguments) {
  const int64_t missing = IntArgument(arguments, 0, "width", 0) - CountCodePoints(text);
  if (missing <= 0) return text;
  evaluator.CheckBytes(text.size() + static_cast<size_t>(missing));
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  return text.substr(0, has_sign ? 1 : 0) + std::string(static_cast<size_t>(missing), '0') + text.substr(has_sign ? 1 : 0);
}

#define AVOCET_TEXT(expression)                                   \
  [](Evaluator& e, const std::string& s, Arguments& a) -> Value { \
    (void)e;                                                      \
    (void)a;                                                      \
    return Value::MakeString(expression);                         \
  }
#define AVOCET_TRUTH(expression)                                  \
  [](Evaluator& e, const std::string& s, Arguments& a) -> Value { \
    (void)e;                                                      \
    (void)a;                                                      \
    return Value::MakeBool(expression);                           \
  }

const std::unordered_map<std::string, StringMethod>& StringMethods() {
  static const std::unordered_map<std::string, StringMethod> methods = {
      {"split", Split},
      {"rsplit", RightSplit},
      {"splitlines", SplitLines},
      {"replace", Replace},
      {"join", Join},
      {"format", Format},
      {"count", CountPart},
      {"strip", AVOCET_TEXT(StripChars(s, Argument(a, 0, "chars"), Side::kBoth))},
      {"lstrip", AVOCET_TEXT(StripChars(s, Argument(a, 0, "chars"), Side::kLeft))},
      {"rstrip", AVOCET_TEXT(StripChars(s, Argument(a, 0, "chars"), Side::kRight))},
      {"upper", AVOCET_TEXT(Cased(s, true))},
      {"lower", AVOCET_TEXT(Cased(s, false))},
      {"casefold", AVOCET_TEXT(Cased(s, false))},
      {"title", AVOCET_TEXT(Title(s))},
      {"capitalize", AVOCET_TEXT(Capitalize(s))},
      {"removeprefix",
       AVOCET_TEXT(s.starts_with(StringArgument(a, 0, "removeprefix")) ? s.substr(StringArgument(a, 0, "removeprefix").size()) : s)},
      {"removesuffix",
       AVOCET_TEXT(s.ends_with(StringArgument(a, 0, "removesuffix")) ? s.substr(0, s.size() - StringArgument(a, 0, "removesuffix").size())
                                                                     : s)},
      {"center", AVOCET_TEXT(Pad(e, s, a, Side::kBoth))},
      {"ljust", AVOCET_TEXT(Pad(e, s, a, Side::kRight))},
      {"rjust", AVOCET_TEXT(Pad(e, s, a, Side::kLeft))},
      {"zfill", AVOCET_TEXT(ZeroFill(e, s, a))},
      {"startswith", AVOCET_TRUTH((MatchesEnd<true>(s, a)))},
      {"endswith", AVOCET_TRUTH((MatchesEnd<false>(s, a)))},
      {"isdigit", AVOCET_TRUTH(AllChars(s, [](UChar32 c) { return u_isdigit(c) != 0; }))},
      {"isnumeric", AVOCET_TRUTH(AllChars(s, [](UChar32 c) { return u_getNumericValue(c) != U_NO_NUMERIC_VALUE; }))},
      {"isdecimal", AVOCET_TRUTH(AllChars(s, [](UChar32 c) { return u_charType(c) == U_DECIMAL_DIGIT_NUMBER; }))},
      {"isalpha", AVOCET_TRUTH(AllChars(s, [](UChar32 c) { return u_isalpha(c) != 0; }))},
      {"isalnum", AVOCET_TRUTH(AllChars(s, [](UChar32 c) { return u_isalnum(c) != 0; }))},
      {"isspace", AVOCET_TRUTH(AllChars(s, [](UChar32 c) { return IsSpaceChar(static_cast<char32_t>(c)); }))},
      {"isascii", AVOCET_TRUTH(std::ranges::all_of(s, [](char c) { return static_cast<unsigned char>(c) < 0x80; }))},
      {"isupper", AVOCET_TRUTH(HasCase(s, true))},
      {"islower", AVOCET_TRUTH(HasCase(s, false))},
      {"find", [](Evaluator&, const std::string& s, Arguments& a) { return Value::MakeInt(FindIndex(s, a, false)); }},
      {"rfind", [](Evaluator&, const std::string& s, Arguments& a) { return Value::MakeInt(FindIndex(s, a, true)); }},
      {"index", [](Evaluator&, const std::string& s, Arguments& a) { return Index(s, a, false); }},
      {"rindex", [](Evaluator&, const std::string& s, Arguments& a) { return Index(s, a, true); }},
      {"partition", [](Evaluator&, const std::string& s, Arguments& a) { return Partition(s, a, false); }},
      {"rpartition", [](Evaluator&, const std::string& s, Arguments& a) { return Partition(s, a, true); }},
  };
  return methods;
}
#undef AVOCET_TEXT
#undef AVOCET_TRUTH

Value MappingMethod(const Value& object, const std::string& name) {
  const auto entries = [object](auto pick) {
    return [object, pick](Evaluator& evaluator, Arguments&) {
      evaluator.Charge(static_cast<int64_t>(object.mapping().items.size()));
      std::vector<Value> items;
      for (const auto& entry : object.mapping().items) items.push_back(pick(entry));
      return Value::MakeList(std::move(items));
    };
  };
  if (name == "items")
    return Value::MakeCallable(name, entries([](const auto& entry) { return Value::MakeTuple({entry.first, entry.second}); }));
  if (name == "keys") return Value::MakeCallable(name, entries([](const auto& entry) { return entry.first; }));
  if (name == "values") return Value::MakeCallable(name, entries([](const auto& entry) { return entry.second; }));
  if (name == "copy") return Value::MakeCallable(name, [object](Evaluator&, Arguments&) { return object; });
  if (name == "get") {
    return Value::MakeCallable(name, [object](Evaluator&, Arguments& arguments) {
      const Value* key = Argument(arguments, 0, "key");
      if (key == nullptr) throw TemplateError("get() takes a key");
      if (const Value* value = object.mapping().Find(*key)) return *value;
      const Value* missing = Argument(arguments, 1, "default");
      return missing != nullptr ? *missing : Value::MakeNone();
    });
  }
  return {};
}

Value SequenceMethod(const Value& object, const std::string& name) {
  if (name == "index") {
    return Value::MakeCallable(name, [object](Evaluator&, Arguments& arguments) {
      const Value* what = Argument(arguments, 0, "");
      const auto& items = object.sequence().items;
      for (size_t i = 0; what != nullptr && i < items.size(); ++i) {
        if (Equal(items[i], *what)) return Value::MakeInt(static_cast<int64_t>(i));
      }
      throw TemplateError("the value is not in the list");
    });
  }
  if (name == "count") {
    return Value::MakeCallable(name, [object](Evaluator&, Arguments& arguments) {
      const Value* what = Argument(arguments, 0, "");
      return Value::MakeInt(
          what == nullptr ? 0 : std::ranges::count_if(object.sequence().items, [what](const Value& item) { return Equal(item, *what); }));
    });
  }
  if (name == "copy") return Value::MakeCallable(name, [object](Evaluator&, Arguments&) { return object; });
  return {};
}

constexpr std::array kChanging = {"append", "extend", "insert",     "pop",     "remove", "clear",  "reverse",
                                  "sort",   "update", "setdefault", "popitem", "add",    "discard"};

// Python's floor division and modulo.
int64_t FloorDiv(int64_t a, int64_t b) {
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

[[noreturn]] void Overflow() {
  throw TemplateError("an integer leaves the range of 64 bits");
}

Value IntOperation(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) Overflow();
    return Value::MakeInt(result);
  }
  if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) Overflow();
    return Value::MakeInt(result);
  }
  if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) Overflow();
    return Value::MakeInt(result);
  }
  if (op == "**") {
    if (b < 0) return Value::MakeFloat(std::pow(static_cast<double>(a), static_cast<double>(b)));
    if (b > 64 && a != 0 && a != 1 && a != -1) Overflow();
    result = 1;
    for (int64_t i = 0; i < (b > 64 ? b % 2 + 2 : b); ++i) {
      if (__builtin_mul_overflow(result, a, &result)) Overflow();
    }
    return Value::MakeInt(result);
  }
  if (b == 0) throw TemplateError(op == "/" ? "division by zero" : "integer division or modulo by zero");
  if (op == "/") return Value::MakeFloat(static_cast<double>(a) / static_cast<double>(b));
  if (a == INT64_MIN && b == -1) Overflow();
  return Value::MakeInt(op == "//" ? FloorDiv(a, b) : a - FloorDiv(a, b) * b);
}

Value FloatOperation(const std::string& op, double a, double b) {
  if (op == "+") return Value::MakeFloat(a + b);
  if (op == "-") return Value::MakeFloat(a - b);
  if (op == "*") return Value::MakeFloat(a * b);
  if (op == "**") return Value::MakeFloat(std::pow(a, b));
  if (b == 0) throw TemplateError("float division by zero");
  if (op == "/") return Value::MakeFloat(a / b);
  if (op == "//") return Value::MakeFloat(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value::MakeFloat(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

// '%s and %d' % values
Value PercentFormat(Evaluator& evaluator, const std::string& text, const Value& values) {
  const std::vector<Value> items =
      values.is_sequence() && values.sequence().kind == SequenceKind::kTuple ? values.sequence().items : std::vector<Value>{values};
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (++i >= text.size()) throw TemplateError("incomplete format");
    if (text[i] == '%') {
      out += '%';
      continue;
    }
    if (next >= items.size()) throw TemplateError("not enough arguments for format string");
    const Value& value = items[next++];
    if (text[i] == 's') {
      out += value.Str();
    } else if (text[i] == 'r') {
      out += value.Repr();
    } else if (text[i] == 'd' && value.is_number()) {
      out += value.is_float()  ? std::to_string(static_cast<int64_t>(value.AsDouble()))
             : value.is_bool() ? std::to_string(value.AsInt())
                               : value.Str();
    } else if (text[i] == 'f' && value.is_number()) {
      out += fmt::format("{:.6f}", value.AsDouble());
    } else {
      throw TemplateError(fmt::format("format '%{}' is not offered for '{}'", text[i], value.TypeName()));
    }
    evaluator.CheckBytes(out.size());
  }
  if (next < items.size() && !values.is_mapping()) throw TemplateError("not all arguments converted during string formatting");
  return Value::MakeString(std::move(out));
}

Value Repeat(Evaluator& evaluator, const Value& what, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (what.is_string()) {
    const std::string& text = what.string();
    if (count > 0)
      evaluator.CheckBytes(
          text.size() > limits::kTemplateOutputBytesMax / static_cast<size_t>(count) ? SIZE_MAX : text.size() * static_cast<size_t>(count));
    std::string out;
    for (int64_t i = 0; i < count && !text.empty(); ++i) out += text;
    evaluator.Charge(static_cast<int64_t>(out.size() / 256));
    return Value::MakeString(std::move(out));
  }
  const auto& items = what.sequence().items;
  if (!items.empty() && count > limits::kTemplateStepsMax / static_cast<int64_t>(items.size()))
    throw TemplateError("the list becomes too long");
  evaluator.Charge(count * static_cast<int64_t>(items.size()));
  std::vector<Value> out;
  for (int64_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  return what.sequence().kind == SequenceKind::kTuple ? Value::MakeTuple(std::move(out)) : Value::MakeList(std::move(out));
}

}  // namespace

Value FindMethod(const Value& object, const std::string& name) {
  if (object.is_string()) {
    const auto found = StringMethods().find(name);
    if (found == StringMethods().end()) return {};
    const StringMethod method = found->second;
    return Value::MakeCallable(
        name, [object, method](Evaluator& evaluator, Arguments& arguments) { return method(evaluator, object.string(), arguments); });
  }
  if (object.is_mapping() || object.is_sequence()) {
    if (std::ranges::find(kChanging, name) != kChanging.end() &&
        !(object.is_mapping() && object.mapping().Find(Value::MakeString(name)) != nullptr)) {
      return Value::MakeCallable(name, [name](Evaluator&, Arguments&) -> Value {
        throw TemplateError(fmt::format("'{}' would change a value, which templates may not", name));
      });
    }
    return object.is_mapping() ? MappingMethod(object, name) : SequenceMethod(object, name);
  }
  return {};
}

Value BinaryOperation(Evaluator& evaluator, const std::string& op, const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined())
    throw TemplateError(fmt::format("'{}' is undefined", (a.is_undefined() ? a : b).undefined().name));
  if (a.is_number() && b.is_number()) {
    if (a.is_big() || b.is_big()) Overflow();
    return a.is_integral() && b.is_integral() ? IntOperation(op, a.AsInt(), b.AsInt()) : FloatOperation(op, a.AsDouble(), b.AsDouble());
  }
  if (op == "+" && a.is_string() && b.is_string()) {
    evaluator.CheckBytes(a.string().size() + b.string().size());
    evaluator.Charge(static_cast<int64_t>((a.string().size() + b.string().size()) / 1024));
    return Value::MakeString(a.string() + b.string());
  }
  if (op == "+" && a.is_sequence() && b.is_sequence() && a.sequence().kind == b.sequence().kind) {
    std::vector<Value> items = a.sequence().items;
    items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
    evaluator.Charge(static_cast<int64_t>(items.size() / 4));
    return a.sequence().kind == SequenceKind::kTuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
  }
  if (op == "*" && (a.is_string() || a.is_sequence()) && b.is_integral()) return Repeat(evaluator, a, b.AsInt());
  if (op == "*" && (b.is_string() || b.is_sequence()) && a.is_integral()) return Repeat(evaluator, b, a.AsInt());
  if (op == "%" && a.is_string()) return PercentFormat(evaluator, a.string(), b);
  if (op == "+" && a.is_string()) throw TemplateError(fmt::format("can only concatenate str (not \"{}\") to str", b.TypeName()));
  throw TemplateError(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, a.TypeName(), b.TypeName()));
}

}  // namespace avocet::tokenizer::jinja
