#include "tokenizer/byte_letters.h"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace avocet::tokenizer {

namespace {

constexpr uint32_t kFirstStandIn = 0x100;
constexpr size_t kNumLetters = 0x100 + 68;  // one more than the largest letter
constexpr int16_t kNoByte = -1;

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct LetterTables {
  std::array<uint16_t, 256> letter_of_byte{};
  std::array<int16_t, kNumLetters> byte_of_letter{};
};

constexpr LetterTables MakeTables() {
  LetterTables tables;
  tables.byte_of_letter.fill(kNoByte);
  uint32_t stand_in = kFirstStandIn;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t letter = StandsForItself(byte) ? byte : stand_in++;
    tables.letter_of_byte[byte] = static_cast<uint16_t>(letter);
    tables.byte_of_letter[letter] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr LetterTables kTables = MakeTables();

}  // namespace

std::optional<std::string> LettersToBytes(std::string_view letters) {
  std::string bytes;
  bytes.reserve(letters.size());
  for (size_t at = 0; at < letters.size();) {
    const CodePoint letter = DecodeValid(letters.data() + at);
    if (letter.value >= kNumLetters || kTables.byte_of_letter[letter.value] == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(static_cast<unsigned char>(kTables.byte_of_letter[letter.value])));
    at += static_cast<size_t>(letter.num_bytes);
  }
  return bytes;
}

std::string BytesToLetters(std::string_view bytes) {
  std::string letters;
  letters.reserve(2 * bytes.size());
  for (const char byte : bytes) AppendUtf8(kTables.letter_of_byte[static_cast<unsigned char>(byte)], letters);
  return letters;
}

}  // namespace avocet::tokenizer
