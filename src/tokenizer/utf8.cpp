#include "tokenizer/utf8.h"

#include <cstring>

namespace avocet::tokenizer {

namespace {

constexpr unsigned char Byte(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// The second byte that a lead byte allows (Unicode Standard, table 3-7); the later ones are 80..BF.
struct SecondByte {
  unsigned char low;
  unsigned char high;
};
constexpr SecondByte AllowedSecond(unsigned char lead) {
  switch (lead) {
    case 0xE0: return {0xA0, 0xBF};  // shorter forms exist
    case 0xED: return {0x80, 0x9F};  // surrogates
    case 0xF0: return {0x90, 0xBF};  // shorter forms exist
    case 0xF4: return {0x80, 0x8F};  // above U+10FFFF
    default: return {0x80, 0xBF};
  }
}

}  // namespace

Utf8Unit FirstUnit(std::string_view text) {
  const unsigned char lead = Byte(text, 0);
  if (lead < 0x80) return {Utf8Kind::kCharacter, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::kInvalid, 1};
  const int32_t num_bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const SecondByte second = AllowedSecond(lead);
  for (int32_t i = 1; i < num_bytes; ++i) {
    const auto index = static_cast<size_t>(i);
    if (index == text.size()) return {Utf8Kind::kUnfinished, i};
    const unsigned char low = i == 1 ? second.low : 0x80;
    const unsigned char high = i == 1 ? second.high : 0xBF;
    if (Byte(text, index) < low || Byte(text, index) > high) return {Utf8Kind::kInvalid, i};
  }
  return {Utf8Kind::kCharacter, num_bytes};
}

size_t ValidPrefixBytes(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= sizeof(uint64_t)) {
      uint64_t eight;
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & kHighBits) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    const Utf8Unit unit = FirstUnit(text.substr(at));
    if (unit.kind != Utf8Kind::kCharacter) return at;
    at += static_cast<size_t>(unit.num_bytes);
  }
  return at;
}

std::string ReplaceInvalid(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  while (true) {
    const size_t valid = ValidPrefixBytes(text);
    repaired.append(text.substr(0, valid));
    if (valid == text.size()) return repaired;
    text.remove_prefix(valid);
    text.remove_prefix(static_cast<size_t>(FirstUnit(text).num_bytes));
    repaired.append(kReplacement);
  }
}

CodePoint LastCodePoint(std::string_view text) {
  size_t begin = text.size() - 1;
  while ((Byte(text, begin) & 0xC0u) == 0x80u) --begin;
  return DecodeValid(text.data() + begin);
}

void AppendUtf8(uint32_t code_point, std::string& text) {
  const auto append = [&text](uint32_t byte) { text.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (code_point < 0x80) {
    append(code_point);
    return;
  }
  if (code_point < 0x800) {
    append(0xC0u | (code_point >> 6));
  } else {
    if (code_point < 0x10000) {
      append(0xE0u | (code_point >> 12));
    } else {
      append(0xF0u | (code_point >> 18));
      append(0x80u | ((code_point >> 12) & 0x3Fu));
    }
    append(0x80u | ((code_point >> 6) & 0x3Fu));
  }
  append(0x80u | (code_point & 0x3Fu));
}

}  // namespace avocet::tokenizer
