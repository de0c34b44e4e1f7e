// A model for tests of the engine: no network, but a memory that notices every mistake. It keeps shadow content per page and slot and
// derives the logits from what it finds there, so a page or slot that went to the wrong sequence changes the output; and it checks what
// it is told to compute: positions continue where the slot stands, no page or slot is used by two sequences of a step.
// LogitsAfter() gives the same logits from the tokens alone: the oracle.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/function_ref.h"
#include "device/worker_pool.h"
#include "engine/sampler.h"
#include "model/step_runner.h"

namespace avocet::test {

inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// What "attention" reads: every earlier token with its position, one after the other.
inline uint64_t Attend(uint64_t so_far, int32_t token, int32_t position) {
  return Mix(so_far * 31 + static_cast<uint64_t>(token) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(position));
}
// What the recurrent state becomes.
inline uint64_t Recur(uint64_t state, int32_t token) {
  return Mix(state + 0x632be59bd9b4e019u + static_cast<uint64_t>(token));
}

struct FakeModelOptions {
  model::RunnerShape shape;
  int32_t num_workers = 1;  // how often `after` is called; on one thread
  uint64_t seed = 1;
  // One row of logits in so many is nothing but NaN, another nothing but minus infinity: what an overflowing network may give.
  uint64_t fault_period = 0;
};

class FakeModel : public model::StepRunner {
 public:
  explicit FakeModel(const FakeModelOptions& options)
      : options_(options),
        pages_(static_cast<size_t>(options.shape.num_pages)),
        draft_pages_(pages_.size()),
        page_steps_(static_cast<size_t>(options.shape.num_pages), 0),
        slots_(static_cast<size_t>(options.shape.num_slots)),
        logits_(static_cast<size_t>(options.shape.max_logit_rows) * static_cast<size_t>(options.shape.vocab_rows)) {
    for (auto* cells : {&pages_, &draft_pages_}) {
      for (auto& page : *cells) page.resize(static_cast<size_t>(options.shape.page_tokens));
    }
  }

  const model::RunnerShape& shape() const override { return options_.shape; }
  int32_t num_workers() const override { return options_.num_workers; }
  MatView<float> logits() override { return {logits_.data(), num_logit_rows_, options_.shape.vocab_rows}; }
  int64_t num_steps() const { return num_steps_; }
  int32_t last_rows() const { return last_rows_; }
  int64_t total_rows() const { return total_rows_; }

  // Of the draft layer: most drafts are what the network would say, some are not.
  void RunDraft(const model::DraftPlan& plan, std::span<int32_t> drafts) override {
    ++num_draft_passes_;
    CHECK(options_.shape.max_drafts > 0 && drafts.size() == plan.draft_rows.size(), "fake model: drafts of nothing");
    std::vector<float> row(static_cast<size_t>(options_.shape.vocab_rows));
    size_t next = 0;
    for (const model::SequenceRows& s : plan.sequences) {
      const std::span<const PageId> pages = plan.PagesOf(s);
      for (int32_t i = 0; i < s.num_rows; ++i) {
        const int32_t at = s.row_begin + i;
        const int32_t position = s.first_position + i;
        CHECK(plan.positions[static_cast<size_t>(at)] == position, "fake model: draft row {} has position {}", at,
              plan.positions[static_cast<size_t>(at)]);
        if (plan.source == model::DraftPlan::Source::kStep) {
          const Cell& source = step_rows_.at(static_cast<size_t>(plan.source_rows[static_cast<size_t>(at)]));
          CHECK(source.position == position && source.token == CellOf(pages, position).token,
                "fake model: draft row {} of position {} reads the hidden state of position {}", at, position, source.position);
        }
        DraftCellOf(pages, position) = {plan.token_ids[static_cast<size_t>(at)], position};
        if (next == plan.draft_rows.size() || plan.draft_rows[next] != at) continue;
        drafts[next++] = Guess(TokensThrough(pages, position), row);
      }
    }
    CHECK(next == drafts.size(), "fake model: {} of {} draft rows belong to a row", next, drafts.size());
  }
  int64_t num_draft_passes() const { return num_draft_passes_; }

  void Run(const model::StepPlan& plan, FunctionRef<void(device::Worker&)> after) override {
    ++num_steps_;
    last_rows_ = plan.num_rows();
    total_rows_ += last_rows_;
    num_logit_rows_ = static_cast<int32_t>(plan.logit_rows.size());
    if (on_run) on_run(plan);
    step_rows_.clear();
    size_t next_logits = 0;
    for (const model::SequenceRows& s : plan.sequences) RunSequence(plan, s, next_logits);
    CHECK(next_logits == plan.logit_rows.size(), "fake model: {} of {} logit rows belong to a row", next_logits, plan.logit_rows.size());
    for (int32_t i = 0; i < options_.num_workers; ++i) {
      device::Worker worker(nullptr, i, options_.num_workers);
      after(worker);
    }
  }

  // The oracle: logits after these tokens.
  void LogitsAfter(std::span<const int32_t> tokens, std::span<float> row) const {
    uint64_t attended = options_.seed;
    uint64_t state = options_.seed;
    for (size_t i = 0; i < tokens.size(); ++i) {
      attended = Attend(attended, tokens[i], static_cast<int32_t>(i));
      state = Recur(state, tokens[i]);
    }
    FillLogits(attended, state, row);
  }

  std::function<void(const model::StepPlan&)> on_run;

 private:
  struct Cell {
    int32_t token = -1;
    int32_t position = -1;
  };
  struct Slot {
    uint64_t state = 0;
    int32_t num_tokens = 0;
    int64_t step = 0;
    std::vector<int32_t> drafts = {};  // of the last step that had any
  };

  void RunSequence(const model::StepPlan& plan, const model::SequenceRows& s, size_t& next_logits) {
    const std::span<const PageId> pages = plan.PagesOf(s);
    for (PageId page : pages) {
      int64_t& step = page_steps_[static_cast<size_t>(Index(page))];
      CHECK(step != num_steps_, "PAGE-2: page {} is in two page tables of step {}", Index(page), plan.step_id);
      step = num_steps_;
    }
    Slot& slot = slots_[static_cast<size_t>(Index(s.slot))];
    CHECK(slot.step != num_steps_, "STATE-1: slot {} is in two sequences of step {}", Index(s.slot), plan.step_id);
    slot.step = num_steps_;
    if (s.first_position == 0) slot = {.state = options_.seed, .num_tokens = 0, .step = num_steps_};
    CHECK(static_cast<size_t>(s.num_pending) <= slot.drafts.size(), "STATE-1: slot {} has {} drafts, {} are pending", Index(s.slot),
          slot.drafts.size(), s.num_pending);
    for (int32_t i = 0; i < s.num_pending; ++i) Advance(slot, slot.drafts[static_cast<size_t>(i)]);
    slot.drafts.clear();
    CHECK(slot.num_tokens == s.first_position, "STATE-1: slot {} stands at {}, the plan continues at {}", Index(s.slot), slot.num_tokens,
          s.first_position);
    uint64_t attended = options_.seed;
    for (int32_t position = 0; position < s.first_position; ++position) attended = Read(pages, attended, position);
    Slot tried;
    for (int32_t i = 0; i < s.num_rows; ++i) {
      const bool is_draft = i >= s.num_rows - s.num_drafts;
      if (i == s.num_rows - s.num_drafts) tried = slot;
      const int32_t row = s.row_begin + i;
      const int32_t position = s.first_position + i;
      for (int32_t axis = 0; axis < 3; ++axis) {
        const int32_t planned = plan.positions[static_cast<size_t>(axis * plan.num_rows() + row)];
        CHECK(planned == position, "fake model: row {} axis {} has position {}, not {}", row, axis, planned, position);
      }
      const int32_t token = plan.token_ids[static_cast<size_t>(row)];
      CellOf(pages, position) = {token, position};
      attended = Read(pages, attended, position);
      step_rows_.push_back({token, position});
      Slot& state = is_draft ? tried : slot;
      Advance(state, token);
      if (is_draft) slot.drafts.push_back(token);
      if (next_logits < plan.logit_rows.size() && plan.logit_rows[next_logits] == row) {
        FillLogits(attended, state.state, logits().row_span(static_cast<int32_t>(next_logits++)));
      }
    }
  }

  static void Advance(Slot& slot, int32_t token) {
    slot.state = Recur(slot.state, token);
    ++slot.num_tokens;
  }

  // The tokens 0 to position + 1 as the draft layer knows them: it must have seen every position.
  std::vector<int32_t> TokensThrough(std::span<const PageId> pages, int32_t position) {
    std::vector<int32_t> tokens = {CellOf(pages, 0).token};
    for (int32_t p = 0; p <= position; ++p) {
      const Cell cell = DraftCellOf(pages, p);
      CHECK(cell.position == p, "fake model: the draft layer has not seen position {}", p);
      tokens.push_back(cell.token);
    }
    return tokens;
  }

  int32_t Guess(const std::vector<int32_t>& tokens, std::vector<float>& row) const {
    LogitsAfter(tokens, row);
    const auto best = static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
    return Mix(static_cast<uint64_t>(best) + tokens.size() * 77 + options_.seed) % 4 == 0 ? (best + 1) % options_.shape.vocab_rows : best;
  }

  Cell& DraftCellOf(std::span<const PageId> pages, int32_t position) {
    const auto page = static_cast<size_t>(Index(pages[static_cast<size_t>(position / options_.shape.page_tokens)]));
    return draft_pages_[page][static_cast<size_t>(position % options_.shape.page_tokens)];
  }

  Cell& CellOf(std::span<const PageId> pages, int32_t position) {
    const auto page = static_cast<size_t>(Index(pages[static_cast<size_t>(position / options_.shape.page_tokens)]));
    return pages_[page][static_cast<size_t>(position % options_.shape.page_tokens)];
  }

  uint64_t Read(std::span<const PageId> pages, uint64_t attended, int32_t position) {
    const Cell cell = CellOf(pages, position);
    return Attend(attended, cell.token, cell.position);
  }

  void FillLogits(uint64_t attended, uint64_t state, std::span<float> row) const {
    const uint64_t key = Mix(attended ^ Mix(state));
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(Mix(key + (i + 1) * 0x9e3779b97f4a7c15u) >> 40) * 0x1p-21f - 4.0f;  // [-4, 4)
    }
    if (options_.fault_period == 0) return;
    if (key % options_.fault_period == 1) std::ranges::fill(row, std::numeric_limits<float>::quiet_NaN());
    if (key % options_.fault_period == 2) std::ranges::fill(row, -std::numeric_limits<float>::infinity());
  }

  FakeModelOptions options_;
  std::vector<std::vector<Cell>> pages_;
  std::vector<std::vector<Cell>> draft_pages_;  // the draft layer's K/V: tokens are those after the positions
  std::vector<Cell> step_rows_;                 // of the last step
  std::vector<int64_t> page_steps_;
  std::vector<Slot> slots_;
  std::vector<float> logits_;
  int32_t num_logit_rows_ = 0;
  int32_t last_rows_ = 0;
  int64_t num_steps_ = 0;
  int64_t num_draft_passes_ = 0;
  int64_t total_rows_ = 0;
};

// What a request must give, computed one token at a time with no scheduler, page or slot.
struct ExpectedOutput {
  std::vector<engine::OutputToken> tokens;
  std::vector<std::optional<engine::TokenLogprobs>> prompt_logprobs;
  engine::FinishReason finish = engine::FinishReason::kLength;
  std::optional<int32_t> stop_token;
};

inline ExpectedOutput Expect(const FakeModel& model, const engine::Request& request, int32_t vocab_size, uint64_t seed) {
  const int32_t vocab_rows = model.shape().vocab_rows;
  const engine::Sampler sampler(ops::kRefKernels, vocab_rows, vocab_size);
  engine::Sampler::Scratch scratch = sampler.MakeScratch();
  std::vector<float> row(static_cast<size_t>(vocab_rows));
  ExpectedOutput expected;
  if (request.prompt_logprobs >= 0) {
    expected.prompt_logprobs.emplace_back();
    for (size_t i = 1; i < request.prompt.size(); ++i) {
      model.LogitsAfter(std::span(request.prompt).first(i), row);
      sampler.Score(row, request.prompt[i], request.prompt_logprobs, expected.prompt_logprobs.emplace_back(std::in_place).value());
    }
  }
  engine::Sequence sequence;
  sequence.request = request;
  sequence.tokens = request.prompt;
  sequence.seed = request.sampling.seed.value_or(seed);
  if (request.sampling.repetition_penalty != 1.0f) {
    sequence.prompt_ids = request.prompt;
    std::ranges::sort(sequence.prompt_ids);
    sequence.prompt_ids.erase(std::unique(sequence.prompt_ids.begin(), sequence.prompt_ids.end()), sequence.prompt_ids.end());
  }
  const engine::SamplingParams& params = request.sampling;
  while (true) {
    model.LogitsAfter(sequence.tokens, row);
    engine::SampleResult sample;
    sampler.Sample(sequence, row, scratch, sample);
    engine::CountGenerated(sequence, sample.token);
    sequence.tokens.push_back(sample.token);
    engine::OutputToken& token = expected.tokens.emplace_back();
    token.id = sample.token;
    if (request.logprobs >= 0) token.logprobs = sample.logprobs;
    const auto contains = [&](const std::vector<int32_t>& ids) { return std::ranges::find(ids, sample.token) != ids.end(); };
    const auto generated = static_cast<int32_t>(expected.tokens.size());
    if (generated >= params.min_tokens && !params.ignore_eos && contains(params.eos_token_ids)) {
      expected.finish = engine::FinishReason::kStop;
      return expected;
    }
    if (generated >= params.min_tokens && contains(params.stop_token_ids)) {
      expected.finish = engine::FinishReason::kStop;
      expected.stop_token = sample.token;
      return expected;
    }
    if (generated >= params.max_tokens) return expected;
  }
}

// The bits of the numbers, so that NaN equals itself.
inline bool SameBits(const engine::TokenLogprobs& a, const engine::TokenLogprobs& b) {
  return std::ranges::equal(a.top, b.top, [](const engine::TopLogprob& x, const engine::TopLogprob& y) {
    return x.token == y.token && x.rank == y.rank && std::bit_cast<uint32_t>(x.logprob) == std::bit_cast<uint32_t>(y.logprob);
  });
}
inline bool SameBits(const std::optional<engine::TokenLogprobs>& a, const std::optional<engine::TokenLogprobs>& b) {
  return a.has_value() == b.has_value() && (!a || SameBits(*a, *b));
}
inline bool SameBits(const engine::OutputToken& a, const engine::OutputToken& b) {
  return a.id == b.id && SameBits(a.logprobs, b.logprobs);
}

}  // namespace avocet::test
