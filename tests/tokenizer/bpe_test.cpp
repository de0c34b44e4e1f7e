#include "tokenizer/bpe.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/tokenizer_testing.h"

namespace avocet::tokenizer {
namespace {

using ::testing::ElementsAre;

using StringPairs = std::vector<std::pair<std::string, std::string>>;

// Byte-pair merging as its definition says, with strings: the reference for everything in bpe.cpp.
class PlainMerger {
 public:
  explicit PlainMerger(const StringPairs& merges) {
    for (size_t i = 0; i < merges.size(); ++i) rank_[merges[i]] = i;  // the later of equals counts
  }
  std::vector<std::string> Merge(std::string_view piece) const {
    std::vector<std::string> parts;
    for (const char byte : piece) parts.emplace_back(1, byte);
    std::vector<size_t> ranks(parts.size(), kNone);  // of the part and the next one
    const auto update = [&](size_t i) {
      const auto found = i + 1 < parts.size() ? rank_.find({parts[i], parts[i + 1]}) : rank_.end();
      ranks[i] = found == rank_.end() ? kNone : found->second;
    };
    for (size_t i = 0; i < parts.size(); ++i) update(i);
    while (true) {
      const auto best = std::ranges::min_element(ranks);
      if (best == ranks.end() || *best == kNone) return parts;
      const auto i = static_cast<size_t>(best - ranks.begin());
      parts[i] += parts[i + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(i) + 1);
      ranks.erase(best + 1);
      update(i);
      if (i > 0) update(i - 1);
    }
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  std::map<std::pair<std::string, std::string>, size_t> rank_;
};

// Random merges over few letters, so that pieces merge deeply and ranks are out of order.
StringPairs RandomMerges(Random& random, int num_merges, size_t max_bytes) {
  StringPairs merges;
  std::vector<std::string> tokens{"a", "b", "c"};
  while (static_cast<int>(merges.size()) < num_merges) {
    const std::string left = tokens[random() % tokens.size()];
    const std::string right = tokens[random() % tokens.size()];
    if (left.size() + right.size() > max_bytes) continue;
    merges.emplace_back(left, right);
    tokens.push_back(left + right);
  }
  std::shuffle(merges.begin(), merges.end(), random);  // a merge may come before those that make its halves
  return merges;
}

// Everything is one piece.
std::shared_ptr<const Tokenizer> WholeTextTokenizer(const StringPairs& merges) {
  nlohmann::json json = MakeTokenizerJson(merges);
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = R"([\s\S]+)";
  return MustParse(json);
}

std::vector<std::string> Tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> tokens;
  for (const int32_t id : tokenizer.Encode(text)) tokens.emplace_back(tokenizer.TokenBytes(id));
  return tokens;
}

std::string RandomLetters(Random& random, size_t num_bytes) {
  std::string text;
  const uint32_t num_letters = 1 + random() % 4;  // 'd' never merges
  while (text.size() < num_bytes) text.push_back(static_cast<char>('a' + random() % num_letters));
  return text;
}

TEST(Bpe, RandomMerges_EqualTheDefinition) {
  const uint32_t seed = 3;
  Random random(seed);
  for (int round = 0; round < 60; ++round) {
    const StringPairs merges = RandomMerges(random, 1 + static_cast<int>(random() % 60), 2 + random() % 12);
    const PlainMerger plain(merges);
    const auto tokenizer = WholeTextTokenizer(merges);
    for (const size_t num_bytes : {1u, 2u, 5u, 16u, 17u, 40u, 63u, 64u, 65u, 66u, 130u, 400u}) {
      const std::string text = RandomLetters(random, num_bytes);
      ASSERT_EQ(Tokens(*tokenizer, text), plain.Merge(text)) << "seed " << seed << " round " << round << " text " << text;
    }
  }
}

// Longer than a window (1024 bytes): the joints must be invisible.
TEST(Bpe, PiecesOfManyWindows_EqualTheDefinition) {
  const uint32_t seed = 4;
  Random random(seed);
  for (int round = 0; round < 6; ++round) {
    const StringPairs merges = RandomMerges(random, 1 + static_cast<int>(random() % 60), 2 + random() % 12);
    const auto tokenizer = WholeTextTokenizer(merges);
    const std::string text = RandomLetters(random, 20000 + random() % 3000);
    ASSERT_EQ(Tokens(*tokenizer, text), PlainMerger(merges).Merge(text)) << "seed " << seed << " round " << round;
  }
}

// No cut joins here: whether a pair (a, a) merges at an odd or an even place depends on the beginning of the text alone.
TEST(Bpe, PieceWhoseMiddleDependsOnItsBegin_EqualsTheDefinition) {
  const StringPairs merges{{"a", "a"}, {"aa", "a"}, {"aaa", "aa"}};
  for (const size_t num_bytes : {1023u, 1024u, 1025u, 2048u, 9001u}) {
    const std::string text = "b" + std::string(num_bytes, 'a');
    ASSERT_EQ(Tokens(*WholeTextTokenizer(merges), text), PlainMerger(merges).Merge(text)) << num_bytes;
  }
}

// Ranks that fall along a row of letters make what merges at its begin depend on where it ends, so a cut inside the row is wrong far
// to the left of it: short rows take a second try at the joint, long ones the merge of the whole piece.
TEST(Bpe, PieceWhoseMiddleDependsOnItsEnd_EqualsTheDefinition) {
  for (const int row_letters : {5, 6, 11, 120}) {
    StringPairs merges;
    std::string row;
    for (int i = row_letters; i > 0; --i) {
      if (i < row_letters) merges.emplace_back(std::string(1, static_cast<char>(i)), std::string(1, static_cast<char>(i + 1)));
      row.insert(row.begin(), static_cast<char>(i));
    }
    const auto tokenizer = WholeTextTokenizer(merges);
    const PlainMerger plain(merges);
    for (size_t offset = 0; offset < 4; ++offset) {
      std::string text(offset, 'z');
      while (text.size() < 9000) text += row;
      ASSERT_EQ(Tokens(*tokenizer, text), plain.Merge(text)) << row_letters << " letters, offset " << offset;
    }
  }
}

TEST(Bpe, WholePieceInTheVocabulary_IsStillMerged) {
  nlohmann::json json = MakeTokenizerJson({{"a", "b"}});
  json["model"]["vocab"]["abc"] = 300;  // no merge leads to it
  EXPECT_THAT(MustParse(json)->Encode("abc"), ElementsAre(256, 'c'));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(MustParse(json)->Encode("abc"), ElementsAre(300));
  EXPECT_THAT(MustParse(json)->Encode(" abc"), ElementsAre(' ', 256, 'c'));
}

TEST(Bpe, PairListedTwice_HasItsLaterRank) {
  const StringPairs merges{{"a", "b"}, {"b", "c"}, {"a", "b"}};
  EXPECT_THAT(Tokens(*WholeTextTokenizer(merges), "abc"), ElementsAre("a", "bc"));
}

TEST(Bpe, MergesAsLinesOrPairs_AreTheSame) {
  nlohmann::json json = MakeTokenizerJson({{" ", "a"}, {" a", "b"}});
  const auto pairs = MustParse(json)->Encode("x ab a");
  json["model"]["merges"] = {"\u0120 a", "\u0120a b"};
  EXPECT_EQ(MustParse(json)->Encode("x ab a"), pairs);
  EXPECT_THAT(pairs, ElementsAre('x', 257, 256));
}

TEST(Bpe, RepeatedPieces_AreAsTheFirstTime) {
  const uint32_t seed = 5;
  Random random(seed);
  const StringPairs merges = RandomMerges(random, 40, 8);
  const PlainMerger plain(merges);
  const auto tokenizer = MustParse(MakeTokenizerJson(merges));
  std::vector<std::string> expected;
  std::string text;
  for (int i = 0; i < 20000; ++i) {  // far more distinct words than the memory holds, of all lengths around its bound
    const std::string word = RandomLetters(random, 1 + random() % 18);
    text += "\n" + word;
    expected.emplace_back("\n");
    for (std::string& part : plain.Merge(word)) expected.push_back(std::move(part));
  }
  EXPECT_EQ(Tokens(*tokenizer, text), expected) << "seed " << seed;
}

TEST(Bpe, MegabyteOfOneLetter_TakesLinearTime) {
  StringPairs merges;
  for (std::string run = "a"; run.size() < 64; run += run) merges.emplace_back(run, run);
  const auto tokenizer = MustParse(MakeTokenizerJson(merges));
  const auto encode = [&tokenizer](size_t num_bytes) { EXPECT_EQ(tokenizer->Encode(std::string(num_bytes, 'a')).size(), num_bytes / 64); };
  ExpectLinearTime(encode, size_t{1} << 18, "one letter");  // to a megabyte
}

}  // namespace
}  // namespace avocet::tokenizer
