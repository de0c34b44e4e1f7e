// For the tokenizer's tests: golden files, hand-made tokenizer files, random Unicode text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unicode/uchar.h>
#include <nlohmann/json.hpp>

#include "tokenizer/byte_letters.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace avocet::tokenizer {

inline std::string GoldenPath(const std::string& relative) {
  const char* other = std::getenv("AVOCET_GOLDEN");
  return std::string(other != nullptr ? other : AVOCET_TEST_DATA "/golden") + "/" + relative;
}

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline nlohmann::json ReadJsonFile(const std::string& path) {
  return nlohmann::json::parse(ReadWholeFile(path));
}

// A tokenizer.json with all 256 bytes (id = byte) and the given merges as ids 256, 257, ...
inline nlohmann::json MakeTokenizerJson(const std::vector<std::pair<std::string, std::string>>& merges) {
  nlohmann::json vocab;
  nlohmann::json pairs = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(static_cast<unsigned char>(byte));
    vocab[BytesToLetters({&value, 1})] = byte;
  }
  int id = 256;
  for (const auto& [left, right] : merges) {
    if (const std::string merged = BytesToLetters(left + right); !vocab.contains(merged)) vocab[merged] = id++;
    pairs.push_back({BytesToLetters(left), BytesToLetters(right)});
  }
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", std::string(kQwen35Pattern)}}}, {"behavior", "Isolated"}, {"invert", false}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}}}}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

inline nlohmann::json MakeAddedToken(int id, std::string_view content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

inline std::shared_ptr<const Tokenizer> MustParse(const nlohmann::json& json, const std::string& config = "") {
  auto tokenizer = Tokenizer::Parse(json.dump(), config);
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    std::abort();
  }
  return *tokenizer;
}

inline std::shared_ptr<const Tokenizer> MustLoad(const std::string& folder) {
  auto tokenizer = Tokenizer::Load(folder);
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    std::abort();
  }
  return *tokenizer;
}

// std::mt19937 with results of 32 bits, whatever the library's type for them is.
class Random {
 public:
  using result_type = uint32_t;
  explicit Random(uint32_t seed) : engine_(seed) {}
  static constexpr uint32_t min() { return 0; }
  static constexpr uint32_t max() { return UINT32_MAX; }
  uint32_t operator()() { return static_cast<uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

// That four times the work takes about four times as long: quadratic work would take 16 times, the bound lies between the two by a
// factor of two each. Processor time of this thread, alternating, the best of several: a busy machine does not decide.
// run(n) does work of size n.
template <typename Run>
void ExpectLinearTime(Run&& run, size_t num, std::string_view what) {
  const auto seconds = [&run](size_t n) {
    const auto now = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double begin = now();
    run(n);
    return now() - begin;
  };
  double once = 1e9;
  double four_times = 1e9;
  for (int attempt = 0; attempt < 4; ++attempt) {
    once = std::min(once, seconds(num));
    four_times = std::min(four_times, seconds(4 * num));
  }
  EXPECT_LT(four_times / once, 8.0) << what << ": " << once << " s, then " << four_times << " s";
}

// Random text of the kinds that split patterns tell apart. Characters up to Unicode 14, the version of Debian 12's PCRE2 (its ICU has
// 15); no surrogates.
class RandomText {
 public:
  explicit RandomText(uint32_t seed) : random_(seed) {
    for (int32_t c = 0; c < 0x110000; ++c) {
      UVersionInfo age;
      u_charAge(c, age);
      const bool is_assigned = age[0] > 0 && age[0] <= 14 && u_charType(c) != U_PRIVATE_USE_CHAR && u_charType(c) != U_SURROGATE;
      if (is_assigned) assigned_.push_back(static_cast<uint32_t>(c));
    }
  }

  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }

  std::string Next(int max_characters) {
    static constexpr std::string_view kFragments[] = {"'s",
                                                      "'S",
                                                      "'\u017f",
                                                      "'ll",
                                                      "'Ll",
                                                      "'re",
                                                      "'v",
                                                      "'",
                                                      " ",
                                                      " ",
                                                      "  ",
                                                      "\n",
                                                      "\r\n",
                                                      "\r",
                                                      "\t",
                                                      "\u00a0",
                                                      "\u3000",
                                                      "\u2028",
                                                      "\u0085",
                                                      "\u180e",
                                                      "1",
                                                      "22",
                                                      "\u0663",
                                                      "\u00e9",
                                                      "e\u0301",
                                                      "\u0301\u0316",
                                                      "\u5b57",
                                                      "\u4e2d\u6587",
                                                      "\u00df",
                                                      "\u200d",
                                                      "\ud55c\uad6d",
                                                      "\u1100\u1161\u11a8",
                                                      "\u0915\u094d\u0937",
                                                      "\u0627",
                                                      "the",
                                                      " quick",
                                                      "Brown",
                                                      "_",
                                                      "...",
                                                      "()",
                                                      "{\n",
                                                      "\x7f",
                                                      "\ufffd",
                                                      "\ufeff",
                                                      "\U0001f642",
                                                      "<",
                                                      "<|"};
    std::string text;
    const int kind = Below(4);
    for (int n = Below(max_characters); n > 0; --n) {
      if (kind == 0 || (kind == 3 && Below(2) == 0)) {
        AppendUtf8(assigned_[random_() % assigned_.size()], text);
      } else if (kind == 1) {
        AppendUtf8(static_cast<uint32_t>(Below(0x250)), text);
      } else {
        text += kFragments[static_cast<size_t>(Below(static_cast<int>(std::size(kFragments))))];
      }
    }
    return text;
  }

 private:
  Random random_;
  std::vector<uint32_t> assigned_;
};

}  // namespace avocet::tokenizer
