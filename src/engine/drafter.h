// Speculative decoding between two steps: brings the draft layer's K/V up to the rows that were computed, and asks it for the drafts of
// the next step. Which drafts there are changes how fast tokens come and never which: verification samples every row exactly as a step
// without drafts would, with the same draw, and a draft is accepted when it is the token sampled.
// Owner: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache_manager.h"
#include "engine/draft_depth.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "model/step_plan.h"
#include "model/step_runner.h"

namespace avocet::engine {

class Drafter {
 public:
  Drafter(const EngineOptions& options, model::StepRunner& runner, CacheManager& cache);

  bool is_on() const { return depth_.max_depth() > 0; }
  // After a step that took so long: entries whose sequence has ended have none any more.
  void Run(std::span<const PlannedSequence> planned, double step_seconds);

 private:
  // A sequence that gets drafts.
  struct Wish {
    Sequence* sequence;
    int32_t depth;
    int32_t draft;  // its place among the drafts of the last pass
  };
  void Observe(std::span<const PlannedSequence> planned, double step_seconds);
  int32_t DepthFor(const Sequence& sequence, int32_t depth) const;
  void PlanFirstPass(std::span<const PlannedSequence> planned, int32_t depth);
  void PlanNextPass(int32_t pass);
  void AddRow(int32_t source_row, int32_t token, int32_t position);
  void AddSequence(const Sequence& sequence, int32_t row_begin, int32_t num_rows, int32_t first_position);
  void FinishPlan();
  void RunPass();

  const EngineOptions& options_;
  model::StepRunner& runner_;
  CacheManager& cache_;
  DraftDepth depth_;
  model::DraftPlan plan_;
  std::vector<Wish> wishes_;
  std::vector<Sequence*> asking_;  // whose drafts a pass gives, in order
  std::vector<int32_t> drafts_;
  std::vector<int32_t> row_positions_;
};

}  // namespace avocet::engine
