// Encoding, decoding and loading on one core, one JSON line each; best of several rounds. The goal is issue 3's: 20 MB/s on prose.
// Uses the real vocabulary if tools/make_real_tokenizer.py has built it (build/real-tokenizer below the working folder), else the small
// one of the tests.
#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using avocet::tokenizer::SpecialTokens;
using avocet::tokenizer::Tokenizer;

constexpr double kProseGoalBytesPerSecond = 20e6;
constexpr size_t kTextBytes = size_t{1} << 20;
constexpr int kRounds = 9;

// English-like text: half of the words are frequent ones, the others are 20,000 made-up words with falling frequency; punctuation,
// capitals, numbers and paragraphs as in a report. Never two alike sentences.
std::string MakeProse(size_t num_bytes) {
  static constexpr std::array<std::string_view, 48> kFrequent{
      "the",   "of",   "and", "to",   "a",    "in",   "is",   "that", "for",  "it",  "as",  "was",   "with", "be",    "by",    "on",
      "not",   "he",   "his", "are",  "this", "or",   "had",  "have", "from", "but", "one", "which", "you",  "were",  "all",   "their",
      "there", "been", "has", "when", "who",  "will", "more", "no",   "if",   "out", "its", "work",  "time", "state", "water", "number"};
  static constexpr std::array<std::string_view, 24> kSyllables{"con", "ta",  "ment", "re",  "tion", "in",  "per",  "al",
                                                               "ver", "ing", "est",  "ly",  "mo",   "der", "ence", "ra",
                                                               "sti", "tor", "ble",  "pro", "si",   "ac",  "un",   "ed"};
  std::mt19937 random(42);
  const auto below = [&random](size_t bound) { return random() % bound; };
  std::vector<std::string> rare(20000);
  for (std::string& word : rare) {
    for (size_t n = 2 + below(3); n > 0; --n) word += kSyllables[below(kSyllables.size())];
  }
  std::string text;
  while (text.size() < num_bytes) {
    for (size_t i = 0, num_words = 6 + below(20); i < num_words; ++i) {
      // The product of two uniform numbers falls off like word frequencies do.
      const size_t rank = below(rare.size()) * below(rare.size()) / rare.size();
      std::string word = below(2) == 0 ? std::string(kFrequent[below(kFrequent.size())]) : rare[rank];
      if (below(60) == 0) word = fmt::format("{}", 1 + below(2000));
      if (i == 0) word.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(word.front())));
      text += (i == 0 ? "" : below(12) == 0 ? ", " : " ") + word;
    }
    text += below(8) == 0 ? ".\n\n" : ". ";
  }
  return text;
}

std::string MakeIdeographs(size_t num_bytes) {
  std::mt19937 random(43);
  const auto below = [&random](uint32_t bound) { return static_cast<uint32_t>(random()) % bound; };
  std::string text;
  while (text.size() < num_bytes) {
    for (uint32_t n = 4 + below(20); n > 0; --n) avocet::tokenizer::AppendUtf8(0x4e00 + below(3000), text);
    text += "\uff0c";
  }
  return text;
}

template <typename Run>
double BestSeconds(int rounds, Run&& run) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void ReportSpeed(std::string_view what, std::string_view vocabulary, double bytes_per_second) {
  fmt::print("{{\"what\": \"tokenizer {}\", \"vocabulary\": \"{}\", \"value\": {:.1f}, \"unit\": \"MB/s\"}}\n", what, vocabulary,
             bytes_per_second / 1e6);
}

}  // namespace

int main() {
  std::string folder = "build/real-tokenizer";
  std::string_view vocabulary = "real";
  if (!std::filesystem::exists(folder + "/tokenizer.json")) {
    folder = "tests/data/golden/checkpoints/a-dense";
    vocabulary = "small";
  }
  const auto loaded = Tokenizer::Load(folder);
  if (!loaded) {
    fmt::print(stderr, "{}\n", loaded.error().message);
    return 1;
  }
  const Tokenizer& tokenizer = **loaded;
  size_t num_ids = 0;  // keeps the work from being optimized away, and shows that it was done
  const auto encode_in_parts = [&](const std::string& text, size_t part_bytes) {
    const double seconds = BestSeconds(kRounds, [&] {
      for (size_t at = 0; at < text.size(); at += part_bytes)
        num_ids += tokenizer.Encode(std::string_view(text).substr(at, part_bytes)).size();
    });
    return static_cast<double>(text.size()) / seconds;
  };

  const std::string prose = MakeProse(kTextBytes);
  const double prose_speed = encode_in_parts(prose, prose.size());
  const std::vector<int32_t> prose_ids = tokenizer.Encode(prose);
  fmt::print(
      "{{\"what\": \"tokenizer encode prose\", \"vocabulary\": \"{}\", \"value\": {:.1f}, \"unit\": \"MB/s\", \"bytes_per_token\": {:.2f}, "
      "\"ratio\": {:.2f}, \"goal\": 1.0}}\n",
      vocabulary, prose_speed / 1e6, static_cast<double>(prose.size()) / static_cast<double>(prose_ids.size()),
      prose_speed / kProseGoalBytesPerSecond);
  ReportSpeed("encode prose in texts of 4 KiB", vocabulary, encode_in_parts(prose, 4096));
  const std::string ideographs = MakeIdeographs(kTextBytes);
  ReportSpeed("encode random ideographs", vocabulary, encode_in_parts(ideographs, ideographs.size()));
  ReportSpeed("encode one letter", vocabulary, encode_in_parts(std::string(kTextBytes, 'a'), kTextBytes));
  size_t decoded_bytes = 0;
  const double decode_seconds = BestSeconds(kRounds, [&] { decoded_bytes = tokenizer.Decode(prose_ids, SpecialTokens::kSkip).size(); });
  ReportSpeed("decode prose", vocabulary, static_cast<double>(decoded_bytes) / decode_seconds);
  const double load_seconds = BestSeconds(3, [&] {
    if (!Tokenizer::Load(folder)) std::abort();
  });
  fmt::print("{{\"what\": \"tokenizer load\", \"vocabulary\": \"{}\", \"value\": {:.1f}, \"unit\": \"ms\"}}\n", vocabulary,
             load_seconds * 1e3);
  return num_ids > 0 && decoded_bytes == prose.size() ? 0 : 1;
}
