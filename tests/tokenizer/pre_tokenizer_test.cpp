#include "tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/tokenizer_testing.h"

namespace avocet::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Pieces(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::vector<std::string> pieces;
  pre_tokenizer.Split(text, [&pieces](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

PreTokenizer Must(Result<PreTokenizer> made) {
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

TEST(PreTokenizer, FamilyPatterns_AreHandWritten) {
  EXPECT_TRUE(Must(PreTokenizer::Create(std::string(kQwen35Pattern))).is_hand_written());
  EXPECT_TRUE(Must(PreTokenizer::Create(std::string(kQwen2Pattern))).is_hand_written());
  EXPECT_FALSE(Must(PreTokenizer::Create(R"(\p{L}+)")).is_hand_written());
}

TEST(PreTokenizer, FamilyPattern_SplitsAsWritten) {
  const PreTokenizer family = Must(PreTokenizer::Create(std::string(kQwen35Pattern)));
  EXPECT_THAT(Pieces(family, "it's we'RE y'all"), ElementsAre("it", "'s", " we", "'RE", " y", "'all"));
  EXPECT_THAT(Pieces(family, "a  b   \n  c"), ElementsAre("a", " ", " b", "   \n", " ", " c"));
  EXPECT_THAT(Pieces(family, "12 x=(y)\r\n\n"), ElementsAre("1", "2", " x", "=(", "y", ")\r\n\n"));
  EXPECT_THAT(Pieces(family, "  9\t\t"), ElementsAre(" ", " ", "9", "\t\t"));
  EXPECT_THAT(Pieces(family, "'\u017fa"), ElementsAre("'\u017f", "a"));  // the long s is an s without case
  EXPECT_THAT(Pieces(family, "\u0915\u094d\u0937 \u0301x"), ElementsAre("\u0915\u094d\u0937", " \u0301x"));
  const PreTokenizer qwen2 = Must(PreTokenizer::Create(std::string(kQwen2Pattern)));
  EXPECT_THAT(Pieces(qwen2, "\u0915\u094d\u0937"), ElementsAre("\u0915", "\u094d\u0937"));
}

// The two implementations share nothing but the pattern's text.
TEST(PreTokenizer, HandWrittenMatcher_EqualsRegexOnRandomText) {
  for (const std::string_view pattern : {kQwen35Pattern, kQwen2Pattern}) {
    const PreTokenizer hand_written = Must(PreTokenizer::Create(std::string(pattern)));
    const PreTokenizer regex = Must(PreTokenizer::CreateRegex(std::string(pattern)));
    const uint32_t seed = 20;
    RandomText random(seed);
    for (int round = 0; round < 20000; ++round) {
      const std::string text = random.Next(40);
      ASSERT_EQ(Pieces(hand_written, text), Pieces(regex, text)) << "seed " << seed << " round " << round;
    }
  }
}

TEST(PreTokenizer, EveryCharacterInContext_EqualsRegex) {
  const PreTokenizer hand_written = Must(PreTokenizer::Create(std::string(kQwen35Pattern)));
  const PreTokenizer regex = Must(PreTokenizer::CreateRegex(std::string(kQwen35Pattern)));
  std::string text;
  for (UChar32 c = 0; c < 0x110000; ++c) {
    UVersionInfo age;
    u_charAge(c, age);
    if (age[0] == 0 || age[0] > 14 || U_IS_SURROGATE(c)) continue;  // see RandomText
    std::string character;
    AppendUtf8(static_cast<uint32_t>(c), character);
    text += "1a" + character + " b" + character + character;  // a digit always stands alone: it keeps the contexts apart
    if (text.size() < 4096) continue;
    ASSERT_EQ(Pieces(hand_written, text), Pieces(regex, text)) << "up to U+" << std::hex << c;
    text.clear();
  }
}

TEST(PreTokenizer, ForeignPattern_KeepsWhatDoesNotMatch) {
  EXPECT_THAT(Pieces(Must(PreTokenizer::Create(R"(\d)")), "ab12c"), ElementsAre("ab", "1", "2", "c"));
  EXPECT_THAT(Pieces(Must(PreTokenizer::Create(R"(nothing)")), "ab12c"), ElementsAre("ab12c"));
  EXPECT_THAT(Pieces(Must(PreTokenizer::Create(R"((?=[A-Z]))")), "oneTwoThree"), ElementsAre("one", "Two", "Three"));
  EXPECT_THAT(Pieces(Must(PreTokenizer::Create(R"(x*)")), "\u00e9xx\u4e2d"), ElementsAre("\u00e9", "xx", "\u4e2d"));
  EXPECT_THAT(Pieces(Must(PreTokenizer::Create(R"(\s)")), "a\u180e\u3000"), ElementsAre("a\u180e", "\u3000"));  // U+180E is no space
}

TEST(PreTokenizer, BadPattern_IsRefused) {
  EXPECT_THAT(PreTokenizer::Create("(").error().message, ::testing::HasSubstr("does not compile"));
  EXPECT_THAT(PreTokenizer::Create("\\C").error().message, ::testing::HasSubstr("does not compile"));
  EXPECT_THAT(PreTokenizer::Create(std::string(20000, 'a')).error().message, ::testing::HasSubstr("20000 bytes"));
}

TEST(PreTokenizer, ExplodingPattern_GivesUpWithTheRestWhole) {
  const PreTokenizer exploding = Must(PreTokenizer::Create(R"(b|(a|aa)+\1c)"));
  const std::string tail(5000, 'a');
  EXPECT_THAT(Pieces(exploding, "b" + tail), ElementsAre("b", tail));
}

}  // namespace
}  // namespace avocet::tokenizer
