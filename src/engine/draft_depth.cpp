#include "engine/draft_depth.h"

#include <algorithm>
#include <bit>

namespace avocet::engine {

DraftDepth::DraftDepth(int32_t max_depth, DraftDepthPolicy policy) : max_depth_(max_depth), policy_(policy) {
  constexpr double kHopeful = 0.8;
  accept_.fill(kHopeful);
  for (Load& load : loads_) {
    load.step.resize(static_cast<size_t>(max_depth) + 1);
    load.drafting.resize(static_cast<size_t>(max_depth) + 1);
  }
}

void DraftDepth::Mean::Add(double x) {
  constexpr double kOldest = 0.1;  // weight of the newest once there are ten
  ++count;
  value += (x - value) * std::max(kOldest, 1.0 / count);
}

DraftDepth::Load& DraftDepth::LoadOf(int32_t num_sequences) {
  const auto bits = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(std::max(num_sequences, 1))) - 1);
  return loads_[std::min(bits, loads_.size() - 1)];
}

bool DraftDepth::IsMeasured(const Load& load, int32_t depth) const {
  const auto i = static_cast<size_t>(depth);
  return load.step[i].count >= kTrials && (depth == 0 || load.drafting[i].count >= kTrials);
}

double DraftDepth::ExpectedTokens(int32_t depth) const {
  double tokens = 1;
  double reached = 1;
  for (int32_t i = 0; i < depth; ++i) {
    reached *= accept_[static_cast<size_t>(i)];
    tokens += reached;
  }
  return tokens;
}

int32_t DraftDepth::Best(const Load& load) const {
  const double plain = load.step[0].value;
  int32_t best = 0;
  double best_gain = kLeastGain;
  for (int32_t depth = 1; depth <= max_depth_; ++depth) {
    const auto i = static_cast<size_t>(depth);
    const double gain = ExpectedTokens(depth) * plain / (load.step[i].value + load.drafting[i].value);
    if (gain > best_gain) {
      best = depth;
      best_gain = gain;
    }
  }
  return best;
}

int32_t DraftDepth::Choose(int32_t num_sequences) {
  if (policy_ == DraftDepthPolicy::kMost) return max_depth_;
  if (!IsWorthKeeping()) {
    if (++num_idle_ < kIdleBeforeOff + kOffSteps) return 0;
    num_idle_ = 0;
  }
  Load& load = LoadOf(num_sequences);
  ++load.decisions;
  // The deepest first: it says most. Trials that cannot be measured (a prompt beside them, a sequence near its end) are given up.
  constexpr int64_t kPatience = 4 * kTrials;
  if (load.decisions <= kPatience * (max_depth_ + 1)) {
    for (int32_t depth = max_depth_; depth >= 0; --depth) {
      if (!IsMeasured(load, depth)) return depth;
    }
  }
  if (load.decisions % kLookAgainEvery == 0) {
    load.next_look = (load.next_look + 1) % (max_depth_ + 1);
    return load.next_look;
  }
  if (!IsMeasured(load, 0)) return max_depth_;
  const int32_t best = Best(load);
  num_idle_ = best == 0 ? num_idle_ + 1 : 0;
  return best;
}

void DraftDepth::ObserveStep(int32_t num_sequences, int32_t depth, double seconds) {
  if (depth <= max_depth_) LoadOf(num_sequences).step[static_cast<size_t>(depth)].Add(seconds);
}

void DraftDepth::ObserveDrafting(int32_t num_sequences, int32_t depth, double seconds) {
  if (depth <= max_depth_) LoadOf(num_sequences).drafting[static_cast<size_t>(depth)].Add(seconds);
}

void DraftDepth::ObserveAcceptance(int32_t depth, int32_t accepted) {
  constexpr double kNewest = 0.02;
  for (int32_t i = 0; i < depth && i <= accepted; ++i) {
    double& rate = accept_[static_cast<size_t>(i)];
    rate += ((i < accepted ? 1.0 : 0.0) - rate) * kNewest;
  }
}

}  // namespace avocet::engine
