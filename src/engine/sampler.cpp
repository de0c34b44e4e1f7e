#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace avocet::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5f;
constexpr float kTemperatureMin = 0.01f;
constexpr float kBiasMax = 100.0f;
constexpr size_t kBlock = 1024;    // columns whose probabilities are summed together when drawing from the whole vocabulary
constexpr size_t kMaxBlock = 256;  // columns with one maximum: 1000 blocks of the family's vocabulary, more than any usual top-k

void Mask(std::span<float> logits, int32_t token) {
  if (token >= 0 && static_cast<size_t>(token) < logits.size()) logits[static_cast<size_t>(token)] = kMinusInfinity;
}

void KeepOnly(std::span<float> logits, std::span<const int32_t> allowed, std::vector<float>& scratch) {
  scratch.assign(logits.size(), kMinusInfinity);
  for (int32_t token : allowed) scratch[static_cast<size_t>(token)] = logits[static_cast<size_t>(token)];
  std::copy(scratch.begin(), scratch.end(), logits.begin());
}

// What the request's constraint does not allow is masked, word by word.
void Constrain(const Sequence& sequence, std::span<float> logits, std::vector<uint64_t>& allowed) {
  constexpr size_t kWordBits = 64;
  allowed.resize((logits.size() + kWordBits - 1) / kWordBits);
  const auto generated = std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.num_prompt()));
  if (!sequence.request.constraint->Restricts(generated, allowed)) return;
  for (size_t word = 0; word < allowed.size(); ++word) {
    const std::span<float> row = logits.subspan(word * kWordBits, std::min(kWordBits, logits.size() - word * kWordBits));
    if (allowed[word] == ~uint64_t{0}) continue;
    for (size_t bit = 0; bit < row.size(); ++bit) {
      if ((allowed[word] >> bit & 1) == 0) row[bit] = kMinusInfinity;
    }
  }
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
         sequence.num_generated() < p.min_tokens || sequence.request.constraint != nullptr || !IsGreedy(p);
}

// Not a number counts as masked.
float Ordered(float logit) {
  return logit > kMinusInfinity ? logit : kMinusInfinity;
}

// The largest value, minus infinity if there is none; NaN never wins. Lanes that the compiler keeps in registers: a plain running maximum
// is one dependent operation per value. The kernel table's argmax would look for an index too.
float MaxOf(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(kMinusInfinity);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
  }
  float max = kMinusInfinity;
  for (; i < values.size(); ++i) max = values[i] > max ? values[i] : max;
  for (float lane : lanes) max = lane > max ? lane : max;
  return max;
}

std::span<const float> BlockOf(std::span<const float> row, size_t block) {
  const size_t begin = block * kMaxBlock;
  return row.subspan(begin, std::min(kMaxBlock, row.size() - begin));
}

size_t NumBlocks(std::span<const float> row) {
  return (row.size() + kMaxBlock - 1) / kMaxBlock;
}

// The largest value and the first token that has it; minus infinity and token 0 if nothing is a number above that.
Candidate BestOf(std::span<const float> row) {
  Candidate best{0, kMinusInfinity, 1.0};
  size_t best_block = 0;
  for (size_t block = 0; block < NumBlocks(row); ++block) {
    const float max = MaxOf(BlockOf(row, block));
    if (max > best.logit) {
      best.logit = max;
      best_block = block;
    }
  }
  for (size_t i = best_block * kMaxBlock; i < row.size(); ++i) {
    if (row[i] == best.logit) {
      best.token = static_cast<int32_t>(i);
      break;
    }
  }
  return best;
}

// Higher logit first; the lower id among equals.
bool IsAhead(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// The k-th largest of `values`, which are reordered.
float KthLargest(std::vector<float>& values, size_t k) {
  const auto kth = values.begin() + static_cast<ptrdiff_t>(k - 1);
  std::ranges::nth_element(values, kth, std::greater<>());
  return *kth;
}

// Appends the tokens of the `count` largest values in order. Few: by insertion, and only from blocks that reach the last of them.
// Many: by sorting.
void AppendTop(std::span<const float> values, size_t count, std::vector<TopLogprob>& top) {
  constexpr size_t kInsertMax = 64;
  const auto base = static_cast<ptrdiff_t>(top.size());
  const auto is_ahead = [](const TopLogprob& a, const TopLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
  };
  if (count > kInsertMax) {
    for (size_t i = 0; i < values.size(); ++i) top.push_back({static_cast<int32_t>(i), Ordered(values[i]), 0});
    const auto end = top.begin() + base + static_cast<ptrdiff_t>(count);
    std::partial_sort(top.begin() + base, end, top.end(), is_ahead);
    top.erase(end, top.end());
    return;
  }
  const auto end_size = top.size() + count;
  for (size_t block = 0; count > 0 && block < NumBlocks(values); ++block) {
    const std::span<const float> columns = BlockOf(values, block);
    if (top.size() == end_size && !(MaxOf(columns) > top.back().logprob)) continue;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (top.size() == end_size && !(columns[i] > top.back().logprob)) continue;
      if (top.size() == end_size) top.pop_back();
      const TopLogprob entry{static_cast<int32_t>(block * kMaxBlock + i), Ordered(columns[i]), 0};
      top.insert(std::upper_bound(top.begin() + base, top.end(), entry, is_ahead), entry);
    }
  }
}

// Moves to the front the candidates that top-p keeps, and drops the rest: descending, a token stays while what stands before it is below
// `wanted`. Selection by halves, so that only the neighbourhood of the border is sorted. Returns the sum of the probabilities kept.
double KeepFront(std::vector<Candidate>& kept, double wanted) {
  constexpr ptrdiff_t kSortMax = 64;
  auto low = kept.begin();
  auto high = kept.end();
  double before = 0;
  const auto plus = [](double sum, const Candidate& candidate) { return sum + candidate.probability; };
  while (high - low > kSortMax) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, IsAhead);
    const double through = std::accumulate(low, middle, before, plus);
    if (through >= wanted) {
      high = middle;
    } else {
      low = middle;
      before = through;
    }
  }
  std::sort(low, high, IsAhead);
  for (; low != high && (low == kept.begin() || before < wanted); ++low) before += low->probability;
  kept.erase(low, kept.end());
  return before;
}

bool AnyReaches(std::span<const float> values, float lowest) {
  bool any = false;
  for (float value : values) any |= value >= lowest;
  return any;
}

// Tokens whose logit is at least `lowest`, in ascending order. Returns the sum of their probabilities, relative to the largest.
double Collect(std::span<const float> logits, float lowest, float max, Sampler::Scratch& scratch) {
  constexpr size_t kGroup = 16;  // tested at once: most have no such token
  double total = 0;
  scratch.candidates.clear();
  for (size_t block = 0; block < scratch.block_maxima.size(); ++block) {
    if (scratch.block_maxima[block] < lowest) continue;
    const size_t end = std::min(logits.size(), (block + 1) * kMaxBlock);
    for (size_t begin = block * kMaxBlock; begin < end; begin += kGroup) {
      const size_t group_end = std::min(end, begin + kGroup);
      if (!AnyReaches(logits.subspan(begin, group_end - begin), lowest)) continue;
      std::array<int32_t, kGroup> reaching;  // gathered without a branch per token
      size_t count = 0;
      for (size_t i = begin; i < group_end; ++i) {
        reaching[count] = static_cast<int32_t>(i);
        count += logits[i] >= lowest ? 1 : 0;
      }
      for (size_t j = 0; j < count; ++j) {
        const float logit = logits[static_cast<size_t>(reaching[j])];
        const double probability = std::exp(static_cast<double>(logit) - static_cast<double>(max));
        scratch.candidates.push_back({reaching[j], logit, probability});
        total += probability;
      }
    }
  }
  return total;
}

// How far below the largest logit a share of `wanted` (relative to the largest token) probably reaches: all block maxima are known,
// and every 64th block stands for the rest of 64.
float EstimateDepth(std::span<const float> logits, float max, double wanted, const Sampler::Scratch& scratch) {
  constexpr size_t kStride = 64;
  constexpr size_t kBins = 80;
  constexpr float kBinDepth = 0.25f;
  std::array<double, kBins> bins{};
  const auto add = [&](float logit, double weight) {
    const float depth = max - logit;
    if (!(depth < kBinDepth * kBins)) return;
    bins[static_cast<size_t>(depth / kBinDepth)] += weight * std::exp(-static_cast<double>(depth));
  };
  for (float block_max : scratch.block_maxima) add(block_max, 1);
  for (size_t block = 0; block < scratch.block_maxima.size(); block += kStride) {
    for (float logit : BlockOf(logits, block)) {
      if (logit < scratch.block_maxima[block]) add(logit, kStride);
    }
  }
  size_t bin = 0;
  for (double sum = bins[0]; sum < wanted && bin + 1 < kBins; sum += bins[bin]) ++bin;
  return kBinDepth * static_cast<float>(bin + 1);
}

// The k-th largest logit; equal values beside it stay in. The k-th largest block maximum is a lower bound: at least k values reach it.
float TopKThreshold(std::span<const float> logits, size_t k, Sampler::Scratch& scratch) {
  float bound = kMinusInfinity;
  if (k <= scratch.block_maxima.size()) {
    scratch.top = scratch.block_maxima;
    bound = KthLargest(scratch.top, k);
  }
  scratch.top.clear();
  for (size_t block = 0; block < scratch.block_maxima.size(); ++block) {
    if (scratch.block_maxima[block] < bound) continue;
    for (float logit : BlockOf(logits, block)) {
      if (Ordered(logit) >= bound) scratch.top.push_back(Ordered(logit));
    }
  }
  return KthLargest(scratch.top, k);
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
  scratch.candidates.reserve(static_cast<size_t>(vocab_rows_));
  scratch.top.reserve(static_cast<size_t>(vocab_rows_));
  scratch.allowed.reserve(static_cast<size_t>(vocab_rows_) / 64 + 1);
  scratch.block_maxima.reserve(static_cast<size_t>(vocab_rows_) / kMaxBlock + 1);
  scratch.block_sums.reserve(static_cast<size_t>(vocab_rows_) / kBlock + 1);
  return scratch;
}

// Over all rows of the head, padding included, as the reference does.
Sampler::RawStats Sampler::StatsOf(std::span<const float> logits) const {
  RawStats stats;
  stats.max = MaxOf(logits);
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
  AppendTop(real, static_cast<size_t>(std::clamp(num_top, 0, vocab_size_)), result.top);
  for (size_t i = 1; i < result.top.size(); ++i) result.top[i] = entry(result.top[i].token, static_cast<int32_t>(i));
}

void Sampler::ApplyPenalties(const Sequence& sequence, std::span<float> logits, Scratch& scratch) const {
  const SamplingParams& params = sequence.request.sampling;
  if (sequence.request.constraint != nullptr) Constrain(sequence, logits, scratch.allowed);
  if (!params.allowed_token_ids.empty()) KeepOnly(logits, params.allowed_token_ids, scratch.row);
  if (!params.bad_words.empty()) MaskBadWords(sequence, logits);
  if (sequence.num_generated() < params.min_tokens) {
    for (int32_t token : params.stop_token_ids) Mask(logits, token);
    for (int32_t token : params.eos_token_ids) Mask(logits, token);
  }
  for (const auto& [token, bias] : params.logit_bias) logits[static_cast<size_t>(token)] += std::clamp(bias, -kBiasMax, kBiasMax);
  if (HasPenalties(params)) Penalise(sequence, logits);
}

// Top-p over all tokens: the sum comes from the vectorised kernel, and only tokens as near to the top as the wanted share probably needs
// are looked at, then more of them while it was not enough. Returns the sum over all tokens.
double Sampler::CollectForTopP(std::span<const float> logits, float max, double top_p, Scratch& scratch) const {
  if (logits.size() <= kBlock) return Collect(logits, std::numeric_limits<float>::lowest(), max, scratch);
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto count = static_cast<int32_t>(std::min(kBlock, logits.size() - begin));
    total += static_cast<double>(kernels_.sum_exp(logits.data() + begin, count, max));
  }
  constexpr double kSumError = 1e-4;  // far above that of the kernel
  constexpr float kDepthMax = 20.0f;
  const double wanted = total * top_p * (1 + kSumError);
  for (float depth = EstimateDepth(logits, max, wanted, scratch); depth < kDepthMax; depth += 1.0f) {
    if (Collect(logits, max - depth, max, scratch) >= wanted) return total;
  }
  return Collect(logits, std::numeric_limits<float>::lowest(), max, scratch);
}

// Divides by the temperature and finds the maxima of the blocks while each is in the cache; returns the largest.
float Sampler::ScaleAndFindMaxima(const SamplingParams& params, std::span<float> logits, Scratch& scratch) const {
  const float factor = 1.0f / std::max(params.temperature, kTemperatureMin);
  scratch.block_maxima.clear();
  for (size_t begin = 0; begin < logits.size(); begin += kMaxBlock) {
    const std::span<float> block = logits.subspan(begin, std::min(kMaxBlock, logits.size() - begin));
    kernels_.scale(block.data(), static_cast<int32_t>(block.size()), factor);
    scratch.block_maxima.push_back(MaxOf(block));
  }
  return MaxOf(scratch.block_maxima);
}

void Sampler::FindCandidates(const SamplingParams& params, std::span<float> logits, Scratch& scratch) const {
  const size_t size = logits.size();
  const float max = ScaleAndFindMaxima(params, logits, scratch);
  if (!std::isfinite(max)) {  // every token is masked, or nothing is a number: the largest stands alone
    scratch.candidates.assign(1, BestOf(logits));
    return;
  }
  const bool has_top_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < size;
  const auto top_p = static_cast<double>(params.top_p);
  double total = 0;
  if (!has_top_k && params.min_p <= 0 && top_p < 1) {
    total = CollectForTopP(logits, max, top_p, scratch);
  } else {
    float lowest = std::numeric_limits<float>::lowest();
    if (params.min_p > 0) lowest = std::max(lowest, max + static_cast<float>(std::log(static_cast<double>(params.min_p))));
    if (has_top_k) lowest = std::max(lowest, TopKThreshold(logits, static_cast<size_t>(params.top_k), scratch));
    total = Collect(logits, lowest, max, scratch);
  }
  if (top_p < 1) total = KeepFront(scratch.candidates, top_p * total);
  for (Candidate& candidate : scratch.candidates) candidate.probability /= total;
}

// Neither top-k, top-p nor min-p: sums of blocks first, then the columns of one block.
int32_t Sampler::DrawFromAll(const SamplingParams& params, std::span<float> logits, double u, Scratch& scratch) const {
  const float max = ScaleAndFindMaxima(params, logits, scratch);
  if (!std::isfinite(max)) return BestOf(logits).token;
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
  int32_t drawn = -1;
  const size_t end = std::min((block + 1) * kBlock, logits.size());
  for (size_t i = block * kBlock; i < end; ++i) {
    const double p = std::exp(static_cast<double>(logits[i]) - static_cast<double>(max));
    if (p <= 0) continue;
    drawn = static_cast<int32_t>(i);
    if (left < p) break;
    left -= p;
  }
  return drawn >= 0 ? drawn : BestOf(logits).token;  // the block's exponentials were below what double can tell
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
    result.token = BestOf(row).token;
  } else {
    const double u = Draw(sequence.seed, sequence.num_generated());
    if (params.top_k <= 0 && params.top_p >= 1.0f && params.min_p <= 0) {
      result.token = DrawFromAll(params, row, u, scratch);
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
