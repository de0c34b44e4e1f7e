// StepPlan: one forward pass, as plain data. Written by the engine thread, read by all workers (and later by all ranks); nothing else
// crosses from engine to model. Rows, not phases: a row is one (sequence, position). Decode is one row of a sequence, a prompt chunk
// many, verification 1+k; there is no prefill mode.
//
//   rows     | seq 7: pos 41 | seq 9: pos 0 1 2 3 ... 15 | seq 3: pos 17 |      positions are consecutive within a sequence
//   logits   |      x        |                           |       x       |      rows whose logits are wanted
//
// Vectors are reused from step to step: after warm-up filling a plan allocates nothing (MEM-1). Checked by ValidatePlan (PLAN-2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/mat_view.h"

namespace avocet::model {

// The consecutive rows of one sequence in this step.
struct SequenceRows {
  int32_t row_begin = 0;
  int32_t num_rows = 0;
  int32_t first_position = 0;   // tokens of the sequence already in the caches; 0 starts from a zero state
  int32_t num_drafts = 0;       // of the rows, the last ones, which may be rejected: the slot does not advance over them
  int32_t num_pending = 0;      // of the last step's drafts, those accepted: the slot advances over them first
  int32_t page_begin = 0;       // into StepPlan::pages
  int32_t num_pages = 0;        // cover first_position + num_rows positions
  SlotId slot = SlotId::kNone;  // recurrent and convolution state of all delta-net layers
};

struct StepPlan {
  int64_t step_id = 0;
  std::vector<int32_t> token_ids;       // [rows]
  std::vector<int32_t> positions;       // [3 * rows], axis-major T, H, W; equal for text
  std::vector<SequenceRows> sequences;  // in row order, disjoint, covering all rows
  std::vector<PageId> pages;            // page tables of the sequences, one after the other
  std::vector<int32_t> logit_rows;      // ascending

  int32_t num_rows() const { return static_cast<int32_t>(token_ids.size()); }
  std::span<const PageId> PagesOf(const SequenceRows& s) const { return {pages.data() + s.page_begin, static_cast<size_t>(s.num_pages)}; }
  void Clear() {
    token_ids.clear();
    positions.clear();
    sequences.clear();
    pages.clear();
    logit_rows.clear();
  }
};

struct PlanLimits {
  int32_t max_rows = 0;
  int32_t max_logit_rows = 0;
  int32_t vocab_rows = 0;
  int32_t num_pages = 0;
  int32_t num_slots = 0;
  int32_t page_tokens = 0;
  int32_t max_context = 0;
  int32_t max_drafts = 0;  // per sequence
};

// One pass of the draft layer (model.md 5): a row pairs the hidden state of a position with the token after it, and predicts the token
// after that. The first pass of a step runs over every row the step computed and keeps the layer's K/V complete; passes after it take one
// row per sequence further, from the layer's own output.
struct DraftPlan {
  enum class Source : uint8_t { kStep, kDraft };

  Source source = Source::kStep;
  std::vector<int32_t> source_rows;     // [rows] of the step, or drafts of the pass before: where the hidden states come from
  std::vector<int32_t> token_ids;       // [rows], the tokens after the positions
  std::vector<int32_t> positions;       // [3 * rows]
  std::vector<SequenceRows> sequences;  // slots are not used
  std::vector<PageId> pages;
  std::vector<int32_t> draft_rows;  // ascending: rows whose prediction is wanted

  int32_t num_rows() const { return static_cast<int32_t>(token_ids.size()); }
  std::span<const PageId> PagesOf(const SequenceRows& s) const { return {pages.data() + s.page_begin, static_cast<size_t>(s.num_pages)}; }
  void Clear() {
    source_rows.clear();
    token_ids.clear();
    positions.clear();
    sequences.clear();
    pages.clear();
    draft_rows.clear();
  }
};

// PLAN-2: a plan is complete before it is run: rows, positions, pages and slots are in range.
Result<void> ValidatePlan(const StepPlan& plan, const PlanLimits& limits);

}  // namespace avocet::model
