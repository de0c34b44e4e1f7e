// A model without arithmetic: logits are a hash of what pages and slots hold. It keeps a shadow of every page and slot, so that a page
// mix-up, a skipped position, a state that belongs to another sequence or a missing recomputation changes the tokens that come out, and
// it says at once what is wrong with a plan. What a request must produce is computed independently by Oracle().
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "device/worker_pool.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "model/step_runner.h"

namespace avocet::test {

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Logits of a position from the two hashes: what the state has seen, and what the pages hold.
inline void FakeLogits(uint64_t state, uint64_t pages, std::span<float> row) {
  const uint64_t seed = Mix(state, pages);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(Mix(seed, i) >> 40) * (8.0f / 16777216.0f);
}

class FakeRunner final : public model::StepRunner {
 public:
  explicit FakeRunner(const model::RunnerShape& shape, int32_t workers = 1)
      : shape_(shape), pages_(static_cast<size_t>(shape.num_pages)), slots_(static_cast<size_t>(shape.num_slots)) {
    for (auto& page : pages_) page.assign(static_cast<size_t>(shape.page_tokens), -1);
    logits_.resize(static_cast<size_t>(shape.max_logit_rows) * static_cast<size_t>(shape.vocab_rows));
    device::WorkerPoolOptions options;
    options.cpus.assign(static_cast<size_t>(workers), -1);
    pool_ = device::WorkerPool::Create(options).value();
  }

  const model::RunnerShape& shape() const override { return shape_; }
  int32_t num_workers() const override { return pool_->num_workers(); }
  MatView<float> logits() override { return {logits_.data(), num_logits_, shape_.vocab_rows}; }

  void Run(const model::StepPlan& plan, FunctionRef<void(device::Worker&)> after) override {
    num_logits_ = 0;
    CheckOwners(plan);
    for (const model::SequenceRows& s : plan.sequences) {
      for (int32_t i = 0; i < s.num_rows; ++i) Row(plan, s, i);
    }
    pool_->Run(after);
  }

  int64_t num_rows_run() const { return num_rows_run_; }

 private:
  struct Slot {
    uint64_t hash = 0;
    int32_t position = -1;  // the next one that fits; -1: never used
  };

  // PAGE-2, STATE-1: nothing that is written belongs to two sequences of the step.
  void CheckOwners(const model::StepPlan& plan) const {
    std::vector<int32_t> page_owner(pages_.size(), -1), slot_owner(slots_.size(), -1);
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      const auto owner = static_cast<int32_t>(i);
      int32_t& slot = slot_owner[static_cast<size_t>(Index(plan.sequences[i].slot))];
      CHECK(slot < 0, "STATE-1: slot {} has two sequences", Index(plan.sequences[i].slot));
      slot = owner;
      for (PageId page : plan.PagesOf(plan.sequences[i])) {
        int32_t& holder = page_owner[static_cast<size_t>(Index(page))];
        CHECK(holder < 0, "PAGE-2: page {} has two sequences", Index(page));
        holder = owner;
      }
    }
  }

  void Row(const model::StepPlan& plan, const model::SequenceRows& s, int32_t i) {
    ++num_rows_run_;
    const int32_t row = s.row_begin + i;
    const int32_t position = s.first_position + i;
    const int32_t token = plan.token_ids[static_cast<size_t>(row)];
    for (int axis = 0; axis < 3; ++axis) {
      CHECK(plan.positions[static_cast<size_t>(axis) * plan.token_ids.size() + static_cast<size_t>(row)] == position,
            "row {} has another position", row);
    }
    Slot& slot = slots_[static_cast<size_t>(Index(s.slot))];
    if (position == 0) slot = {0, 0};
    CHECK(slot.position == position, "slot {} is at position {}, the row at {}", Index(s.slot), slot.position, position);
    slot.hash = Mix(slot.hash, static_cast<uint64_t>(token));
    ++slot.position;
    const auto pages = plan.PagesOf(s);
    pages_[static_cast<size_t>(Index(pages[static_cast<size_t>(position / shape_.page_tokens)]))]
          [static_cast<size_t>(position % shape_.page_tokens)] = token;
    const bool wants_logits =
        static_cast<size_t>(num_logits_) < plan.logit_rows.size() && plan.logit_rows[static_cast<size_t>(num_logits_)] == row;
    if (!wants_logits) return;
    uint64_t hash = 1;
    for (int32_t p = 0; p <= position; ++p) {
      const auto& page = pages_[static_cast<size_t>(Index(pages[static_cast<size_t>(p / shape_.page_tokens)]))];
      hash = Mix(hash, static_cast<uint64_t>(page[static_cast<size_t>(p % shape_.page_tokens)]));
    }
    FakeLogits(slot.hash, hash,
               std::span(logits_).subspan(static_cast<size_t>(num_logits_) * static_cast<size_t>(shape_.vocab_rows),
                                          static_cast<size_t>(shape_.vocab_rows)));
    ++num_logits_;
  }

  model::RunnerShape shape_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<Slot> slots_;
  std::vector<float> logits_;
  int32_t num_logits_ = 0;
  int64_t num_rows_run_ = 0;
  std::unique_ptr<device::WorkerPool> pool_;
};

// What a request must produce when nothing but its own history counts: token by token, without pages, slots or a scheduler.
inline std::vector<int32_t> Oracle(const engine::Request& request, int32_t vocab_rows, int32_t vocab_size, uint64_t engine_seed) {
  engine::Sequence s;
  s.request = request;
  s.tokens = request.prompt;
  s.seed = request.sampling.seed ? *request.sampling.seed : engine_seed * 0x9e3779b97f4a7c15u + request.id;
  s.prompt_ids = request.prompt;
  std::sort(s.prompt_ids.begin(), s.prompt_ids.end());
  s.prompt_ids.erase(std::unique(s.prompt_ids.begin(), s.prompt_ids.end()), s.prompt_ids.end());
  const engine::Sampler sampler(ops::kRefKernels, vocab_rows, vocab_size);
  auto scratch = sampler.MakeScratch();
  std::vector<float> row(static_cast<size_t>(vocab_rows));
  std::vector<int32_t> output;
  while (static_cast<int32_t>(output.size()) < request.sampling.max_tokens) {
    uint64_t state = 0, pages = 1;
    for (int32_t token : s.tokens) {
      state = Mix(state, static_cast<uint64_t>(token));
      pages = Mix(pages, static_cast<uint64_t>(token));
    }
    FakeLogits(state, pages, row);
    engine::SampleResult result;
    sampler.Sample(s, row, scratch, result);
    s.tokens.push_back(result.token);
    engine::CountGenerated(s, result.token);
    output.push_back(result.token);
    const auto& p = request.sampling;
    const auto has = [&](const std::vector<int32_t>& ids) { return std::find(ids.begin(), ids.end(), result.token) != ids.end(); };
    if (static_cast<int32_t>(output.size()) >= p.min_tokens && ((!p.ignore_eos && has(p.eos_token_ids)) || has(p.stop_token_ids))) break;
  }
  return output;
}

}  // namespace avocet::test
