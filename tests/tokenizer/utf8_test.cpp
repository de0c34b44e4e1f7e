#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "tokenizer/byte_letters.h"
#include "tokenizer/tokenizer_testing.h"

namespace avocet::tokenizer {
namespace {

using namespace std::string_view_literals;

// The examples of the Unicode Standard, table 3-8 and its neighbours, and what Python's bytes.decode("utf-8", "replace") gives.
TEST(ReplaceInvalid, MaximalSubpart_BecomesOneReplacement) {
  EXPECT_EQ(ReplaceInvalid("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"sv),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
  EXPECT_EQ(ReplaceInvalid("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"sv),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");
  EXPECT_EQ(ReplaceInvalid("\xED\xA0\x80"sv), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(ReplaceInvalid("\xF4\x91\x92\x93"sv), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(ReplaceInvalid("\xF0\x9F\x99"sv), "\uFFFD");                        // unfinished
  EXPECT_EQ(ReplaceInvalid("\xF0\x9F\x99\x82"sv), "\U0001F642");
  EXPECT_EQ(ReplaceInvalid(""sv), "");
  EXPECT_EQ(ReplaceInvalid("a\0b"sv), "a\0b"sv);
}

TEST(ValidPrefixBytes, RandomBytes_AgreesWithUnitWalk) {
  const uint32_t seed = 7;
  Random random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint32_t n = random() % 40; n > 0; --n) {
      if (random() % 3 == 0) {
        text.push_back(static_cast<char>(static_cast<unsigned char>(random() % 256)));
      } else if (random() % 2 == 0) {
        text += "abcdefgh";
      } else {
        AppendUtf8(0x80 + random() % 0xD000, text);
      }
    }
    size_t expected = 0;
    while (expected < text.size()) {
      const Utf8Unit unit = FirstUnit(std::string_view(text).substr(expected));
      if (unit.kind != Utf8Kind::kCharacter) break;
      expected += static_cast<size_t>(unit.num_bytes);
    }
    ASSERT_EQ(ValidPrefixBytes(text), expected) << "seed " << seed << " round " << round;
    const std::string repaired = ReplaceInvalid(text);
    ASSERT_EQ(ValidPrefixBytes(repaired), repaired.size()) << "seed " << seed << " round " << round;
  }
}

TEST(DecodeValid, EveryScalarValue_RoundTrips) {
  for (uint32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string text;
    AppendUtf8(value, text);
    ASSERT_EQ(ValidPrefixBytes(text), text.size()) << value;
    ASSERT_EQ(DecodeValid(text.data()).value, value);
    ASSERT_EQ(static_cast<size_t>(DecodeValid(text.data()).num_bytes), text.size());
    ASSERT_EQ(LastCodePoint("x" + text).value, value);
  }
}

TEST(ByteLetters, EveryByte_RoundTripsThroughADistinctLetter) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
  const std::string letters = BytesToLetters(all);
  EXPECT_EQ(LettersToBytes(letters), all);
  EXPECT_EQ(BytesToLetters(" \n\xFF"sv), "\u0120\u010A\u00FF");
  EXPECT_EQ(BytesToLetters("\x7F\xA0\xAD"sv), "\u0121\u0142\u0143");
  EXPECT_FALSE(LettersToBytes("a b"));     // a raw space is no letter
  EXPECT_FALSE(LettersToBytes("\u0144"));  // one after the last
}

}  // namespace
}  // namespace avocet::tokenizer
