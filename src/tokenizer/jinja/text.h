// Texts as Python sees them: sequences of code points, with Python's notions of white space, case and printing. Every text is valid
// UTF-8. Unicode data come from ICU. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/utf8.h"

namespace avocet::tokenizer::jinja {

int64_t CountCodePoints(std::string_view text);
// The byte at which the code point of that index begins; text.size() from the end on.
size_t ByteOffset(std::string_view text, int64_t code_point_index);
// The first occurrence from `from` on, or npos; linear in the text, however the needle looks.
size_t FindText(std::string_view text, std::string_view needle, size_t from = 0);
// The last occurrence, or npos. Takes up to text times needle: StepsFromEnd says what to charge.
size_t FindTextFromEnd(std::string_view text, std::string_view needle);
inline int64_t StepsFromEnd(std::string_view text, std::string_view needle) {
  return static_cast<int64_t>((text.size() / 64 + 1) * (needle.size() / 16 + 1));
}
// The code point at `at`, which moves on to the next.
inline uint32_t NextCodePoint(std::string_view text, size_t& at) {
  const CodePoint point = DecodeValid(text.data() + at);
  at += static_cast<size_t>(point.num_bytes);
  return point.value;
}

bool IsSpace(uint32_t c);
bool IsAlpha(uint32_t c);
bool IsDecimal(uint32_t c);
bool IsDigit(uint32_t c);
bool IsNumeric(uint32_t c);
bool IsAlnum(uint32_t c);
bool IsPrintable(uint32_t c);
bool IsIdentifierStart(uint32_t c);
bool IsIdentifierPart(uint32_t c);
bool IsIdentifier(std::string_view text);
// What \w matches in a regular expression.
inline bool IsWordCharacter(uint32_t c) {
  return c == '_' || IsAlnum(c);
}

bool IsUpper(std::string_view text);
bool IsLower(std::string_view text);
bool IsTitle(std::string_view text);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string CaseFold(std::string_view text);
std::string SwapCase(std::string_view text);
std::string Capitalize(std::string_view text);
std::string Title(std::string_view text);

// chars: what is stripped; nothing: white space.
std::string_view StripLeft(std::string_view text, std::optional<std::string_view> chars);
std::string_view StripRight(std::string_view text, std::optional<std::string_view> chars);

enum class LineEnds { kDrop, kKeep };
std::vector<std::string_view> SplitLines(std::string_view text, LineEnds ends);

// repr(): quoted, and what cannot be printed escaped.
void AppendRepr(std::string_view text, std::string& out);

// What is not ASCII as escapes, for text that is a repr() already.
std::string AsciiOnly(std::string_view text);

std::string EscapeHtml(std::string_view text);
inline constexpr size_t kEscapeGrowthMax = 5;  // a quote becomes five bytes
// No case mapping makes more bytes out of one.
inline constexpr size_t kCaseGrowthMax = 3;

}  // namespace avocet::tokenizer::jinja
