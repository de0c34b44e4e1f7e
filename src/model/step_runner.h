// The engine's view of a model: one step in, logits out. Implemented by Model (model.h), and by a fake in the simulation.
// Owner: the engine thread. After Run returns, logits() is valid until the next Run.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "base/mat_view.h"
#include "device/worker_pool.h"
#include "model/step_plan.h"

namespace avocet::model {

// Sizes of the pools behind the runner, fixed at start.
struct RunnerShape {
  int32_t max_rows = 0;        // per step
  int32_t max_logit_rows = 0;  // per step
  int32_t vocab_rows = 0;      // columns of the logits
  int32_t num_pages = 0;
  int32_t page_tokens = 0;
  int32_t num_slots = 0;
  int32_t max_context = 0;  // positions of one sequence
  int32_t max_drafts = 0;   // rows per sequence and step that may be rejected; 0: there is no draft layer
  size_t page_bytes = 0;    // over all layers
  size_t slot_bytes = 0;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  virtual const RunnerShape& shape() const = 0;
  // How many workers call `after`, at most.
  virtual int32_t num_workers() const = 0;

  // Runs the plan on all workers: caches advance, logits of plan.logit_rows become available. `after` then runs on
  // every worker inside the same parallel region: sampling shares the cores without another wake-up.
  virtual void Run(const StepPlan& plan, FunctionRef<void(device::Worker&)> after) = 0;

  // Runs the draft layer after a step, whose hidden states it reads: `drafts` [plan.draft_rows.size()] becomes the likeliest tokens.
  // Overwrites logits(). Only with max_drafts > 0.
  virtual void RunDraft(const DraftPlan& plan, std::span<int32_t> drafts) = 0;

  // [plan.logit_rows.size(), vocab_rows] f32, raw. Writable: the sampler applies penalties and masks in place.
  virtual MatView<float> logits() = 0;
};

}  // namespace avocet::model
