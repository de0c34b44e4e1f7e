// Logits to a token: masks, penalties, temperature, min-p, top-k, top-p, one draw (serving.md 2.6 has the order; tests/data/golden/
// sampling the exact rules). A pure function of the row's logits, the sequence's own tokens and (seed, position): who computes it,
// and what else is in the step, cannot matter. Runs on the workers; one row is one worker's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "engine/sequence.h"
#include "ops/kernel_table.h"

namespace avocet::engine {

// A token that may be drawn, with its probability after all filters.
struct Candidate {
  int32_t token = 0;
  float logit = 0;  // after penalties, divided by the temperature
  double probability = 0;
};

struct SampleResult {
  int32_t token = 0;
  TokenLogprobs logprobs;  // filled when asked for
};

class Sampler {
 public:
  Sampler(const ops::KernelTable& kernels, int32_t vocab_rows, int32_t vocab_size);

  // Worker-private memory, reused.
  struct Scratch {
    std::vector<float> row;  // [vocab_rows]
    std::vector<float> raw;  // [vocab_rows], logits as the model gave them
    std::vector<Candidate> candidates;
    std::vector<float> top;           // values that may be among the k best
    std::vector<float> block_maxima;  // of the scaled logits
    std::vector<double> block_sums;
    std::vector<uint64_t> allowed;  // bits of the constraint
  };
  Scratch MakeScratch() const;

  // logits: [vocab_rows], changed in place.
  void Sample(const Sequence& sequence, std::span<float> logits, Scratch& scratch, SampleResult& result) const;

  // Log-probabilities of raw logits: the entry of `token` first, then the `num_top` most likely ones.
  void Score(std::span<const float> logits, int32_t token, int32_t num_top, TokenLogprobs& result) const;

  // Steps of Sample, each on its own for tests. Mask and penalise: everything before the temperature.
  void ApplyPenalties(const Sequence& sequence, std::span<float> logits, Scratch& scratch) const;
  // The tokens that may be drawn and their probabilities; logits are scaled in place. Not for greedy.
  void FindCandidates(const SamplingParams& params, std::span<float> logits, Scratch& scratch) const;

  // Uniform in [0, 1): a hash of the seed and the number of tokens generated so far.
  static double Draw(uint64_t seed, int64_t position);

 private:
  struct RawStats {
    float max = 0;
    float log_sum_exp = 0;
  };
  RawStats StatsOf(std::span<const float> logits) const;
  double CollectForTopP(std::span<const float> logits, float max, double top_p, Scratch& scratch) const;
  float ScaleAndFindMaxima(const SamplingParams& params, std::span<float> logits, Scratch& scratch) const;
  int32_t DrawFromAll(const SamplingParams& params, std::span<float> logits, double u, Scratch& scratch) const;

  const ops::KernelTable& kernels_;
  int32_t vocab_rows_;
  int32_t vocab_size_;
};

bool IsGreedy(const SamplingParams& params);

// Room for the counts of all tokens that may be generated, so that counting allocates nothing (MEM-1).
void ReserveCounts(Sequence& sequence);
// Counts one more generated token; the sequence's penalties see it from the next position on.
void CountGenerated(Sequence& sequence, int32_t token);

}  // namespace avocet::engine
