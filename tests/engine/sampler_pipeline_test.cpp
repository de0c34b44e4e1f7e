// The logits pipeline against the golden cases (float64, tests/data/golden/sampling) and against a full sort, the drawing against its
// own distribution, log-probabilities against their definition; broken logits. Every kernel table that this machine has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "device/cpu_features.h"
#include "engine/sampler.h"

namespace avocet::engine {
namespace {

using nlohmann::json;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::vector<const ops::KernelTable*> Tables() {
  std::vector<const ops::KernelTable*> tables;
  const device::CpuFeatures cpu = device::DetectCpu();
  for (device::Isa isa : {device::Isa::kRef, device::Isa::kAvx2, device::Isa::kAvx512, device::Isa::kAvx512Bf16}) {
    if (cpu.Supports(isa)) tables.push_back(&ops::KernelsFor(isa));
  }
  return tables;
}

json Golden() {
  std::ifstream file(AVOCET_TEST_DATA "/golden/sampling/cases.json");
  return json::parse(file);
}

SamplingParams ParamsOf(const json& p) {
  SamplingParams params;
  params.temperature = p.value("temperature", 1.0f);
  params.top_k = p.value("top_k", 0);
  params.top_p = p.value("top_p", 1.0f);
  params.min_p = p.value("min_p", 0.0f);
  params.repetition_penalty = p.value("repetition_penalty", 1.0f);
  params.presence_penalty = p.value("presence_penalty", 0.0f);
  params.frequency_penalty = p.value("frequency_penalty", 0.0f);
  params.min_tokens = p.value("min_tokens", 0);
  params.stop_token_ids = p.value("stop_ids", std::vector<int32_t>());
  params.allowed_token_ids = p.value("allowed_token_ids", std::vector<int32_t>());
  params.bad_words = p.value("bad_words_ids", std::vector<std::vector<int32_t>>());
  if (p.contains("logit_bias")) {
    for (const auto& [token, bias] : p["logit_bias"].items()) params.logit_bias.emplace_back(std::stoi(token), bias.get<float>());
  }
  params.max_tokens = 100;
  return params;
}

Sequence SequenceOf(SamplingParams params, std::vector<int32_t> prompt, const std::vector<int32_t>& output) {
  Sequence s;
  s.request.sampling = std::move(params);
  s.request.prompt = prompt;
  s.tokens = prompt;
  if (s.request.sampling.repetition_penalty != 1.0f) {
    std::ranges::sort(prompt);
    prompt.erase(std::unique(prompt.begin(), prompt.end()), prompt.end());
    s.prompt_ids = std::move(prompt);
  }
  for (int32_t token : output) {
    s.tokens.push_back(token);
    CountGenerated(s, token);
  }
  return s;
}

std::vector<float> RandomLogits(uint64_t seed, size_t count, float spread) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random) * spread;
  return logits;
}

class SamplerTables : public ::testing::TestWithParam<const ops::KernelTable*> {};
INSTANTIATE_TEST_SUITE_P(Isa, SamplerTables, ::testing::ValuesIn(Tables()),
                         [](const auto& param) { return std::string(param.param->name); });

TEST_P(SamplerTables, GoldenCases_PenaltiesSupportAndProbabilitiesAgree) {
  const json golden = Golden();
  const int32_t vocab = golden["vocab"];
  const Sampler sampler(*GetParam(), vocab, vocab);
  Sampler::Scratch scratch = sampler.MakeScratch();
  int index = 0;
  for (const json& c : golden["cases"]) {
    SCOPED_TRACE("case " + std::to_string(index++) + " " + c["params"].dump());
    const SamplingParams params = ParamsOf(c["params"]);
    const Sequence sequence = SequenceOf(params, c["prompt_ids"], c["output_ids"]);
    auto logits = c["logits"].get<std::vector<float>>();
    sampler.ApplyPenalties(sequence, logits, scratch);
    for (size_t i = 0; i < logits.size(); ++i) {
      const json& want = c["after_penalties"][i];
      if (want.is_null()) {
        EXPECT_EQ(logits[i], kMinusInfinity) << i;
      } else {
        // At most six roundings of values below 128: 6 * 2^-24 * 128 = 4.6e-5.
        EXPECT_NEAR(logits[i], want.get<double>(), 5e-5) << i;
      }
    }
    EXPECT_EQ(std::ranges::max_element(logits) - logits.begin(), c["greedy"].get<int64_t>());
    if (c["probs"].is_null()) {
      EXPECT_TRUE(IsGreedy(params));
      continue;
    }
    sampler.FindCandidates(params, logits, scratch);
    std::vector<int32_t> support;
    for (const Candidate& candidate : scratch.candidates) {
      if (candidate.probability > 0) support.push_back(candidate.token);
      EXPECT_NEAR(candidate.probability, c["probs"][static_cast<size_t>(candidate.token)].get<double>(), 1e-5) << candidate.token;
    }
    std::ranges::sort(support);
    EXPECT_EQ(support, c["support"].get<std::vector<int32_t>>());
  }
  EXPECT_GE(index, 41);
}

// Sample() as a whole: greedy gives the golden token, random draws stay inside the golden support.
TEST_P(SamplerTables, GoldenCases_SampledTokensAreTheReferences) {
  const json golden = Golden();
  const int32_t vocab = golden["vocab"];
  const Sampler sampler(*GetParam(), vocab, vocab);
  Sampler::Scratch scratch = sampler.MakeScratch();
  for (const json& c : golden["cases"]) {
    SCOPED_TRACE(c["params"].dump());
    Sequence sequence = SequenceOf(ParamsOf(c["params"]), c["prompt_ids"], c["output_ids"]);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      sequence.seed = seed;
      auto logits = c["logits"].get<std::vector<float>>();
      SampleResult sample;
      sampler.Sample(sequence, logits, scratch, sample);
      if (c["probs"].is_null()) {
        EXPECT_EQ(sample.token, c["greedy"].get<int32_t>());
      } else {
        EXPECT_TRUE(std::ranges::count(c["support"].get<std::vector<int32_t>>(), sample.token) == 1) << sample.token;
      }
    }
  }
}

struct Filters {
  int32_t top_k;
  float top_p;
  float min_p;
};

// How many tokens stay, by a full sort in double.
double CountKept(std::vector<double> sorted, const Filters& f, double& edge) {
  std::ranges::sort(sorted, std::greater<>());
  const auto weight = [&](size_t i) { return std::exp(sorted[i] - sorted[0]); };
  size_t limit = f.top_k > 0 ? static_cast<size_t>(f.top_k) : sorted.size();
  while (limit < sorted.size() && sorted[limit] == sorted[limit - 1]) ++limit;
  while (limit > 1 && weight(limit - 1) < static_cast<double>(f.min_p)) --limit;
  double total = 0;
  for (size_t i = 0; i < limit; ++i) total += weight(i);
  double before = 0;
  size_t keep = 0;
  while (keep < limit && (keep == 0 || before / total < static_cast<double>(f.top_p))) before += weight(keep++);
  // The total is good to 4e-6 of itself (float exponentials): so many tokens stand on the border of top-p.
  edge = 1 + 4e-6 * total / weight(keep - 1);
  return static_cast<double>(keep);
}

TEST_P(SamplerTables, LargeVocabulary_FiltersAgreeWithAFullSort) {
  constexpr int32_t kVocab = 20'000;
  const Sampler sampler(*GetParam(), kVocab, kVocab);
  Sampler::Scratch scratch = sampler.MakeScratch();
  const Filters all_filters[] = {{0, 0.9f, 0.0f},  {0, 0.999f, 0.0f},    {0, 0.01f, 0.0f}, {50, 0.95f, 0.0f}, {3000, 0.5f, 0.0f},
                                 {0, 1.0f, 0.05f}, {20'000, 1.0f, 0.0f}, {1, 1.0f, 0.0f},  {70, 1.0f, 0.01f}, {0, 0.7f, 0.1f}};
  for (const float spread : {0.0f, 0.01f, 1.0f, 4.0f, 20.0f}) {
    for (const Filters& f : all_filters) {
      SCOPED_TRACE(testing::Message() << "spread " << spread << " top_k " << f.top_k << " top_p " << f.top_p << " min_p " << f.min_p);
      std::vector<float> logits = RandomLogits(7, kVocab, spread);
      double edge = 0;
      const double keep = CountKept({logits.begin(), logits.end()}, f, edge);
      sampler.FindCandidates({.top_p = f.top_p, .top_k = f.top_k, .min_p = f.min_p}, logits, scratch);
      EXPECT_NEAR(static_cast<double>(scratch.candidates.size()), keep, edge);
      double sum = 0;
      for (const Candidate& candidate : scratch.candidates) sum += candidate.probability;
      EXPECT_NEAR(sum, 1.0, 1e-5);
    }
  }
}

// Draws follow the probabilities: chi-square over the candidates. The seeds are fixed, so the statistic is one number; its limit is the
// 1 - 1e-6 quantile by the Wilson-Hilferty approximation (z = 4.75).
TEST_P(SamplerTables, RandomDraws_FollowTheDistribution) {
  constexpr int32_t kVocab = 60;
  constexpr int kDraws = 20'000;
  const Sampler sampler(*GetParam(), kVocab + 4, kVocab);
  Sampler::Scratch scratch = sampler.MakeScratch();
  const std::vector<float> raw = RandomLogits(3, kVocab + 4, 1.0f);
  for (const SamplingParams& params : {SamplingParams{.temperature = 1.0f}, SamplingParams{.temperature = 0.7f, .top_p = 0.9f},
                                       SamplingParams{.temperature = 1.5f, .top_k = 12}, SamplingParams{.min_p = 0.1f}}) {
    std::vector<float> scaled(raw.begin(), raw.begin() + kVocab);
    sampler.FindCandidates(params, scaled, scratch);
    const std::vector<Candidate> candidates = scratch.candidates;
    std::vector<int> counts(kVocab, 0);
    Sequence sequence = SequenceOf(params, {1}, {});
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      sequence.seed = seed;
      std::vector<float> logits = raw;
      SampleResult sample;
      sampler.Sample(sequence, logits, scratch, sample);
      ASSERT_LT(sample.token, kVocab);
      ++counts[static_cast<size_t>(sample.token)];
    }
    double chi_square = 0;
    for (const Candidate& candidate : candidates) {
      const double expected = candidate.probability * kDraws;
      const double off = counts[static_cast<size_t>(candidate.token)] - expected;
      chi_square += off * off / expected;
    }
    const auto freedom = static_cast<double>(candidates.size() - 1);
    const double a = 2.0 / (9 * freedom);
    EXPECT_LT(chi_square, freedom * std::pow(1 - a + 4.75 * std::sqrt(a), 3)) << candidates.size() << " candidates";
  }
}

// Positions of one seed are as good as seeds: consecutive draws are uniform over pairs of cells (255 degrees of freedom, z = 4.75).
TEST(SamplerDraw, ConsecutivePositions_AreUniformAndIndependent) {
  constexpr int kCells = 16;
  constexpr int kDraws = 64'000;
  constexpr double kExpected = double{kDraws} / (kCells * kCells);
  std::vector<int> pairs(kCells * kCells, 0);
  double last = Sampler::Draw(1, 0);
  for (int position = 1; position <= kDraws; ++position) {
    const double u = Sampler::Draw(1, position);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++pairs[static_cast<size_t>(static_cast<int>(last * kCells) * kCells + static_cast<int>(u * kCells))];
    last = u;
  }
  double chi_square = 0;
  for (int count : pairs) chi_square += std::pow(count - kExpected, 2) / kExpected;
  EXPECT_LT(chi_square, 255 + 4.75 * std::sqrt(2.0 * 255));
}

TEST_P(SamplerTables, Score_GivesLogSoftmaxOverAllRowsAndRanksOfRealTokens) {
  constexpr int32_t kRows = 1003;
  constexpr int32_t kReal = 1000;
  const Sampler sampler(*GetParam(), kRows, kReal);
  std::vector<float> logits = RandomLogits(11, kRows, 2.0f);
  logits[kReal] = 30;  // a row without a token is in the denominator, and nowhere else
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit));
  std::vector<int32_t> order(kReal);
  for (int32_t i = 0; i < kReal; ++i) order[static_cast<size_t>(i)] = i;
  std::ranges::sort(order, std::greater<>(), [&](int32_t i) { return logits[static_cast<size_t>(i)]; });
  for (const int32_t num_top : {0, 1, 5, 20, 64, 65, 100, kReal, kRows + 5}) {
    TokenLogprobs result;
    sampler.Score(logits, order[42], num_top, result);
    ASSERT_EQ(result.top.size(), static_cast<size_t>(std::min(num_top, kReal)) + 1) << num_top;
    EXPECT_EQ(result.top[0].token, order[42]);
    EXPECT_EQ(result.top[0].rank, 43);
    for (size_t i = 1; i < result.top.size(); ++i) {
      EXPECT_EQ(result.top[i].token, order[i - 1]) << num_top;
      EXPECT_EQ(result.top[i].rank, static_cast<int32_t>(i));
      // Values near 40 have a spacing of 4e-6; three roundings.
      EXPECT_NEAR(result.top[i].logprob, static_cast<double>(logits[static_cast<size_t>(order[i - 1])]) - std::log(sum), 1e-5);
    }
  }
}

TEST_P(SamplerTables, Score_EqualLogits_LowerIdsFirst) {
  const Sampler sampler(*GetParam(), 100, 100);
  const std::vector<float> logits(100, 1.5f);
  for (const int32_t num_top : {3, 40, 100}) {
    TokenLogprobs result;
    sampler.Score(logits, 9, num_top, result);
    for (size_t i = 1; i < result.top.size(); ++i) EXPECT_EQ(result.top[i].token, static_cast<int32_t>(i) - 1);
  }
}

TEST_P(SamplerTables, LogprobsOfASample_AreThoseOfTheRawLogits) {
  constexpr int32_t kVocab = 100;
  const Sampler sampler(*GetParam(), kVocab, kVocab);
  Sampler::Scratch scratch = sampler.MakeScratch();
  Sequence sequence = SequenceOf({.temperature = 0.5f, .top_k = 3, .presence_penalty = 2.0f, .logit_bias = {{5, 50.0f}}}, {1, 2}, {5});
  sequence.request.logprobs = 4;
  const std::vector<float> raw = RandomLogits(2, kVocab, 1.0f);
  std::vector<float> logits = raw;
  SampleResult sample;
  sampler.Sample(sequence, logits, scratch, sample);
  TokenLogprobs expected;
  sampler.Score(raw, sample.token, 4, expected);
  ASSERT_EQ(sample.logprobs.top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(sample.logprobs.top[i].token, expected.top[i].token);
    EXPECT_EQ(sample.logprobs.top[i].logprob, expected.top[i].logprob);
  }
}

// A broken network must not break the server: some token of the vocabulary comes out, and never one that is not a number.
TEST_P(SamplerTables, NotANumberAndInfinity_GiveSomeToken) {
  constexpr int32_t kVocab = 70;
  constexpr int32_t kBad = 33;
  const Sampler sampler(*GetParam(), kVocab, kVocab);
  Sampler::Scratch scratch = sampler.MakeScratch();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const SamplingParams all_params[] = {{.temperature = 0.0f}, {.temperature = 1.0f}, {.top_p = 0.9f}, {.top_k = 5}, {.min_p = 0.5f}};
  for (const SamplingParams& params : all_params) {
    for (const float value : {nan, kMinusInfinity, -kMinusInfinity}) {
      for (const int32_t num_bad : {1, kVocab}) {
        std::vector<float> logits(kVocab, num_bad == kVocab ? value : 1.0f);
        logits[kBad] = value;
        Sequence sequence = SequenceOf(params, {1}, {});
        sequence.request.logprobs = 3;
        SampleResult sample;
        sampler.Sample(sequence, logits, scratch, sample);
        EXPECT_GE(sample.token, 0);
        EXPECT_LT(sample.token, kVocab);
        if (num_bad == 1) {
          EXPECT_EQ(sample.token == kBad, value > 0) << value;
        }
      }
    }
  }
}

}  // namespace
}  // namespace avocet::engine
