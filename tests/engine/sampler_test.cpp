#include "engine/sampler.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "ops/kernel_choice.h"
#include "support/golden.h"

namespace avocet::engine {
namespace {

using Json = nlohmann::json;

std::vector<device::Isa> Isas() {
  return test::IsasUnderTest();
}

Sequence SequenceOf(const Json& c) {
  Sequence s;
  const Json& p = c["params"];
  SamplingParams& params = s.request.sampling;
  params.temperature = p.value("temperature", 1.0f);
  params.top_p = p.value("top_p", 1.0f);
  params.top_k = p.value("top_k", 0);
  params.min_p = p.value("min_p", 0.0f);
  params.presence_penalty = p.value("presence_penalty", 0.0f);
  params.frequency_penalty = p.value("frequency_penalty", 0.0f);
  params.repetition_penalty = p.value("repetition_penalty", 1.0f);
  params.min_tokens = p.value("min_tokens", 0);
  params.stop_token_ids = p.value("stop_ids", p.value("stop_token_ids", std::vector<int32_t>()));
  params.allowed_token_ids = p.value("allowed_token_ids", std::vector<int32_t>());
  if (p.contains("bad_words_ids")) {
    for (const Json& word : p["bad_words_ids"])
      params.bad_words.push_back(word.is_array() ? word.get<std::vector<int32_t>>() : std::vector<int32_t>{word.get<int32_t>()});
  }
  if (p.contains("logit_bias")) {
    for (const auto& [token, bias] : p["logit_bias"].items()) params.logit_bias.emplace_back(std::stoi(token), bias.get<float>());
  }
  params.max_tokens = 1000;
  s.request.prompt = c["prompt_ids"].get<std::vector<int32_t>>();
  s.tokens = s.request.prompt;
  s.prompt_ids = s.request.prompt;
  std::sort(s.prompt_ids.begin(), s.prompt_ids.end());
  s.prompt_ids.erase(std::unique(s.prompt_ids.begin(), s.prompt_ids.end()), s.prompt_ids.end());
  for (int32_t token : c["output_ids"].get<std::vector<int32_t>>()) {
    s.tokens.push_back(token);
    CountGenerated(s, token);
  }
  return s;
}

// Penalised logits, support and probabilities of every reference case: support exactly, probabilities to 1e-5.
TEST(Sampler, GoldenCases_SameSupportAndProbabilities) {
  std::ifstream file(test::GoldenDir() + "/sampling/cases.json");
  const Json golden = Json::parse(file);
  const int32_t vocab = golden["vocab"];
  for (device::Isa isa : Isas()) {
    const Sampler sampler(ops::KernelsFor(isa), vocab, vocab);
    auto scratch = sampler.MakeScratch();
    int index = 0;
    for (const Json& c : golden["cases"]) {
      SCOPED_TRACE(testing::Message() << device::IsaName(isa) << " case " << index++ << " " << c["params"].dump());
      const Sequence s = SequenceOf(c);
      std::vector<float> logits = c["logits"].get<std::vector<float>>();
      sampler.ApplyPenalties(s, logits, scratch);
      for (size_t i = 0; i < logits.size(); ++i) {
        const Json& want = c["after_penalties"][i];
        if (want.is_null()) {
          EXPECT_EQ(logits[i], -INFINITY) << "token " << i;
        } else {
          EXPECT_NEAR(logits[i], want.get<double>(), 1e-4) << "token " << i;
        }
      }
      if (!c.contains("support") || c["support"].is_null() || IsGreedy(s.request.sampling)) continue;
      sampler.FindCandidates(s.request.sampling, logits, scratch);
      std::map<int32_t, double> got;
      for (const Candidate& candidate : scratch.candidates) got[candidate.token] = candidate.probability;
      std::vector<int32_t> support;
      for (const auto& [token, p] : got) support.push_back(token);
      EXPECT_EQ(support, c["support"].get<std::vector<int32_t>>());
      if (!c.contains("probs")) continue;
      for (size_t i = 0; i < c["support"].size() && i < c["probs"].size(); ++i) {
        const double want = c["probs"].size() == c["support"].size() ? c["probs"][i].get<double>()
                                                                     : c["probs"][c["support"][i].get<size_t>()].get<double>();
        EXPECT_NEAR(got[c["support"][i].get<int32_t>()], want, 1e-5) << "token " << c["support"][i];
      }
    }
  }
}

// Chi-square of draws against probabilities: 31 degrees of freedom, the 99.99 % quantile is 70.6.
TEST(Sampler, Draws_FollowTheProbabilities) {
  constexpr int32_t kVocab = 32;
  constexpr int kDraws = 200'000;
  const Sampler sampler(ops::kRefKernels, kVocab, kVocab);
  auto scratch = sampler.MakeScratch();
  for (const float top_p : {1.0f, 0.9999f}) {  // both ways of drawing
    std::vector<double> weights(kVocab);
    double total = 0;
    for (int32_t i = 0; i < kVocab; ++i)
      total += weights[static_cast<size_t>(i)] = std::exp(static_cast<double>(static_cast<float>(i % 7) * 0.3f));
    std::vector<int> counts(kVocab);
    Sequence s;
    s.seed = 20261201;
    s.request.sampling.top_p = top_p;
    s.request.sampling.max_tokens = kDraws;
    for (int draw = 0; draw < kDraws; ++draw) {
      std::vector<float> logits(kVocab);
      for (int32_t i = 0; i < kVocab; ++i) logits[static_cast<size_t>(i)] = static_cast<float>(i % 7) * 0.3f;
      SampleResult result;
      sampler.Sample(s, logits, scratch, result);
      ++counts[static_cast<size_t>(result.token)];
      s.tokens.push_back(0);
    }
    double chi_square = 0;
    for (int32_t i = 0; i < kVocab; ++i) {
      const double expected = weights[static_cast<size_t>(i)] / total * kDraws;
      chi_square += std::pow(counts[static_cast<size_t>(i)] - expected, 2) / expected;
    }
    EXPECT_LT(chi_square, 70.6) << "top_p " << top_p << ", seed 20261201";
  }
}

TEST(Sampler, PaddingRows_NeverSampled_ButCountInTheLogprobs) {
  const Sampler sampler(ops::kRefKernels, 6, 4);
  auto scratch = sampler.MakeScratch();
  Sequence s;
  s.request.sampling.temperature = 0;
  s.request.logprobs = 2;
  std::vector<float> logits = {0, 1, 0, 0, 9, 9};
  SampleResult result;
  sampler.Sample(s, logits, scratch, result);
  EXPECT_EQ(result.token, 1);
  const double log_sum = std::log(3 + std::exp(1.0) + 2 * std::exp(9.0));
  ASSERT_EQ(result.logprobs.top.size(), 3u);
  EXPECT_NEAR(result.logprobs.top[0].logprob, 1 - log_sum, 1e-5);
  EXPECT_EQ(result.logprobs.top[0].rank, 1);
  EXPECT_EQ(result.logprobs.top[1].token, 1);
  EXPECT_EQ(result.logprobs.top[2].token, 0);
}

TEST(Sampler, SeedAndPosition_DecideTheDraw) {
  EXPECT_EQ(Sampler::Draw(1, 5), Sampler::Draw(1, 5));
  EXPECT_NE(Sampler::Draw(1, 5), Sampler::Draw(1, 6));
  EXPECT_NE(Sampler::Draw(1, 5), Sampler::Draw(2, 5));
}

}  // namespace
}  // namespace avocet::engine
