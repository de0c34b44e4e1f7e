#include "model/step_plan.h"

namespace avocet::model {
namespace {

Result<void> CheckSequence(const StepPlan& plan, const PlanLimits& limits, const SequenceRows& s, int32_t next_row) {
  if (s.row_begin != next_row || s.num_rows < 1) {
    return Fail(Errc::kInternal, "a sequence has rows [{}, +{}), expected them to start at {}", s.row_begin, s.num_rows, next_row);
  }
  const int64_t end_position = int64_t{s.first_position} + s.num_rows;
  if (s.first_position < 0 || end_position > limits.max_context) {
    return Fail(Errc::kInternal, "positions [{}, {}) are outside the context of {}", s.first_position, end_position, limits.max_context);
  }
  if (s.num_drafts < 0 || s.num_drafts > limits.max_drafts || s.num_drafts >= s.num_rows || s.num_pending < 0 ||
      s.num_pending > limits.max_drafts || s.num_pending > s.first_position) {
    return Fail(Errc::kInternal, "{} drafts in {} rows and {} pending before position {}, at most {} drafts are possible", s.num_drafts,
                s.num_rows, s.num_pending, s.first_position, limits.max_drafts);
  }
  if (Index(s.slot) < 0 || Index(s.slot) >= limits.num_slots) {
    return Fail(Errc::kInternal, "slot {} is not one of {}", Index(s.slot), limits.num_slots);
  }
  if (s.page_begin < 0 || s.num_pages < 0 || static_cast<size_t>(s.page_begin) + static_cast<size_t>(s.num_pages) > plan.pages.size()) {
    return Fail(Errc::kInternal, "page table [{}, +{}) is outside the plan's {} entries", s.page_begin, s.num_pages, plan.pages.size());
  }
  if (int64_t{s.num_pages} * limits.page_tokens < end_position) {
    return Fail(Errc::kInternal, "{} pages of {} tokens do not cover {} positions", s.num_pages, limits.page_tokens, end_position);
  }
  for (PageId page : plan.PagesOf(s)) {
    if (Index(page) < 0 || Index(page) >= limits.num_pages) {
      return Fail(Errc::kInternal, "page {} is not one of {}", Index(page), limits.num_pages);
    }
  }
  return {};
}

}  // namespace

Result<void> ValidatePlan(const StepPlan& plan, const PlanLimits& limits) {
  const int32_t rows = plan.num_rows();
  if (rows < 1 || rows > limits.max_rows) return Fail(Errc::kInternal, "the plan has {} rows, 1 to {} are possible", rows, limits.max_rows);
  if (plan.positions.size() != static_cast<size_t>(rows) * 3) {
    return Fail(Errc::kInternal, "the plan has {} position entries for {} rows of 3 axes", plan.positions.size(), rows);
  }
  for (int32_t token : plan.token_ids) {
    if (token < 0 || token >= limits.vocab_rows)
      return Fail(Errc::kInternal, "token {} is outside the {} embedding rows", token, limits.vocab_rows);
  }
  int32_t next_row = 0;
  for (const SequenceRows& s : plan.sequences) {
    AVOCET_TRY_VOID(CheckSequence(plan, limits, s, next_row));
    next_row += s.num_rows;
  }
  if (next_row != rows) return Fail(Errc::kInternal, "the sequences cover {} of {} rows", next_row, rows);
  if (plan.logit_rows.size() > static_cast<size_t>(limits.max_logit_rows)) {
    return Fail(Errc::kInternal, "the plan wants {} rows of logits, {} are possible", plan.logit_rows.size(), limits.max_logit_rows);
  }
  int32_t previous = -1;
  for (int32_t row : plan.logit_rows) {
    if (row <= previous || row >= rows)
      return Fail(Errc::kInternal, "logit row {} is out of order or range (after {}, {} rows)", row, previous, rows);
    previous = row;
  }
  return {};
}

}  // namespace avocet::model
