// Who runs next. One class, one policy: every step fills a StepPlan with rows, running sequences first (single rows before chunks, so
// that a long prompt never stalls the streams beside it), then waiting ones, within the row budget, logit rows, seats, slots and pages.
// When pages run out the newest (or least urgent) running sequence is preempted: it gives everything back and waits at the front, to be
// recomputed. Waiting sequences never preempt.
//
// PLAN-3: planning has no effect until commit: Plan first decides over numbers alone, then applies the decision as a whole.
// Owner: the engine thread. Sequences are borrowed from the engine core.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "engine/cache_manager.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "model/step_plan.h"

namespace avocet::engine {

// One sequence's part of a planned step.
struct PlannedSequence {
  Sequence* sequence = nullptr;
  int32_t num_rows = 0;    // drafts included
  int32_t num_drafts = 0;  // the last rows
  int32_t row_begin = 0;
  // Logits, as indices into the step's logit rows: prompt rows to be scored, then (if is_sampled) the row to sample
  // from and the draft rows.
  int32_t logit_begin = 0;
  int32_t num_scored = 0;
  int32_t first_scored = 0;  // position of the first scored row
  bool is_sampled = false;   // and with it every draft row
  int32_t num_sampled = 0;   // written by the worker that sampled: tokens gained, one more than the drafts accepted
  bool is_prompt = false;    // nothing was generated before this step
};

class Scheduler {
 public:
  Scheduler(const EngineOptions& options, const model::RunnerShape& shape, CacheManager& cache);

  void AddWaiting(Sequence* sequence);
  // Forgets a sequence, running or waiting, and releases what it holds.
  void Remove(Sequence* sequence);

  // Plans and commits a step. False: nothing can run. The plan is complete (PLAN-2); `planned` lists its sequences in row order.
  bool Plan(model::StepPlan& plan, std::vector<PlannedSequence>& planned);

  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t num_waiting() const { return static_cast<int32_t>(waiting_.size()); }
  int64_t num_preemptions() const { return num_preemptions_; }
  // The next in line, for PROG-1; nullptr when nobody waits.
  Sequence* oldest_waiting() const { return waiting_.empty() ? nullptr : *waiting_.begin(); }

 private:
  // Urgency: smaller runs first. Preempted sequences keep their order and so stand at the front.
  struct MoreUrgent {
    SchedulingPolicy policy;
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  struct Budget;  // the numbers that planning decides over
  struct Entry {
    Sequence* sequence;
    int32_t num_rows;  // drafts included
    int32_t num_drafts;
    int32_t new_pages;
    int32_t num_logits;  // the rows to sample from, and the prompt rows to score
    bool is_admitted;    // was waiting
  };

  void PlanRunning(Budget& budget);
  bool PlanOne(Budget& budget, Sequence* sequence);
  bool Preempt(Budget& budget, const Sequence* asking);
  void PlanWaiting(Budget& budget);
  void PlanDrafts(Budget& budget);
  int32_t RowsFor(const Budget& budget, const Sequence& sequence, int32_t computed) const;
  int32_t FirstUnscored(const Sequence& sequence) const;
  int32_t NumScored(const Sequence& sequence, int32_t computed, int32_t rows) const;
  int32_t NumLogits(const Sequence& sequence, int32_t computed, int32_t rows) const;
  void AddEntry(Budget& budget, const Entry& entry);
  void Commit(Budget& budget);
  void WritePlan(model::StepPlan& plan, std::vector<PlannedSequence>& planned) const;

  EngineOptions options_;
  int32_t max_rows_;
  int32_t max_logit_rows_;
  CacheManager& cache_;
  MoreUrgent more_urgent_;
  std::vector<Sequence*> running_;  // in order of admission
  std::set<Sequence*, MoreUrgent> waiting_;
  int64_t num_preemptions_ = 0;
  // Reused so that planning allocates nothing after warm-up.
  std::vector<Entry> entries_;
  std::vector<Sequence*> victims_;
};

}  // namespace avocet::engine
