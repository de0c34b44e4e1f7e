// UTF-8: checking, repairing and walking text. Invalid bytes become U+FFFD, one per maximal subpart, as the Unicode Standard (3.9,
// "substitution of maximal subparts") recommends and as Rust and Python do. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace avocet::tokenizer {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What the first bytes of a text are.
enum class Utf8Kind {
  kCharacter,   // a whole character
  kInvalid,     // bytes that no continuation can make valid
  kUnfinished,  // the text ends inside a character
};
struct Utf8Unit {
  Utf8Kind kind = Utf8Kind::kCharacter;
  int32_t num_bytes = 0;  // of the character, or of the maximal subpart to replace; 1 to 4
};
// text is not empty.
Utf8Unit FirstUnit(std::string_view text);

// The number of leading bytes that are valid; text.size() if all are.
size_t ValidPrefixBytes(std::string_view text);

// A copy with every invalid or unfinished sequence replaced by U+FFFD.
std::string ReplaceInvalid(std::string_view text);

// A character of valid UTF-8.
struct CodePoint {
  uint32_t value = 0;
  int32_t num_bytes = 0;
};
// `at` points to the first byte of a character of valid UTF-8.
inline CodePoint DecodeValid(const char* at) {
  const auto byte = [at](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1Fu) << 6) | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {((lead & 0x0Fu) << 12) | ((byte(1) & 0x3Fu) << 6) | (byte(2) & 0x3Fu), 3};
  return {((lead & 0x07u) << 18) | ((byte(1) & 0x3Fu) << 12) | ((byte(2) & 0x3Fu) << 6) | (byte(3) & 0x3Fu), 4};
}

// The character that ends at `end`; text[0, end) is valid UTF-8 and not empty.
CodePoint LastCodePoint(std::string_view text);

// Appends a scalar value (not a surrogate).
void AppendUtf8(uint32_t code_point, std::string& text);

}  // namespace avocet::tokenizer
