// How many drafts the next step should verify, so that drafting is never a loss: for about as many sequences as run now, what steps with
// each depth took, against what the acceptance so far lets them yield. Every depth is tried a few times, then the best is used and the
// others are looked at again from time to time. Depth changes speed alone, never the tokens.
// Owner: the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/limits.h"
#include "engine/engine.h"

namespace avocet::engine {

class DraftDepth {
 public:
  DraftDepth(int32_t max_depth, DraftDepthPolicy policy);

  int32_t max_depth() const { return max_depth_; }
  // For the next step of about so many sequences; advances the order of trials.
  int32_t Choose(int32_t num_sequences);
  // False after drafts have not paid for long: the draft layer is then left out altogether, for a while.
  bool IsWorthKeeping() const { return num_idle_ < kIdleBeforeOff; }

  // A step in which each of `num_sequences` verified `depth` drafts, and one draft phase of `depth` passes.
  void ObserveStep(int32_t num_sequences, int32_t depth, double seconds);
  void ObserveDrafting(int32_t num_sequences, int32_t depth, double seconds);
  void ObserveAcceptance(int32_t depth, int32_t accepted);

  // Tokens per sequence and step that `depth` drafts are expected to give.
  double ExpectedTokens(int32_t depth) const;

 private:
  static constexpr int32_t kTrials = 3;            // before a measurement counts
  static constexpr int32_t kLookAgainEvery = 128;  // steps
  static constexpr int32_t kIdleBeforeOff = 256;   // steps without drafts
  static constexpr int32_t kOffSteps = 2048;       // until drafts are tried again
  static constexpr double kLeastGain = 1.05;       // over no drafts
  struct Mean {
    double value = 0;
    int32_t count = 0;
    void Add(double x);
  };
  // What was measured with about so many sequences: [0..max_depth].
  struct Load {
    std::vector<Mean> step, drafting;
    int64_t decisions = 0;
    int32_t next_look = 0;
  };
  Load& LoadOf(int32_t num_sequences);
  bool IsMeasured(const Load& load, int32_t depth) const;
  int32_t Best(const Load& load) const;

  int32_t max_depth_;
  DraftDepthPolicy policy_;
  std::array<Load, 16> loads_;                       // by powers of two
  std::array<double, limits::kDraftsMax> accept_{};  // probability that a draft is accepted if those before it are
  int32_t num_idle_ = 0;
};

}  // namespace avocet::engine
