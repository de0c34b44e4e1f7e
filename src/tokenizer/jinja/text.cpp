#include "tokenizer/jinja/text.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <unicode/ucasemap.h>
#include <unicode/uchar.h>

#include "base/check.h"

namespace avocet::tokenizer::jinja {
namespace {

UChar32 Icu(uint32_t c) {
  return static_cast<UChar32>(c);
}

bool IsAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// The root locale's rules, which are Python's: full mappings, and a capital sigma at the end of a word becomes the final form.
const UCaseMap* RootCaseMap() {
  static const UCaseMap* const map = [] {
    UErrorCode status = U_ZERO_ERROR;
    UCaseMap* opened = ucasemap_open("", 0, &status);
    CHECK(U_SUCCESS(status), "no case map: {}", u_errorName(status));
    return opened;
  }();
  return map;
}

using CaseFunction = int32_t (*)(const UCaseMap*, char*, int32_t, const char*, int32_t, UErrorCode*);

std::string MapCase(std::string_view text, CaseFunction function) {
  std::string out(text.size() + 16, '\0');
  for (;;) {
    UErrorCode status = U_ZERO_ERROR;
    const int32_t num_bytes =
        function(RootCaseMap(), out.data(), static_cast<int32_t>(out.size()), text.data(), static_cast<int32_t>(text.size()), &status);
    const bool fits = status != U_BUFFER_OVERFLOW_ERROR;
    CHECK(!fits || U_SUCCESS(status), "case mapping of {} bytes: {}", text.size(), u_errorName(status));
    out.resize(static_cast<size_t>(num_bytes));
    if (fits) return out;
  }
}

bool IsTitlecase(uint32_t c) {
  return u_charType(Icu(c)) == U_TITLECASE_LETTER;
}
bool IsUppercase(uint32_t c) {
  return u_hasBinaryProperty(Icu(c), UCHAR_UPPERCASE) != 0;
}
bool IsLowercase(uint32_t c) {
  return u_hasBinaryProperty(Icu(c), UCHAR_LOWERCASE) != 0;
}
bool IsCased(uint32_t c) {
  return u_hasBinaryProperty(Icu(c), UCHAR_CASED) != 0;
}
bool IsCaseIgnorable(uint32_t c) {
  return u_hasBinaryProperty(Icu(c), UCHAR_CASE_IGNORABLE) != 0;
}

constexpr uint32_t kCapitalSigma = 0x3A3;

// Whether the capital sigma at [begin, end) ends a word.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool has_letter_before = false;
  for (size_t at = begin; at > 0;) {
    const CodePoint before = LastCodePoint(text.substr(0, at));
    at -= static_cast<size_t>(before.num_bytes);
    if (IsCaseIgnorable(before.value)) continue;
    has_letter_before = IsCased(before.value);
    break;
  }
  if (!has_letter_before) return false;
  for (size_t at = end; at < text.size();) {
    const uint32_t after = NextCodePoint(text, at);
    if (!IsCaseIgnorable(after)) return !IsCased(after);
  }
  return true;
}

void AppendLower(std::string_view text, size_t begin, size_t end, uint32_t c, std::string& out) {
  if (c == kCapitalSigma) {
    AppendUtf8(IsFinalSigma(text, begin, end) ? 0x3C2 : 0x3C3, out);
  } else {
    out += MapCase(text.substr(begin, end - begin), ucasemap_utf8ToLower);
  }
}

// ICU maps single characters to title case without the special cases of more than one character ("ß" to "Ss"); those are the first
// character of the capitals, the rest in lower case.
void AppendTitle(std::string_view character, uint32_t c, std::string& out) {
  const auto simple = static_cast<uint32_t>(u_totitle(Icu(c)));
  if (simple != c) return AppendUtf8(simple, out);
  const std::string upper = MapCase(character, ucasemap_utf8ToUpper);
  size_t first_bytes = 0;
  NextCodePoint(upper, first_bytes);
  out.append(upper, 0, first_bytes);
  if (first_bytes < upper.size()) out += MapCase(std::string_view(upper).substr(first_bytes), ucasemap_utf8ToLower);
}

}  // namespace

int64_t CountCodePoints(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

size_t ByteOffset(std::string_view text, int64_t code_point_index) {
  size_t at = 0;
  for (int64_t i = 0; i < code_point_index && at < text.size(); ++i) NextCodePoint(text, at);
  return at;
}

size_t FindText(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* const found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindTextFromEnd(std::string_view text, std::string_view needle) {
  return text.rfind(needle);
}

bool IsSpace(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsAlpha(uint32_t c) {
  return ((1u << static_cast<uint32_t>(u_charType(Icu(c)))) & U_GC_L_MASK) != 0;
}
bool IsDecimal(uint32_t c) {
  return u_getIntPropertyValue(Icu(c), UCHAR_NUMERIC_TYPE) == U_NT_DECIMAL;
}
bool IsDigit(uint32_t c) {
  const int32_t type = u_getIntPropertyValue(Icu(c), UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool IsNumeric(uint32_t c) {
  return u_getIntPropertyValue(Icu(c), UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}
bool IsAlnum(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  return IsAlpha(c) || IsNumeric(c);
}

bool IsPrintable(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  switch (u_charType(Icu(c))) {
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_SURROGATE:
    case U_PRIVATE_USE_CHAR:
    case U_UNASSIGNED:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
    case U_SPACE_SEPARATOR: return false;
    default: return true;
  }
}

bool IsIdentifierStart(uint32_t c) {
  return c == '_' || u_hasBinaryProperty(Icu(c), UCHAR_XID_START) != 0;
}
bool IsIdentifierPart(uint32_t c) {
  return u_hasBinaryProperty(Icu(c), UCHAR_XID_CONTINUE) != 0;
}

bool IsIdentifier(std::string_view text) {
  if (text.empty()) return false;
  size_t at = 0;
  if (!IsIdentifierStart(NextCodePoint(text, at))) return false;
  while (at < text.size()) {
    if (!IsIdentifierPart(NextCodePoint(text, at))) return false;
  }
  return true;
}

bool IsUpper(std::string_view text) {
  bool has_upper = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextCodePoint(text, at);
    if (IsLowercase(c) || IsTitlecase(c)) return false;
    has_upper = has_upper || IsUppercase(c);
  }
  return has_upper;
}

bool IsLower(std::string_view text) {
  bool has_lower = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextCodePoint(text, at);
    if (IsUppercase(c) || IsTitlecase(c)) return false;
    has_lower = has_lower || IsLowercase(c);
  }
  return has_lower;
}

bool IsTitle(std::string_view text) {
  bool has_letter = false;
  bool follows_letter = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextCodePoint(text, at);
    const bool is_capital = IsUppercase(c) || IsTitlecase(c);
    if (is_capital ? follows_letter : (IsLowercase(c) && !follows_letter)) return false;
    follows_letter = is_capital || IsLowercase(c);
    has_letter = has_letter || follows_letter;
  }
  return has_letter;
}

std::string Upper(std::string_view text) {
  if (!IsAscii(text)) return MapCase(text, ucasemap_utf8ToUpper);
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

std::string Lower(std::string_view text) {
  if (!IsAscii(text)) return MapCase(text, ucasemap_utf8ToLower);
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::string CaseFold(std::string_view text) {
  return IsAscii(text) ? Lower(text) : MapCase(text, ucasemap_utf8FoldCase);
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = NextCodePoint(text, at);
    if (IsUppercase(c)) {
      AppendLower(text, begin, at, c, out);
    } else if (IsLowercase(c)) {
      out += MapCase(text.substr(begin, at - begin), ucasemap_utf8ToUpper);
    } else {
      out.append(text, begin, at - begin);
    }
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  if (text.empty()) return {};
  size_t at = 0;
  const uint32_t first = NextCodePoint(text, at);
  std::string out;
  AppendTitle(text.substr(0, at), first, out);
  // The rest is lowered together with the first character, on which the form of a final sigma depends.
  const std::string lower = Lower(text);
  return out.append(lower, Lower(text.substr(0, at)).size());
}

std::string Title(std::string_view text) {
  std::string out;
  bool follows_letter = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = NextCodePoint(text, at);
    if (follows_letter) {
      AppendLower(text, begin, at, c, out);
    } else {
      AppendTitle(text.substr(begin, at - begin), c, out);
    }
    follows_letter = IsCased(c);
  }
  return out;
}

namespace {

// The characters to strip, sorted: a long set must not make stripping quadratic.
class StripSet {
 public:
  explicit StripSet(std::optional<std::string_view> chars) : strips_space_(!chars) {
    for (size_t at = 0; chars && at < chars->size();) chars_.push_back(NextCodePoint(*chars, at));
    std::ranges::sort(chars_);
  }
  bool Has(uint32_t c) const { return strips_space_ ? IsSpace(c) : std::ranges::binary_search(chars_, c); }

 private:
  bool strips_space_;
  std::vector<uint32_t> chars_;
};

}  // namespace

std::string_view StripLeft(std::string_view text, std::optional<std::string_view> chars) {
  const StripSet set(chars);
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    if (!set.Has(NextCodePoint(text, next))) break;
    at = next;
  }
  return text.substr(at);
}

std::string_view StripRight(std::string_view text, std::optional<std::string_view> chars) {
  const StripSet set(chars);
  while (!text.empty()) {
    const CodePoint last = LastCodePoint(text);
    if (!set.Has(last.value)) break;
    text.remove_suffix(static_cast<size_t>(last.num_bytes));
  }
  return text;
}

std::vector<std::string_view> SplitLines(std::string_view text, LineEnds ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t line_end = at;
    const uint32_t c = NextCodePoint(text, at);
    const bool is_break = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!is_break) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (ends == LineEnds::kKeep ? at : line_end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

namespace {

void AppendEscape(uint32_t c, std::string& out) {
  out += c < 0x100 ? fmt::format("\\x{:02x}", c) : c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
}

}  // namespace

void AppendRepr(std::string_view text, std::string& out) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = NextCodePoint(text, at);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (IsPrintable(c)) {
      out.append(text, begin, at - begin);
    } else {
      AppendEscape(c, out);
    }
  }
  out += quote;
}

std::string AsciiOnly(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextCodePoint(text, at);
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      AppendEscape(c, out);
    }
  }
  return out;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace avocet::tokenizer::jinja
