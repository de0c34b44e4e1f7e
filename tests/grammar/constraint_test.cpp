// Grammars over a vocabulary: masks against the definition, and sequences that are followed, taken back and ended.
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/grammar_cache.h"
#include "tokenizer/tokenizer_testing.h"

namespace avocet::grammar {
namespace {

constexpr int32_t kEos = 256;
constexpr int32_t kThinkEnd = 257;
constexpr int32_t kNumTokens = 258;

// Every byte is a token; so are an end of text and </think>.
std::shared_ptr<const tokenizer::Tokenizer> Bytes() {
  auto json = tokenizer::MakeTokenizerJson({});
  json["added_tokens"].push_back(tokenizer::MakeAddedToken(kEos, "<|im_end|>"));
  auto think_end = tokenizer::MakeAddedToken(kThinkEnd, "</think>");
  think_end["special"] = false;
  json["added_tokens"].push_back(think_end);
  return tokenizer::MustParse(json, R"({"eos_token":"<|im_end|>"})");
}

class Constraint : public testing::Test {
 protected:
  std::shared_ptr<CompiledGrammar> Regex(const std::string& pattern) {
    auto grammar = cache_.Get({.kind = SourceKind::kRegex, .text = pattern});
    EXPECT_TRUE(grammar.has_value());
    return *grammar;
  }
  // What may follow, as text; "*": anything. $: the end, |: </think>.
  std::string After(SequenceConstraint& constraint, const std::vector<int32_t>& generated) {
    std::vector<uint64_t> allowed(cache_.vocabulary().num_words());
    if (!constraint.Restricts(generated, allowed)) return "*";
    std::string text;
    for (int32_t id = 0; id < kNumTokens; ++id) {
      if ((allowed[static_cast<size_t>(id) / 64] >> (id % 64) & 1) == 0) continue;
      text += id == kEos ? '$' : id == kThinkEnd ? '|' : static_cast<char>(id);
    }
    return text;
  }

  GrammarCache cache_{Bytes(), kNumTokens, {kEos}};
};

TEST_F(Constraint, Sequence_IsFollowedTakenBackAndEnded) {
  SequenceConstraint constraint(cache_.vocabulary(), {.grammar = Regex("a(b|cd)")});
  EXPECT_EQ(After(constraint, {}), "a");
  EXPECT_EQ(After(constraint, {'a'}), "bc");
  EXPECT_EQ(After(constraint, {'a', 'c'}), "d");
  EXPECT_EQ(After(constraint, {'a', 'b'}), "$");
  EXPECT_EQ(After(constraint, {'a', 'c', 'd'}), "$");
  EXPECT_EQ(After(constraint, {'a'}), "bc");
  EXPECT_EQ(After(constraint, {'a', 'b', kEos}), "$");
  EXPECT_EQ(After(constraint, {'x'}), "$") << "what does not fit can only end";
}

TEST_F(Constraint, Thoughts_AreFreeUntilTheirBudgetIsSpent) {
  SequenceConstraint constraint(cache_.vocabulary(), {.grammar = Regex("x"), .begin = Begin::kAfterThinking, .thinking_budget = 2});
  const std::string thinking = After(constraint, {});
  EXPECT_NE(thinking.find('q'), std::string::npos);
  EXPECT_TRUE(thinking.ends_with("\xff|")) << "the answer is still to come: no end of the text";
  EXPECT_EQ(After(constraint, {'q', 'q'}), "|");
  EXPECT_EQ(After(constraint, {'q', 'q', kThinkEnd}), "x");
  EXPECT_EQ(After(constraint, {'q', kThinkEnd, 'x'}), "$");
  SequenceConstraint budget_only(cache_.vocabulary(), {.grammar = nullptr, .begin = Begin::kAfterThinking, .thinking_budget = 1});
  EXPECT_EQ(After(budget_only, {}), "*");
  EXPECT_EQ(After(budget_only, {'q'}), "|");
  EXPECT_EQ(After(budget_only, {'q', kThinkEnd}), "*");
}

// The mask of the trie is what trying every token gives, wherever a text may stand.
TEST_F(Constraint, Masks_EqualTryingEveryToken) {
  const Json schema =
      Json::parse(R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}},"b":{"type":"number"}}})");
  auto grammar = cache_.Get({.kind = SourceKind::kJsonSchema, .json = schema});
  ASSERT_TRUE(grammar.has_value());
  const uint32_t seed = 20;
  std::mt19937 random(seed);
  for (int run = 0; run < 20; ++run) {
    SequenceConstraint constraint(cache_.vocabulary(), {.grammar = *grammar});
    std::vector<int32_t> generated;
    StateId state = (*grammar)->start();
    for (int step = 0; step < 60; ++step) {
      const std::string text = After(constraint, generated);
      std::vector<int32_t> ids;
      for (int32_t id = 0; id < 256; ++id) {
        if ((*grammar)->Advance(state, id) != StateId::kDead) ids.push_back(id);
      }
      std::string wanted;
      for (const int32_t id : ids) wanted += static_cast<char>(id);
      std::string got = text;
      if (got.ends_with('$') && !wanted.ends_with('$')) got.pop_back();
      ASSERT_EQ(got, wanted) << "seed " << seed << " run " << run << " step " << step;
      if (ids.empty()) break;
      generated.push_back(ids[random() % ids.size()]);
      state = (*grammar)->Advance(state, generated.back());
    }
  }
}

TEST_F(Constraint, SameSource_IsCompiledOnce) {
  EXPECT_EQ(Regex("a+"), Regex("a+"));
  EXPECT_NE(Regex("a+"), Regex("a*"));
}

}  // namespace
}  // namespace avocet::grammar
