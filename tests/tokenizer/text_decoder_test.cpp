#include "tokenizer/text_decoder.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "tokenizer/tokenizer_testing.h"

namespace avocet::tokenizer {
namespace {

// Ids below 256 are bytes.
std::shared_ptr<const Tokenizer> ByteTokenizer() {
  nlohmann::json json = MakeTokenizerJson({{"a", "\xE4"}});  // 256: a letter and the first byte of an ideograph
  json["added_tokens"] = nlohmann::json::array({MakeAddedToken(300, "<x>")});
  return MustParse(json);
}

TEST(TextDecoder, UnfinishedCharacter_IsHeldBack) {
  TextDecoder decoder(ByteTokenizer(), SpecialTokens::kSkip);
  EXPECT_EQ(decoder.Push('h'), "h");
  EXPECT_EQ(decoder.Push(0xF0), "");
  EXPECT_EQ(decoder.Push(0x9F), "");
  EXPECT_EQ(decoder.Push(300), "");  // a skipped token in the middle changes nothing
  EXPECT_EQ(decoder.Push(0x99), "");
  EXPECT_EQ(decoder.Push(0x82), "\U0001F642");
  EXPECT_EQ(decoder.Push(256), "");
  EXPECT_EQ(decoder.Push(0xB8), "");
  EXPECT_EQ(decoder.Push(0xAD), "a\u4e2d");
  EXPECT_EQ(decoder.Push(0xE4), "");
  EXPECT_EQ(decoder.Flush(), "\uFFFD");
  EXPECT_EQ(decoder.Flush(), "");
  EXPECT_EQ(decoder.Push(12345), "");  // no such token
}

TEST(TextDecoder, KeptSpecialToken_EndsACharacter) {
  TextDecoder decoder(ByteTokenizer(), SpecialTokens::kKeep);
  EXPECT_EQ(decoder.Push(0xE4), "");
  EXPECT_EQ(decoder.Push(300), "\uFFFD<x>");
}

// What is pushed and flushed is what Decode gives; every piece is whole characters; little is held.
TEST(TextDecoder, RandomIds_JoinToDecode) {
  const auto tokenizer = MustLoad(GoldenPath("checkpoints/a-dense"));
  const uint32_t seed = 13;
  Random random(seed);
  for (int round = 0; round < 3000; ++round) {
    const auto special = round % 2 == 0 ? SpecialTokens::kKeep : SpecialTokens::kSkip;
    const auto bound = static_cast<uint32_t>(round % 3 == 0 ? 256 : tokenizer->vocab_size() + 5);
    TextDecoder decoder(tokenizer, special);
    std::vector<int32_t> ids;
    std::string joined;
    for (uint32_t n = random() % 600; n > 0; --n) {
      ids.push_back(static_cast<int32_t>(random() % bound));
      const std::string text = decoder.Push(ids.back());
      ASSERT_EQ(ValidPrefixBytes(text), text.size()) << "seed " << seed << " round " << round;
      joined += text;
    }
    joined += decoder.Flush();
    ASSERT_EQ(joined, tokenizer->Decode(ids, special)) << "seed " << seed << " round " << round;
  }
}

TEST(TextDecoder, EndlessInvalidBytes_AreLetGoOf) {
  TextDecoder decoder(ByteTokenizer(), SpecialTokens::kSkip);
  size_t num_released = 0;
  for (int i = 0; i < 100'000; ++i) num_released += decoder.Push(0x80).size() / kReplacement.size();
  EXPECT_GE(num_released, 100'000 - limits::kHeldBytesMax);
  // A character that begins among them is not torn.
  TextDecoder tearing(ByteTokenizer(), SpecialTokens::kSkip);
  std::string text;
  for (size_t i = 0; i < limits::kHeldBytesMax - 1; ++i) text += tearing.Push(0x80);
  for (const int32_t byte : {0xF0, 0x9F, 0x99, 0x82}) text += tearing.Push(byte);
  EXPECT_TRUE(text.ends_with("\uFFFD\U0001F642"));
  EXPECT_EQ(text.size(), (limits::kHeldBytesMax - 1) * kReplacement.size() + 4);
}

}  // namespace
}  // namespace avocet::tokenizer
