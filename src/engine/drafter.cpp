#include "engine/drafter.h"

#include <algorithm>

#include "base/check.h"

namespace avocet::engine {

Drafter::Drafter(const EngineOptions& options, model::StepRunner& runner, CacheManager& cache)
    : options_(options), runner_(runner), cache_(cache), depth_(options.num_drafts, options.draft_depth) {
  if (!is_on()) return;
  const model::RunnerShape& shape = runner.shape();
  const auto rows = static_cast<size_t>(shape.max_rows);
  const auto seats = static_cast<size_t>(options.max_num_seqs);
  plan_.source_rows.reserve(rows);
  plan_.token_ids.reserve(rows);
  plan_.positions.reserve(3 * rows);
  plan_.sequences.reserve(seats);
  plan_.pages.reserve(static_cast<size_t>(shape.num_pages));
  plan_.draft_rows.reserve(seats);
  wishes_.reserve(seats);
  asking_.reserve(seats);
  drafts_.reserve(seats);
  row_positions_.reserve(rows);
}

void Drafter::Run(std::span<const PlannedSequence> planned, double step_seconds) {
  if (!is_on()) return;
  Observe(planned, step_seconds);
  int32_t num_sampled = 0;
  for (const PlannedSequence& p : planned) num_sampled += p.sequence != nullptr && p.is_sampled ? 1 : 0;
  const int32_t depth = num_sampled > 0 ? depth_.Choose(num_sampled) : 0;
  if (!depth_.IsWorthKeeping()) return;
  const Clock::time_point begin = Clock::now();
  PlanFirstPass(planned, depth);
  if (plan_.num_rows() == 0) return;
  const bool is_plain = plan_.num_rows() <= static_cast<int32_t>(wishes_.size()) * (options_.num_drafts + 1);  // no prompt in it
  const bool is_uniform = std::ranges::all_of(wishes_, [depth](const Wish& wish) { return wish.depth == depth; });
  RunPass();
  for (int32_t pass = 2; pass <= depth; ++pass) {
    PlanNextPass(pass);
    if (plan_.num_rows() == 0) break;
    RunPass();
  }
  if (depth > 0 && is_plain && is_uniform && !wishes_.empty()) {
    depth_.ObserveDrafting(static_cast<int32_t>(wishes_.size()), depth, std::chrono::duration<double>(Clock::now() - begin).count());
  }
}

// Steps of one kind say what a depth costs: every sequence one row and the same number of drafts.
void Drafter::Observe(std::span<const PlannedSequence> planned, double step_seconds) {
  bool is_uniform = true;
  for (const PlannedSequence& p : planned) {
    if (p.num_drafts > 0) depth_.ObserveAcceptance(p.num_drafts, p.num_sampled - 1);
    is_uniform = is_uniform && p.is_sampled && p.num_rows == p.num_drafts + 1 && p.num_drafts == planned.front().num_drafts;
  }
  if (is_uniform && !planned.empty()) {
    depth_.ObserveStep(static_cast<int32_t>(planned.size()), planned.front().num_drafts, step_seconds);
  }
}

// Not beyond the request's end, where nothing would be taken of them; and the K/V of all but the last draft needs a place.
int32_t Drafter::DepthFor(const Sequence& s, int32_t depth) const {
  const int32_t to_come = std::min(s.request.sampling.max_tokens - s.num_generated(), options_.max_model_len - s.num_known());
  const int32_t places = static_cast<int32_t>(s.pages.size()) * cache_.page_tokens() - s.num_computed;
  return std::max(0, std::min({depth, to_come - 1, places + 1}));
}

void Drafter::AddRow(int32_t source_row, int32_t token, int32_t position) {
  plan_.source_rows.push_back(source_row);
  plan_.token_ids.push_back(token);
  row_positions_.push_back(position);
}

void Drafter::AddSequence(const Sequence& s, int32_t row_begin, int32_t num_rows, int32_t first_position) {
  plan_.sequences.push_back({.row_begin = row_begin,
                             .num_rows = num_rows,
                             .first_position = first_position,
                             .num_drafts = 0,
                             .num_pending = 0,
                             .page_begin = static_cast<int32_t>(plan_.pages.size()),
                             .num_pages = static_cast<int32_t>(s.pages.size()),
                             .slot = s.slot});
  plan_.pages.insert(plan_.pages.end(), s.pages.begin(), s.pages.end());
}

void Drafter::FinishPlan() {
  for (int axis = 0; axis < 3; ++axis) plan_.positions.insert(plan_.positions.end(), row_positions_.begin(), row_positions_.end());
}

void Drafter::PlanFirstPass(std::span<const PlannedSequence> planned, int32_t depth) {
  plan_.Clear();
  plan_.source = model::DraftPlan::Source::kStep;
  row_positions_.clear();
  wishes_.clear();
  asking_.clear();
  for (const PlannedSequence& p : planned) {
    if (p.sequence == nullptr) continue;
    Sequence& s = *p.sequence;
    const int32_t count = p.num_rows - p.num_drafts + (p.is_sampled ? p.num_sampled - 1 : 0);
    const int32_t first = s.num_computed - count;
    if (s.num_draft_layer != first) continue;  // it was left out for a while: those hidden states are gone
    const int32_t row_begin = plan_.num_rows();
    for (int32_t i = 0; i < count; ++i) AddRow(p.row_begin + i, s.tokens[static_cast<size_t>(first + i + 1)], first + i);
    // Pages are taken ahead only where there are plenty.
    const int32_t ahead = std::min(s.num_computed + depth - 1, s.num_prompt() + s.request.sampling.max_tokens);
    const int32_t new_pages = cache_.PagesFor(ahead) - static_cast<int32_t>(s.pages.size());
    const bool has_pages = cache_.free_pages() - new_pages >= options_.max_num_seqs;
    if (p.is_sampled && depth > 0 && has_pages) cache_.Extend(s, ahead);
    AddSequence(s, row_begin, count, first);
    s.num_draft_layer = s.num_computed;
    if (!p.is_sampled || depth == 0) continue;
    const int32_t own = DepthFor(s, depth);
    if (own == 0) continue;
    wishes_.push_back({&s, own, static_cast<int32_t>(asking_.size())});
    asking_.push_back(&s);
    plan_.draft_rows.push_back(row_begin + count - 1);
  }
  FinishPlan();
}

// One row for each sequence that wants more: the draft it got last, from the draft layer's own output.
void Drafter::PlanNextPass(int32_t pass) {
  plan_.Clear();
  plan_.source = model::DraftPlan::Source::kDraft;
  row_positions_.clear();
  asking_.clear();
  for (Wish& wish : wishes_) {
    if (wish.depth < pass) continue;
    const Sequence& s = *wish.sequence;
    const int32_t row = plan_.num_rows();
    const int32_t position = s.num_computed + pass - 2;
    AddRow(wish.draft, s.drafts.back(), position);
    AddSequence(s, row, 1, position);
    plan_.draft_rows.push_back(row);
    wish.draft = row;
    asking_.push_back(wish.sequence);
  }
  FinishPlan();
}

void Drafter::RunPass() {
  drafts_.resize(asking_.size());
  runner_.RunDraft(plan_, drafts_);
  for (size_t i = 0; i < asking_.size(); ++i) {
    // An id that the vocabulary lacks cannot be sampled, and ends what is worth guessing.
    asking_[i]->drafts.push_back(std::min(drafts_[i], options_.vocab_size - 1));
  }
}

}  // namespace avocet::engine
