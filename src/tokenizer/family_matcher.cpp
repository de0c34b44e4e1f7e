#include "tokenizer/family_matcher.h"

#include <cstddef>

#include "tokenizer/utf8.h"

namespace avocet::tokenizer {

namespace {

struct Seen {
  CharClass char_class;
  int32_t num_bytes;
};

inline Seen Look(const char* at, const CharClassTable& classes) {
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 0x80) return {classes.OfAscii(byte), 1};
  const CodePoint code_point = DecodeValid(at);
  return {classes.Of(code_point.value), code_point.num_bytes};
}

// The end of the run of `wanted` that begins at `at`.
inline const char* SkipRun(const char* at, const char* end, CharClass wanted, const CharClassTable& classes) {
  while (at < end) {
    const Seen seen = Look(at, classes);
    if (seen.char_class != wanted) break;
    at += seen.num_bytes;
  }
  return at;
}

constexpr char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) at an apostrophe: its end, or nullptr. U+017F, the long s, is an s for (?i).
const char* ContractionEnd(const char* apostrophe, const char* end) {
  const ptrdiff_t left = end - apostrophe;
  if (left < 2) return nullptr;
  const char first = Lower(apostrophe[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return apostrophe + 2;
  if (left < 3) return nullptr;
  const char second = Lower(apostrophe[2]);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return apostrophe + 3;
  if (apostrophe[1] == '\xC5' && apostrophe[2] == '\xBF') return apostrophe + 3;
  return nullptr;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at a space or line end: up to the last line end of the run; else the run without its last character where
// text follows; else the run.
const char* WhitespaceEnd(const char* at, const char* end, const CharClassTable& classes) {
  const char* after_newline = nullptr;
  const char* last_begin = at;
  const char* run_end = at;
  while (run_end < end) {
    const Seen seen = Look(run_end, classes);
    if (seen.char_class != CharClass::kSpace && seen.char_class != CharClass::kNewline) break;
    last_begin = run_end;
    run_end += seen.num_bytes;
    if (seen.char_class == CharClass::kNewline) after_newline = run_end;
  }
  if (after_newline != nullptr) return after_newline;
  return run_end < end && last_begin > at ? last_begin : run_end;
}

//  ?[^\s\p{L}\p{N}]+[\r\n]* from the first symbol on.
const char* SymbolsEnd(const char* at, const char* end, const CharClassTable& classes) {
  at = SkipRun(at, end, CharClass::kSymbol, classes);
  while (at < end && (*at == '\r' || *at == '\n')) ++at;
  return at;
}

}  // namespace

const char* MatchEnd(const char* at, const char* end, const CharClassTable& classes) {
  const Seen first = Look(at, classes);
  if (*at == '\'') {
    if (const char* contraction_end = ContractionEnd(at, end)) return contraction_end;
  }
  const char* second_at = at + first.num_bytes;
  if (first.char_class == CharClass::kLetter) return SkipRun(second_at, end, CharClass::kLetter, classes);
  if (first.char_class == CharClass::kNumber) return second_at;
  if (first.char_class == CharClass::kNewline) return WhitespaceEnd(at, end, classes);

  // A space or a symbol: it may introduce letters, and a plain space may introduce symbols.
  const bool has_second = second_at < end;
  const Seen second = has_second ? Look(second_at, classes) : Seen{CharClass::kSpace, 0};
  if (second.char_class == CharClass::kLetter) return SkipRun(second_at + second.num_bytes, end, CharClass::kLetter, classes);
  if (first.char_class == CharClass::kSymbol) return SymbolsEnd(second_at, end, classes);
  if (*at == ' ' && second.char_class == CharClass::kSymbol) return SymbolsEnd(second_at, end, classes);
  return WhitespaceEnd(at, end, classes);
}

}  // namespace avocet::tokenizer
