#include "tokenizer/tokenizer.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/nfc.h"
#include "tokenizer/tokenizer_testing.h"

namespace avocet::tokenizer {
namespace {

using namespace std::string_view_literals;
using ::testing::ElementsAre;

TEST(Tokenizer, AnyText_DecodesToItsNormalForm) {
  const auto tokenizer = MustLoad(GoldenPath("checkpoints/a-dense"));
  const NfcNormalizer nfc;
  const uint32_t seed = 17;
  RandomText random(seed);
  for (int round = 0; round < 5000; ++round) {
    const std::string text = random.Next(60);
    const std::string normal = nfc.Normalize(text).value_or(text);
    ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text, AddedTokens::kPlainText), SpecialTokens::kKeep), normal)
        << "seed " << seed << " round " << round;
  }
}

TEST(Tokenizer, InvalidBytes_AreReplacedBeforeEncoding) {
  const auto tokenizer = MustParse(MakeTokenizerJson({}));
  EXPECT_EQ(tokenizer->Encode("a\xFF\xE4\xB8z"sv), tokenizer->Encode("a\uFFFD\uFFFDz"));
  EXPECT_THAT(tokenizer->Encode("a\0b"sv), ElementsAre('a', 0, 'b'));
  EXPECT_TRUE(tokenizer->Encode("").empty());
}

TEST(Tokenizer, EntryOutsideTheLetters_StandsForItsText) {
  nlohmann::json json = MakeTokenizerJson({});
  json["model"]["vocab"]["a b"] = 300;  // merging cannot make it: a space is written in another letter
  const auto tokenizer = MustParse(json);
  const int32_t id = 300;
  EXPECT_EQ(tokenizer->Decode({&id, 1}, SpecialTokens::kKeep), "a b");
  EXPECT_EQ(tokenizer->TokenString(300), "a b");
  EXPECT_THAT(tokenizer->Encode("a b"), ElementsAre('a', ' ', 'b'));
}

TEST(Tokenizer, PatternOfTheFile_Decides) {
  nlohmann::json json = MakeTokenizerJson({{"1", "2"}});
  EXPECT_THAT(MustParse(json)->Encode("12"), ElementsAre('1', '2'));  // digits stand alone
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = R"(\p{N}{1,3}|\s+)";
  EXPECT_THAT(MustParse(json)->Encode("12"), ElementsAre(256));
}

TEST(Tokenizer, ManyThreads_GiveTheSame) {
  const auto tokenizer = MustLoad(GoldenPath("checkpoints/a-dense"));
  RandomText random(23);
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back(random.Next(80));
  std::vector<std::vector<int32_t>> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer->Encode(text));
  std::vector<std::vector<std::vector<int32_t>>> got(4);
  std::vector<std::thread> threads;
  for (auto& ids : got) {
    threads.emplace_back([&] {
      for (const std::string& text : texts) ids.push_back(tokenizer->Encode(text));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, expected);
}

// Texts that could trip a matcher or the search for added tokens into rescanning.
TEST(Tokenizer, UnkindTexts_TakeLinearTime) {
  const auto tokenizer = MustLoad(GoldenPath("checkpoints/a-dense"));
  for (const std::string_view unit :
       {" ", "\n ", " x", "<", "<|im_start|", "<|im_end|>", "'", "1", "e\u0301", "\u0301", "\xFF", "\u3000"}) {
    const auto encode = [&](size_t num_bytes) {
      std::string text;
      while (text.size() < num_bytes) text += unit;
      EXPECT_FALSE(tokenizer->Encode(text).empty());
    };
    ExpectLinearTime(encode, 100'000, unit);
  }
}

}  // namespace
}  // namespace avocet::tokenizer
