#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace avocet::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5f;
constexpr float kTemperatureMin = 0.01f;
constexpr float kBiasMax = 100.0f;
constexpr size_t kBlock = 1024;  // columns whose probabilities are summed together when drawing from the whole vocabulary

void Mask(std::span<float> logits, int32_t token) {
  if (token >= 0 && static_cast<size_t>(token) < logits.size()) logits[static_cast<size_t>(token)] = kMinusInfinity;
}

void KeepOnly(std::span<float> logits, std::span<const int32_t> allowed, std::vector<float>& scratch) {
  scratch.assign(logits.size(), kMinusInfinity);
  for (int32_t token : allowed) scratch[static_cast<size_t>(token)] = logits[static_cast<size_t>(token)];
  std::copy(scratch.begin(), scratch.end(), logits.begin());
}

// The last token of each bad sequence whose beginning has just been generated.
void MaskBadWords(const Sequence& sequence, std::span<float> logits) {
  for (const std::vector<int32_t>& word : sequence.request.sampling.bad_words) {
    if (word.empty()) continue;
    const size_t begin = word.size() - 1;
    if (static_cast<size_t>(sequence.num_generated()) < begin) continue;
    if (std::equal(word.begin(), word.end() - 1, sequence.tokens.end() - static_cast<ptrdiff_t>(begin))) Mask(logits, word.back());
  }
}

float Repeated(float logit, float penalty) {
  return logit > 0 ? logit / penalty : logit * penalty;
}

// Prompt ids and counts are both ascending: one merge over what occurs, whatever the size of the vocabulary.
void Penalise(const Sequence& sequence, std::span<float> logits) {
  const SamplingParams& params = sequence.request.sampling;
  auto generated = sequence.generated_counts.begin();
  const auto generated_end = sequence.generated_counts.end();
  for (int32_t token : sequence.prompt_ids) {  // those that were generated too have their turn below
    while (generated != generated_end && generated->first < token) ++generated;
    if (generated != generated_end && generated->first == token) continue;
    float& logit = logits[static_cast<size_t>(token)];
    logit = Repeated(logit, params.repetition_penalty);
  }
  for (const auto& [token, count] : sequence.generated_counts) {
    float& logit = logits[static_cast<size_t>(token)];
    if (params.repetition_penalty != 1.0f) logit = Repeated(logit, params.repetition_penalty);
    logit -= params.frequency_penalty * static_cast<float>(count);
    logit -= params.presence_penalty;
  }
}

bool HasPenalties(const SamplingParams& p) {
  return p.repetition_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f;
}

bool ChangesLogits(const Sequence& sequence) {
  const SamplingParams& p = sequence.request.sampling;
  return HasPenalties(p) || !p.logit_bias.empty() || !p.allowed_token_ids.empty() || !p.bad_words.empty() ||
         sequence.num_generated() < p.min_tokens || !IsGreedy(p);
}

// The k-th largest value; equal values beside it stay in.
float KthLargest(std::span<const float> logits, size_t k, std::vector<float>& heap) {
  heap.clear();
  for (float logit : logits) {
    if (heap.size() < k) {
      heap.push_back(logit);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    } else if (logit > heap.front()) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.back() = logit;
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  return heap.front();
}

// Higher logit first; the lower id among equals.
bool IsAhead(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

}  // namespace

bool IsGreedy(const SamplingParams& params) {
  return params.temperature < kGreedyBelow;
}

void ReserveCounts(Sequence& sequence) {
  if (HasPenalties(sequence.request.sampling)) sequence.generated_counts.reserve(static_cast<size_t>(sequence.request.sampling.max_tokens));
}

void CountGenerated(Sequence& sequence, int32_t token) {
  if (!HasPenalties(sequence.request.sampling)) return;
  auto& counts = sequence.generated_counts;
  const auto found = std::ranges::lower_bound(counts, token, {}, &std::pair<int32_t, int32_t>::first);
  if (found != counts.end() && found->first == token) {
    ++found->second;
  } else {
    counts.emplace(found, token, 1);
  }
}

// splitmix64 (Steele, Lea, Flood 2014) over the seed, then over the position.
double Sampler::Draw(uint64_t seed, int64_t position) {
  const auto mix = [](uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  return static_cast<double>(mix(mix(seed) ^ static_cast<uint64_t>(position)) >> 11) * 0x1p-53;
}

Sampler::Sampler(const ops::KernelTable& kernels, int32_t vocab_rows, int32_t vocab_size)
    : kernels_(kernels), vocab_rows_(vocab_rows), vocab_size_(std::min(vocab_size, vocab_rows)) {}

Sampler::Scratch Sampler::MakeScratch() const {
  Scratch scratch;
  scratch.row.reserve(static_cast<size_t>(vocab_rows_));
  scratch.raw.reserve(static_cast<size_t>(vocab_rows_));
  scratch.candidates.reserve(4096);
  scratch.top.reserve(1024);
  scratch.block_sums.reserve(static_cast<size_t>(vocab_rows_) / kBlock + 1);
  return scratch;
}

// Over all rows of the head, padding included, as the reference does.
Sampler::RawStats Sampler::StatsOf(std::span<const float> logits) const {
  RawStats stats;
  int32_t index = -1;
  kernels_.argmax(logits.data(), static_cast<int32_t>(logits.size()), &stats.max, &index);
  const float sum = kernels_.sum_exp(logits.data(), static_cast<int32_t>(logits.size()), stats.max);
  stats.log_sum_exp = stats.max + static_cast<float>(std::log(static_cast<double>(sum)));
  return stats;
}

void Sampler::Score(std::span<const float> logits, int32_t token, int32_t num_top, TokenLogprobs& result) const {
  const RawStats stats = StatsOf(logits);
  const std::span<const float> real = logits.first(static_cast<size_t>(vocab_size_));
  const auto entry = [&](int32_t id, int32_t rank) { return TopLogprob{id, logits[static_cast<size_t>(id)] - stats.log_sum_exp, rank}; };
  const float own = logits[static_cast<size_t>(token)];
  const auto above = std::ranges::count_if(real, [own](float other) { return other > own; });
  result.top.clear();
  result.top.push_back(entry(token, static_cast<int32_t>(above) + 1));
  // The best few by insertion: a pass over the row with almost no work per column.
  const auto count = static_cast<size_t>(std::min(num_top, vocab_size_));
  for (size_t i = 0; count > 0 && i < real.size(); ++i) {
    const float logprob = real[i] - stats.log_sum_exp;
    const bool is_full = result.top.size() == count + 1;
    if (is_full && !(logprob > result.top.back().logprob)) continue;
    if (is_full) result.top.pop_back();
    auto at = result.top.end();
    while (at != result.top.begin() + 1 && (at - 1)->logprob < logprob) --at;
    result.top.insert(at, {static_cast<int32_t>(i), logprob, 0});
  }
  for (size_t i = 1; i < result.top.size(); ++i) result.top[i].rank = static_cast<int32_t>(i);
}

void Sampler::ApplyPenalties(const Sequence& sequence, std::span<float> logits, Scratch& scratch) const {
  const SamplingParams& params = sequence.request.sampling;
  if (!params.allowed_token_ids.empty()) KeepOnly(logits, params.allowed_token_ids, scratch.row);
  if (!params.bad_words.empty()) MaskBadWords(sequence, logits);
  if (sequence.num_generated() < params.min_tokens) {
    for (int32_t token : params.stop_token_ids) Mask(logits, token);
    for (int32_t token : params.eos_token_ids) Mask(logits, token);
  }
  for (const auto& [token, bias] : params.logit_bias) logits[static_cast<size_t>(token)] += std::clamp(bias, -kBiasMax, kBiasMax);
  if (HasPenalties(params)) Penalise(sequence, logits);
}

void Sampler::FindCandidates(const SamplingParams& params, std::span<float> logits, Scratch& scratch) const {
  const auto size = static_cast<int32_t>(logits.size());
  kernels_.scale(logits.data(), size, 1.0f / std::max(params.temperature, kTemperatureMin));
  float max = 0;
  int32_t index = -1;
  kernels_.argmax(logits.data(), size, &max, &index);
  float lowest = std::numeric_limits<float>::lowest();
  if (params.min_p > 0) lowest = std::max(lowest, max + static_cast<float>(std::log(static_cast<double>(params.min_p))));
  if (params.top_k > 0 && params.top_k < size)
    lowest = std::max(lowest, KthLargest(logits, static_cast<size_t>(params.top_k), scratch.top));
  std::vector<Candidate>& kept = scratch.candidates;
  kept.clear();
  double total = 0;
  for (int32_t i = 0; i < size; ++i) {
    const float logit = logits[static_cast<size_t>(i)];
    if (!(logit >= lowest)) continue;
    kept.push_back({i, logit, std::exp(static_cast<double>(logit) - static_cast<double>(max))});
    total += kept.back().probability;
  }
  if (kept.empty()) {  // every token is masked, or nothing is a number: the largest stands alone
    kept.push_back({std::max(index, 0), max, 1.0});
    return;
  }
  if (params.top_p < 1.0f) {
    // Descending, a token stays while what stands before it is below top_p. Only the front needs to be sorted.
    double before = 0;
    size_t sorted = 0;
    size_t keep = 0;
    while (keep < kept.size()) {
      if (keep == sorted) {
        sorted = std::min(kept.size(), std::max<size_t>(64, sorted * 4));
        std::partial_sort(kept.begin() + static_cast<ptrdiff_t>(keep), kept.begin() + static_cast<ptrdiff_t>(sorted), kept.end(), IsAhead);
      }
      if (keep > 0 && before / total >= static_cast<double>(params.top_p)) break;
      before += kept[keep].probability;
      ++keep;
    }
    kept.resize(keep);
    total = before;
  }
  for (Candidate& candidate : kept) candidate.probability /= total;
}

// Neither top-k, top-p nor min-p: sums of blocks first, then the columns of one block.
int32_t Sampler::DrawFromAll(std::span<const float> logits, double u, Scratch& scratch) const {
  float max = 0;
  int32_t index = -1;
  kernels_.argmax(logits.data(), static_cast<int32_t>(logits.size()), &max, &index);
  if (!std::isfinite(max)) return std::max(index, 0);
  scratch.block_sums.clear();
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto count = static_cast<int32_t>(std::min(kBlock, logits.size() - begin));
    scratch.block_sums.push_back(static_cast<double>(kernels_.sum_exp(logits.data() + begin, count, max)));
    total += scratch.block_sums.back();
  }
  double left = u * total;
  size_t block = 0;
  while (block + 1 < scratch.block_sums.size() && left >= scratch.block_sums[block]) left -= scratch.block_sums[block++];
  int32_t drawn = index;
  const size_t end = std::min((block + 1) * kBlock, logits.size());
  for (size_t i = block * kBlock; i < end; ++i) {
    const double p = std::exp(static_cast<double>(logits[i]) - static_cast<double>(max));
    if (p <= 0) continue;
    drawn = static_cast<int32_t>(i);
    if (left < p) break;
    left -= p;
  }
  return drawn;
}

void Sampler::Sample(const Sequence& sequence, std::span<float> logits, Scratch& scratch, SampleResult& result) const {
  const SamplingParams& params = sequence.request.sampling;
  const bool wants_logprobs = sequence.request.logprobs >= 0;
  std::span<float> row = logits.first(static_cast<size_t>(vocab_size_));
  // Log-probabilities are those of the raw logits: keep them where they would be changed.
  std::span<const float> raw = logits;
  if (wants_logprobs && ChangesLogits(sequence)) {
    scratch.raw.assign(logits.begin(), logits.end());
    raw = scratch.raw;
  }
  ApplyPenalties(sequence, row, scratch);
  if (IsGreedy(params)) {
    float max = 0;
    int32_t index = -1;
    kernels_.argmax(row.data(), static_cast<int32_t>(row.size()), &max, &index);
    result.token = std::max(index, 0);
  } else {
    const double u = Draw(sequence.seed, sequence.num_generated());
    if (params.top_k <= 0 && params.top_p >= 1.0f && params.min_p <= 0) {
      kernels_.scale(row.data(), static_cast<int32_t>(row.size()), 1.0f / std::max(params.temperature, kTemperatureMin));
      result.token = DrawFromAll(row, u, scratch);
    } else {
      FindCandidates(params, row, scratch);
      double left = u;
      result.token = scratch.candidates.back().token;
      for (const Candidate& candidate : scratch.candidates) {
        if (left < candidate.probability) {
          result.token = candidate.token;
          break;
        }
        left -= candidate.probability;
      }
    }
  }
  result.logprobs.top.clear();
  if (wants_logprobs) Score(raw, result.token, sequence.request.logprobs, result.logprobs);
}

}  // namespace avocet::engine
