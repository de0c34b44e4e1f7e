// What the split patterns of the family tell apart: letters, marks, numbers, spaces, line ends and the rest.
// Unicode data come from ICU (Debian 12: Unicode 15.0; the reference library has 16.0, so some 5,000 characters of new scripts and rare
// ideographs count as symbols here). Immutable after construction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace avocet::tokenizer {

enum class CharClass : uint8_t {
  kLetter,   // \p{L}, and \p{M} where marks count as letters
  kNumber,   // \p{N}
  kSpace,    // \s without \r and \n
  kNewline,  // \r and \n
  kSymbol,   // everything else
};

// Whether \p{M} are letters (Qwen3.5) or symbols (Qwen2).
enum class Marks { kAreLetters, kAreSymbols };

class CharClassTable {
 public:
  explicit CharClassTable(Marks marks);

  CharClass OfAscii(unsigned char c) const { return blocks_[0][c]; }
  // code_point < 0x110000
  CharClass Of(uint32_t code_point) const { return blocks_[block_of_[code_point >> 8]][code_point & 0xFFu]; }

 private:
  using Block = std::array<CharClass, 256>;
  std::array<uint16_t, 0x1100> block_of_{};
  std::vector<Block> blocks_;  // distinct ones; the first is U+0000 to U+00FF
};

}  // namespace avocet::tokenizer
