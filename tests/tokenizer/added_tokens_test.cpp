#include "tokenizer/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/tokenizer_testing.h"

namespace avocet::tokenizer {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<const Tokenizer> With(const std::vector<nlohmann::json>& added) {
  nlohmann::json json = MakeTokenizerJson({});
  json["added_tokens"] = added;
  return MustParse(json);
}

nlohmann::json Flagged(int id, std::string_view content, const char* flag) {
  nlohmann::json token = MakeAddedToken(id, content);
  token[flag] = true;
  return token;
}

TEST(AddedTokens, InText_BecomeTheirIds) {
  const auto tokenizer = With({MakeAddedToken(300, "<a>"), MakeAddedToken(301, "<b>")});
  EXPECT_THAT(tokenizer->Encode("<a>x<b><a>"), ElementsAre(300, 'x', 301, 300));
  EXPECT_THAT(tokenizer->Encode("<a"), ElementsAre('<', 'a'));
  EXPECT_THAT(tokenizer->Encode("<<a>>"), ElementsAre('<', 300, '>'));
  EXPECT_THAT(tokenizer->Encode("<A>"), ElementsAre('<', 'A', '>'));
}

TEST(AddedTokens, AsPlainText_StayText) {
  const auto tokenizer = With({MakeAddedToken(300, "<a>")});
  EXPECT_THAT(tokenizer->Encode("<a>", AddedTokens::kPlainText), ElementsAre('<', 'a', '>'));
}

TEST(AddedTokens, SeveralAtOnePlace_LongestWins) {
  const auto tokenizer =
      With({MakeAddedToken(300, "<a"), MakeAddedToken(301, "<abc>"), MakeAddedToken(302, "<ab"), MakeAddedToken(303, "x")});
  EXPECT_THAT(tokenizer->Encode("<abc>"), ElementsAre(301));
  EXPECT_THAT(tokenizer->Encode("<abcd"), ElementsAre(302, 'c', 'd'));
  EXPECT_THAT(tokenizer->Encode("<ax<"), ElementsAre(300, 303, '<'));
}

TEST(AddedTokens, RandomTextAndTokens_EqualNaiveSearch) {
  const uint32_t seed = 9;
  Random random(seed);
  const auto letters = [&random](uint32_t max_bytes) {
    std::string text;
    for (uint32_t n = 1 + random() % max_bytes; n > 0; --n) text.push_back("ab\xC3\xA9"[random() % 2]);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<AddedToken> tokens;
    for (uint32_t n = 1 + random() % 6; n > 0; --n) {
      AddedToken token{.content = letters(5), .id = static_cast<int32_t>(tokens.size())};
      const auto same = [&](const AddedToken& other) { return other.content == token.content; };
      if (std::ranges::none_of(tokens, same)) tokens.push_back(std::move(token));
    }
    const AddedTokenMatcher matcher(tokens);
    const std::string text = letters(30);
    size_t from = 0;
    for (size_t at = 0; at < text.size();) {  // what a search position by position finds
      const AddedToken* longest = nullptr;
      for (const AddedToken& token : tokens) {
        const bool is_here = std::string_view(text).substr(at).starts_with(token.content);
        if (is_here && (longest == nullptr || token.content.size() > longest->content.size())) longest = &token;
      }
      if (longest == nullptr) {
        ++at;
        continue;
      }
      const auto match = matcher.Find(text, from);
      ASSERT_TRUE(match) << "seed " << seed << " round " << round;
      ASSERT_EQ(match->begin, at);
      ASSERT_EQ(match->id, longest->id);
      at = from = match->end;
    }
    ASSERT_FALSE(matcher.Find(text, from)) << "seed " << seed << " round " << round;
  }
}

TEST(AddedTokens, StripFlags_TakeWhiteSpaceAlong) {
  EXPECT_THAT(With({Flagged(300, "<a>", "lstrip")})->Encode("x \u3000<a> y"), ElementsAre('x', 300, ' ', 'y'));
  EXPECT_THAT(With({Flagged(300, "<a>", "rstrip")})->Encode("x <a> \n\ty"), ElementsAre('x', ' ', 300, 'y'));
  EXPECT_THAT(With({Flagged(300, "<a>", "lstrip")})->Encode("<a>  <a>"), ElementsAre(300, 300));
  // What the match before has taken is not taken again.
  EXPECT_THAT(With({Flagged(300, "<a>", "lstrip"), MakeAddedToken(301, "  ")})->Encode("x  <a>"), ElementsAre('x', 301, 300));
}

TEST(AddedTokens, SingleWord_NeedsABorder) {
  const auto tokenizer = With({Flagged(300, "mid", "single_word")});
  EXPECT_THAT(tokenizer->Encode("mid-mid"), ElementsAre(300, '-', 300));
  EXPECT_THAT(tokenizer->Encode("mid1"), ElementsAre('m', 'i', 'd', '1'));
  EXPECT_THAT(tokenizer->Encode("amid"), ElementsAre('a', 'm', 'i', 'd'));
  EXPECT_THAT(tokenizer->Encode("_mid"), ElementsAre('_', 'm', 'i', 'd'));
  // A refused match is passed over whole, as in the reference.
  EXPECT_THAT(With({Flagged(300, "mid", "single_word"), MakeAddedToken(301, "id")})->Encode("amid id"),
              ElementsAre('a', 'm', 'i', 'd', ' ', 301));
}

TEST(AddedTokens, NormalizedFlag_LooksAtNormalizedText) {
  const auto as_given = With({MakeAddedToken(300, "\u00e9")});
  EXPECT_EQ(as_given->Encode("e\u0301").size(), 2u);
  EXPECT_THAT(as_given->Encode("\u00e9"), ElementsAre(300));
  const auto normalized = With({Flagged(300, "e\u0301", "normalized")});
  EXPECT_THAT(normalized->Encode("e\u0301x"), ElementsAre(300, 'x'));
  EXPECT_THAT(normalized->Encode("\u00e9x"), ElementsAre(300, 'x'));
  EXPECT_EQ(normalized->Encode("\u00e9", AddedTokens::kPlainText).size(), 2u);
  EXPECT_EQ(normalized->FindAdded("\u00e9"), 300);
  // Where the config leaves the flag out, a token that is not special is looked for in normalized text.
  const auto by_default = MustParse(MakeTokenizerJson({}), R"({"added_tokens_decoder": {"300": {"content": "\u00e9", "special": false},
      "301": {"content": "\u00e8", "special": true}}})");
  EXPECT_THAT(by_default->Encode("e\u0301"), ElementsAre(300));
  EXPECT_EQ(by_default->Encode("e\u0300").size(), 2u);
}

TEST(AddedTokens, Decoding_KeepsOrSkipsSpecialOnes) {
  nlohmann::json plain = MakeAddedToken(301, "<think>");
  plain["special"] = false;
  const auto tokenizer = With({MakeAddedToken(300, "<a>"), plain, MakeAddedToken(302, "<\u00e9 b>")});
  const std::vector<int32_t> ids{300, 'x', 301, 302, 999, -1};
  EXPECT_EQ(tokenizer->Decode(ids, SpecialTokens::kKeep), "<a>x<think><\u00e9 b>");
  EXPECT_EQ(tokenizer->Decode(ids, SpecialTokens::kSkip), "x<think>");
  EXPECT_EQ(tokenizer->TokenString(302), "<\u00e9 b>");
  EXPECT_EQ(tokenizer->TokenString(' '), "\u0120");
  EXPECT_EQ(tokenizer->TokenString(999), "");
  EXPECT_FALSE(tokenizer->FindAdded("x"));
}

}  // namespace
}  // namespace avocet::tokenizer
