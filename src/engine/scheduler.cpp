#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace avocet::engine {

struct Scheduler::Budget {
  int32_t rows_left = 0;
  int32_t logits_left = 0;
  int32_t free_pages = 0;
  int32_t free_slots = 0;
};

bool Scheduler::MoreUrgent::operator()(const Sequence* a, const Sequence* b) const {
  if (policy == SchedulingPolicy::kPriority && a->request.priority != b->request.priority) return a->request.priority < b->request.priority;
  return a->order < b->order;
}

Scheduler::Scheduler(const EngineOptions& options, const model::RunnerShape& shape, CacheManager& cache)
    : options_(options),
      max_rows_(std::min(options.max_num_batched_tokens, shape.max_rows)),
      max_logit_rows_(shape.max_logit_rows),
      cache_(cache),
      more_urgent_{options.policy},
      waiting_(more_urgent_) {
  running_.reserve(static_cast<size_t>(options.max_num_seqs));
  entries_.reserve(static_cast<size_t>(options.max_num_seqs));
  victims_.reserve(static_cast<size_t>(options.max_num_seqs));
}

void Scheduler::AddWaiting(Sequence* sequence) {
  waiting_.insert(sequence);
}

void Scheduler::Remove(Sequence* sequence) {
  if (sequence->is_running()) {
    std::erase(running_, sequence);
    cache_.Release(*sequence);
  } else {
    waiting_.erase(sequence);
  }
}

bool Scheduler::Plan(model::StepPlan& plan, std::vector<PlannedSequence>& planned) {
  entries_.clear();
  victims_.clear();
  Budget budget{max_rows_, max_logit_rows_, cache_.free_pages(), cache_.free_slots()};
  PlanRunning(budget);
  if (victims_.empty()) PlanWaiting(budget);
  PlanDrafts(budget);
  if (entries_.empty() && victims_.empty()) return false;
  Commit(budget);
  WritePlan(plan, planned);
  return !planned.empty();
}

// Single rows first: every running stream gets its next token before any prompt gets a chunk.
void Scheduler::PlanRunning(Budget& budget) {
  for (const bool single_rows : {true, false}) {
    for (Sequence* sequence : running_) {
      if ((sequence->num_missing() == 1) != single_rows) continue;
      if (std::ranges::find(victims_, sequence) != victims_.end()) continue;
      PlanOne(budget, sequence);
    }
  }
}

bool Scheduler::PlanOne(Budget& budget, Sequence* sequence) {
  const int32_t rows = RowsFor(budget, *sequence, sequence->num_computed);
  if (rows == 0) return false;
  const int32_t new_pages = cache_.PagesFor(sequence->num_computed + rows) - static_cast<int32_t>(sequence->pages.size());
  while (new_pages > budget.free_pages) {
    if (!Preempt(budget, sequence)) return false;
  }
  AddEntry(budget, {sequence, rows, 0, std::max(0, new_pages), NumLogits(*sequence, sequence->num_computed, rows), false});
  return true;
}

// The least urgent running sequence gives its pages back. False: that was the one asking.
bool Scheduler::Preempt(Budget& budget, const Sequence* asking) {
  Sequence* victim = nullptr;
  for (Sequence* candidate : running_) {
    if (std::ranges::find(victims_, candidate) != victims_.end()) continue;
    if (victim == nullptr || more_urgent_(victim, candidate)) victim = candidate;
  }
  CHECK(victim != nullptr, "PLAN-3: sequence {} asks for pages and nobody runs", asking->request.id);
  victims_.push_back(victim);
  budget.free_pages += static_cast<int32_t>(victim->pages.size());
  const auto planned = std::ranges::find(entries_, victim, &Entry::sequence);
  if (planned != entries_.end()) {
    budget.free_pages += planned->new_pages;
    budget.rows_left += planned->num_rows;
    budget.logits_left += planned->num_logits;
    entries_.erase(planned);
  }
  return victim != asking;
}

void Scheduler::PlanWaiting(Budget& budget) {
  auto num_running = static_cast<int32_t>(running_.size());
  for (Sequence* sequence : waiting_) {
    if (num_running >= options_.max_num_seqs || budget.free_slots == 0) return;
    const int32_t rows = RowsFor(budget, *sequence, 0);
    if (rows == 0) return;
    const int32_t new_pages = cache_.PagesFor(rows);
    if (new_pages > budget.free_pages) return;
    AddEntry(budget, {sequence, rows, 0, new_pages, NumLogits(*sequence, 0, rows), true});
    --budget.free_slots;
    ++num_running;
  }
}

// Drafts take what is left: rows, logit rows beyond one per seat, pages that nobody else wants now.
void Scheduler::PlanDrafts(Budget& budget) {
  if (!victims_.empty()) return;
  int32_t logits_left = std::min(budget.logits_left, max_logit_rows_ - options_.max_num_seqs);
  for (Entry& entry : entries_) {
    const Sequence& s = *entry.sequence;
    if (s.drafts.empty() || s.num_computed + entry.num_rows != s.num_known()) continue;
    int32_t count = std::min({static_cast<int32_t>(s.drafts.size()), budget.rows_left, logits_left});
    const int32_t end = s.num_computed + entry.num_rows;
    const int32_t held = static_cast<int32_t>(s.pages.size()) + entry.new_pages;
    while (count > 0 && cache_.PagesFor(end + count) - held > budget.free_pages) --count;
    if (count <= 0) continue;
    const int32_t new_pages = std::max(0, cache_.PagesFor(end + count) - held);
    entry.num_rows += count;
    entry.num_drafts = count;
    entry.num_logits += count;
    entry.new_pages += new_pages;
    budget.rows_left -= count;
    budget.logits_left -= count;
    logits_left -= count;
    budget.free_pages -= new_pages;
  }
}

// Positions below this have been scored already (before a preemption), or need no score.
int32_t Scheduler::FirstUnscored(const Sequence& sequence) const {
  if (!sequence.wants_prompt_logprobs() || sequence.has_reported_prompt_logprobs) return sequence.num_prompt();
  // prompt_logprobs[p] scores token p and comes from the row of position p-1; entry 0 is there from the start.
  return std::max<int32_t>(static_cast<int32_t>(sequence.prompt_logprobs.size()) - 1, 0);
}

// Prompt rows among [computed, computed + rows) whose logits score the next token of the prompt.
int32_t Scheduler::NumScored(const Sequence& sequence, int32_t computed, int32_t rows) const {
  const int32_t first = std::max(FirstUnscored(sequence), computed);
  return std::max(0, std::min(computed + rows, sequence.num_prompt() - 1) - first);
}

// Scored rows, and the last row if it is the one to sample from.
int32_t Scheduler::NumLogits(const Sequence& sequence, int32_t computed, int32_t rows) const {
  return NumScored(sequence, computed, rows) + static_cast<int32_t>(computed + rows == sequence.num_known());
}

void Scheduler::AddEntry(Budget& budget, const Entry& entry) {
  entries_.push_back(entry);
  budget.free_pages -= entry.new_pages;
  budget.rows_left -= entry.num_rows;
  budget.logits_left -= entry.num_logits;
}

// As many as are missing, cut by the row budget, the chunk limit and the logit rows that sampling and scoring need. The rows that
// score stand at the end of a chunk, just before the one to sample from, so cutting one row saves one row of logits.
int32_t Scheduler::RowsFor(const Budget& budget, const Sequence& sequence, int32_t computed) const {
  int32_t rows = std::min(sequence.num_known() - computed, budget.rows_left);
  if (options_.long_prefill_token_threshold > 0) rows = std::min(rows, options_.long_prefill_token_threshold);
  if (rows <= 0) return 0;
  const int32_t excess = NumLogits(sequence, computed, rows) - budget.logits_left;
  return std::max(0, rows - std::max(0, excess));
}

// Applies the decision: victims give back, entries get slots and pages.
void Scheduler::Commit(Budget& budget) {
  for (Sequence* victim : victims_) {
    std::erase(running_, victim);
    cache_.Release(*victim);
    waiting_.insert(victim);
    ++num_preemptions_;
  }
  for (const Entry& entry : entries_) {
    if (entry.is_admitted) {
      waiting_.erase(entry.sequence);
      cache_.Admit(*entry.sequence);
      running_.push_back(entry.sequence);
    }
    cache_.Extend(*entry.sequence, entry.sequence->num_computed + entry.num_rows);
    entry.sequence->num_planned = entry.num_rows - entry.num_drafts;
  }
  CHECK(budget.free_pages == cache_.free_pages(), "PLAN-3: planned to leave {} pages free, {} are", budget.free_pages, cache_.free_pages());
}

void Scheduler::WritePlan(model::StepPlan& plan, std::vector<PlannedSequence>& planned) const {
  plan.Clear();
  planned.clear();
  for (const Entry& entry : entries_) {
    const Sequence& s = *entry.sequence;
    const int32_t row_begin = plan.num_rows();
    plan.sequences.push_back({.row_begin = row_begin,
                              .num_rows = entry.num_rows,
                              .first_position = s.num_computed,
                              .num_drafts = entry.num_drafts,
                              .num_pending = s.num_pending,
                              .page_begin = static_cast<int32_t>(plan.pages.size()),
                              .num_pages = static_cast<int32_t>(s.pages.size()),
                              .slot = s.slot});
    plan.pages.insert(plan.pages.end(), s.pages.begin(), s.pages.end());
    const auto first = s.tokens.begin() + s.num_computed;
    const int32_t certain = entry.num_rows - entry.num_drafts;
    plan.token_ids.insert(plan.token_ids.end(), first, first + certain);
    plan.token_ids.insert(plan.token_ids.end(), s.drafts.begin(), s.drafts.begin() + entry.num_drafts);

    PlannedSequence p{.sequence = entry.sequence, .num_rows = entry.num_rows, .num_drafts = entry.num_drafts, .row_begin = row_begin};
    p.is_prompt = s.num_generated() == 0;
    p.logit_begin = static_cast<int32_t>(plan.logit_rows.size());
    p.first_scored = std::max(FirstUnscored(s), s.num_computed);
    p.num_scored = NumScored(s, s.num_computed, certain);
    for (int32_t i = 0; i < p.num_scored; ++i) plan.logit_rows.push_back(row_begin + p.first_scored - s.num_computed + i);
    p.is_sampled = s.num_computed + certain == s.num_known();
    for (int32_t row = certain - 1; p.is_sampled && row < entry.num_rows; ++row) plan.logit_rows.push_back(row_begin + row);
    planned.push_back(p);
  }
  for (int axis = 0; axis < 3; ++axis) {  // text: the three axes agree
    for (const model::SequenceRows& rows : plan.sequences) {
      for (int32_t i = 0; i < rows.num_rows; ++i) plan.positions.push_back(rows.first_position + i);
    }
  }
}

}  // namespace avocet::engine
