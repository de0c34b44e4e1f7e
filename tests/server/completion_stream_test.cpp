#include "server/completion_stream.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/server_testing.h"

namespace avocet::server {
namespace {

using tokenizer::Random;

engine::RequestEvent Event(std::vector<int32_t> ids, std::optional<engine::FinishReason> finish = std::nullopt) {
  engine::RequestEvent event;
  for (const int32_t id : ids) event.tokens.push_back({id, std::nullopt});
  event.finish = finish;
  return event;
}

TextRules Rules(std::vector<std::string> stops, StopText stop_text = StopText::kDrop, int32_t min_tokens = 0) {
  TextRules rules;
  rules.stops = StopSet(stops);
  rules.stop_text = stop_text;
  rules.min_tokens = min_tokens;
  return rules;
}

// All ids, cut into events at random.
ChoiceDelta RunCut(const std::vector<int32_t>& ids, engine::FinishReason finish, const TextRules& rules, Random* random) {
  static const auto tokenizer = ByteTokenizer();
  CompletionStream stream(tokenizer, rules);
  ChoiceDelta all;
  for (size_t begin = 0; begin < ids.size() && !stream.is_finished();) {
    const size_t num = random == nullptr ? ids.size() : 1 + (*random)() % 4;
    const size_t end = std::min(begin + num, ids.size());
    auto event = Event({ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + static_cast<ptrdiff_t>(end)},
                       end == ids.size() ? std::optional(finish) : std::nullopt);
    ChoiceDelta delta = stream.Push(event);
    EXPECT_EQ(tokenizer::ReplaceInvalid(delta.text), delta.text) << "a delta is not valid UTF-8";
    all.Append(std::move(delta));
    begin = end;
  }
  return all;
}

TEST(CompletionStream, CharacterOverSeveralTokens_NeverBroken) {
  const std::string text = "P\u0159\u00edli\u0161 \U0001f336\ufe0f\U0001f469\u200d\U0001f466 \u4e2d\u6587";
  const TextRules rules;
  const ChoiceDelta all = RunCut(BytesOf(text), engine::FinishReason::kLength, rules, nullptr);
  EXPECT_EQ(all.text, text);
  Random random(1);
  EXPECT_EQ(RunCut(BytesOf(text), engine::FinishReason::kLength, rules, &random).text, text);
}

TEST(CompletionStream, CutInsideCharacter_OneReplacementAtTheEnd) {
  const TextRules rules;
  const ChoiceDelta all = RunCut(BytesOf(std::string("ab\U0001f336").substr(0, 4)), engine::FinishReason::kLength, rules, nullptr);
  EXPECT_EQ(all.text, "ab\ufffd");
}

TEST(CompletionStream, StopString_EndsTextAndTokens) {
  const TextRules rules = Rules({"END"});
  CompletionStream stream(ByteTokenizer(), rules);
  auto first = Event(BytesOf("abE"));
  EXPECT_EQ(stream.Push(first).text, "ab");
  auto second = Event(BytesOf("NDxyz"));
  const ChoiceDelta delta = stream.Push(second);
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(delta.tokens.size(), 2u);  // x, y and z are as if they had not been sampled
  ASSERT_TRUE(delta.finish.has_value());
  EXPECT_EQ(std::get<std::string>(delta.finish->stop_reason), "END");
  EXPECT_EQ(stream.num_tokens(), 5);
  auto third = Event(BytesOf("more"), engine::FinishReason::kAbort);
  EXPECT_TRUE(stream.Push(third).tokens.empty());
}

TEST(CompletionStream, EndToken_TextOnlyIfAskedFor) {
  TextRules rules;
  rules.special = tokenizer::SpecialTokens::kKeep;
  std::vector<int32_t> ids = BytesOf("ab");
  ids.push_back(kEos);
  const ChoiceDelta hidden = RunCut(ids, engine::FinishReason::kStop, rules, nullptr);
  EXPECT_EQ(hidden.text, "ab");
  EXPECT_EQ(hidden.tokens.size(), 3u);
  rules.stop_text = StopText::kKeep;
  EXPECT_EQ(RunCut(ids, engine::FinishReason::kStop, rules, nullptr).text, "ab<|im_end|>");
}

TEST(CompletionStream, MinTokens_ProtectsItsPart) {
  const TextRules rules = Rules({"x"}, StopText::kDrop, 3);
  const ChoiceDelta all = RunCut(BytesOf("axbxc"), engine::FinishReason::kLength, rules, nullptr);
  EXPECT_EQ(all.text, "axb");
  EXPECT_EQ(all.tokens.size(), 4u);
}

TEST(CompletionStream, RandomEvents_StreamEqualsWhole) {
  const uint32_t seed = 7;
  Random random(seed);
  tokenizer::RandomText texts(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids = BytesOf(texts.Next(30));
    if (ids.empty()) continue;
    if (random() % 4 == 0) ids.erase(ids.begin());  // a broken character at the front
    if (ids.empty()) continue;
    std::string stop = texts.Next(2);
    if (stop.empty()) stop = "e";
    const TextRules rules = Rules({stop, "th"}, random() % 2 == 0 ? StopText::kDrop : StopText::kKeep, static_cast<int32_t>(random() % 3));
    const ChoiceDelta whole = RunCut(ids, engine::FinishReason::kLength, rules, nullptr);
    const ChoiceDelta cut = RunCut(ids, engine::FinishReason::kLength, rules, &random);
    ASSERT_EQ(cut.text, whole.text) << "seed " << seed << ", round " << round;
    ASSERT_EQ(cut.tokens.size(), whole.tokens.size()) << "seed " << seed << ", round " << round;
    ASSERT_EQ(cut.finish->stop_reason, whole.finish->stop_reason) << "seed " << seed << ", round " << round;
  }
}

}  // namespace
}  // namespace avocet::server
