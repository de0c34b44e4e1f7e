#include "server/stop_matcher.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tokenizer/tokenizer_testing.h"

namespace avocet::server {
namespace {

using tokenizer::Random;

struct Outcome {
  std::string text;
  std::string found;
  friend bool operator==(const Outcome&, const Outcome&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) { return out << outcome.text << " | " << outcome.found; }
};

Outcome Match(const std::vector<std::string>& stops, StopText stop_text, const std::vector<std::string>& pieces) {
  const StopSet set(stops);
  StopMatcher matcher(set, stop_text);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    if (matcher.Push(piece, outcome.text)) {
      outcome.found = matcher.found();
      return outcome;
    }
  }
  matcher.Flush(outcome.text);
  return outcome;
}

// The definition, by search: the stop string that ends first, of those the first listed.
Outcome Expected(const std::vector<std::string>& stops, StopText stop_text, const std::string& text) {
  std::optional<size_t> first_end;
  const std::string* found = nullptr;
  for (const std::string& stop : stops) {
    const size_t begin = text.find(stop);
    if (begin == std::string::npos) continue;
    if (!first_end.has_value() || begin + stop.size() < *first_end) {
      first_end = begin + stop.size();
      found = &stop;
    }
  }
  if (found == nullptr) return {text, ""};
  return {text.substr(0, stop_text == StopText::kKeep ? *first_end : *first_end - found->size()), *found};
}

TEST(StopMatcher, ReportedCase_HoldsBackTheBeginning) {
  const std::vector<std::string> stops{"DEFGHIJ"};
  const StopSet set(stops);
  StopMatcher matcher(set, StopText::kDrop);
  std::string out;
  EXPECT_FALSE(matcher.Push("ABCDEFGHI", out));
  EXPECT_EQ(out, "ABC");
  EXPECT_FALSE(matcher.Push("K ABC", out));
  EXPECT_EQ(out, "ABCDEFGHIK ABC");
  EXPECT_TRUE(matcher.Push("DEFGHIJ tail", out));
  EXPECT_EQ(out, "ABCDEFGHIK ABC");
  EXPECT_EQ(matcher.found(), "DEFGHIJ");
}

TEST(StopMatcher, KeptStopString_IsNotHeldBack) {
  const std::vector<std::string> stops{"DEF"};
  const StopSet set(stops);
  StopMatcher matcher(set, StopText::kKeep);
  std::string out;
  EXPECT_FALSE(matcher.Push("ABCDE", out));
  EXPECT_EQ(out, "ABCDE");
  EXPECT_TRUE(matcher.Push("FG", out));
  EXPECT_EQ(out, "ABCDEF");
}

TEST(StopMatcher, NeverReached_FlushReturnsEverything) {
  EXPECT_EQ(Match({"never"}, StopText::kDrop, {"ne", "v", "e"}), (Outcome{"neve", ""}));
}

TEST(StopMatcher, RandomTextAndCuts_EqualTheDefinition) {
  const uint32_t seed = 20261201;
  Random random(seed);
  const auto word = [&random](size_t bytes_max) {
    std::string text;
    for (size_t n = 1 + random() % bytes_max; n > 0; --n) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = 1 + random() % 4; n > 0; --n) stops.push_back(word(6));
    const std::string text = word(40);
    const StopText stop_text = random() % 2 == 0 ? StopText::kDrop : StopText::kKeep;
    std::vector<std::string> pieces;
    for (size_t begin = 0; begin < text.size();) {
      const size_t num = 1 + random() % 5;
      pieces.push_back(text.substr(begin, num));
      begin += num;
    }
    const Outcome expected = Expected(stops, stop_text, text);
    ASSERT_EQ(Match(stops, stop_text, pieces), expected) << "seed " << seed << ", round " << round << ", text " << text;
    ASSERT_EQ(Match(stops, stop_text, {text}), expected) << "seed " << seed << ", round " << round << ", text " << text;
  }
}

// 4096 bytes of one letter and another at the end: a search that starts over at every byte would be quadratic.
TEST(StopMatcher, AdversarialStop_IsLinear) {
  const std::vector<std::string> stops{std::string(4095, 'a') + "b"};
  const StopSet set(stops);
  const auto run = [&set](size_t num) {
    StopMatcher matcher(set, StopText::kDrop);
    std::string out;
    for (size_t i = 0; i < num; ++i) matcher.Push("a", out);
  };
  tokenizer::ExpectLinearTime(run, 50'000, "bytes of one letter");
}

}  // namespace
}  // namespace avocet::server
