#include "tokenizer/nfc.h"

#include <gtest/gtest.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include "tokenizer/tokenizer_testing.h"

namespace avocet::tokenizer {
namespace {

std::string Nfc(std::string_view text) {
  static const NfcNormalizer kNormalizer;
  return kNormalizer.Normalize(text).value_or(std::string(text));
}

std::string PlainIcu(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  std::string normal;
  icu::StringByteSink<std::string> sink(&normal);
  icu::Normalizer2::getNFCInstance(status)->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink,
                                                          nullptr, status);
  return normal;
}

TEST(Nfc, KnownTexts_Compose) {
  EXPECT_EQ(Nfc("A\u030a"), "\u00c5");
  EXPECT_EQ(Nfc("\u212b"), "\u00c5");
  EXPECT_EQ(Nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(Nfc("e\u0323\u0302"), "\u1ec7");
  EXPECT_EQ(Nfc("q\u0301\u0323"), "q\u0323\u0301");  // reordered
  EXPECT_EQ(Nfc("\ufb01"), "\ufb01");                // compatibility forms stay
  EXPECT_EQ(Nfc("\u0344"), "\u0308\u0301");
}

TEST(Nfc, NormalText_IsNotCopied) {
  const NfcNormalizer normalizer;
  EXPECT_FALSE(normalizer.Normalize("plain"));
  EXPECT_FALSE(normalizer.Normalize("\u00e9\u4e2d\U0001f642\u0301"));
  EXPECT_FALSE(normalizer.Normalize(""));
}

// The reference library's tables are those of Unicode 9: a mark of Unicode 14 neither moves nor lets others pass.
TEST(Nfc, CharactersAfterUnicode9_AreLeftAlone) {
  EXPECT_EQ(Nfc("a\u1acd\u0334"), "a\u1acd\u0334");
  EXPECT_EQ(Nfc("a\u1acd\u0301"), "a\u1acd\u0301");
  std::string long_run = "a";
  for (int i = 0; i < 100; ++i) long_run += "\u1acd\u0334";
  EXPECT_EQ(Nfc(long_run), long_run);
}

// Texts of characters up to Unicode 9 must be exactly what ICU gives, whatever the length of the runs of marks.
TEST(Nfc, RandomRunsOfMarks_EqualIcu) {
  std::vector<uint32_t> marks{0x41, 0xe9, 0x1e69};
  for (UChar32 c = 0x300; c < 0x110000; ++c) {
    UVersionInfo age;
    u_charAge(c, age);
    if (age[0] > 0 && age[0] <= 9 && u_getIntPropertyValue(c, UCHAR_LEAD_CANONICAL_COMBINING_CLASS) != 0) {
      marks.push_back(static_cast<uint32_t>(c));
    }
  }
  const uint32_t seed = 11;
  Random random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const uint32_t starters_every = 1 + random() % 200;
    for (uint32_t n = random() % 300; n > 0; --n) {
      AppendUtf8(random() % starters_every == 0 ? marks[random() % 3] : marks[random() % marks.size()], text);
    }
    ASSERT_EQ(Nfc(text), PlainIcu(text)) << "seed " << seed << " round " << round;
  }
}

// ICU alone needs a minute for the larger text of 1 MB.
TEST(Nfc, MarksInTheWorstOrder_TakeLinearTime) {
  const auto normalize = [](size_t num_pairs) {
    std::string text = "x";
    for (size_t i = 0; i < num_pairs; ++i) text += "\u0301\u0316";
    EXPECT_EQ(Nfc(text).size(), text.size());
  };
  ExpectLinearTime(normalize, 65536, "marks");
}

}  // namespace
}  // namespace avocet::tokenizer
