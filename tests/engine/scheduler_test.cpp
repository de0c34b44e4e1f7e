// Order, budgets and preemption, seen through the core with the model that notices mix-ups: who runs in which step.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "engine/engine_core.h"
#include "support/fake_model.h"

namespace avocet::engine {
namespace {

constexpr int32_t kVocab = 40;

model::RunnerShape ShapeOf(int32_t num_pages, int32_t max_logit_rows = 16) {
  return {.max_rows = 64,
          .max_logit_rows = max_logit_rows,
          .vocab_rows = kVocab,
          .num_pages = num_pages,
          .page_tokens = 4,
          .num_slots = 8,
          .max_context = 256};
}

Request RequestOf(RequestId id, int32_t prompt, int32_t output) {
  Request request;
  request.id = id;
  for (int32_t i = 0; i < prompt; ++i) request.prompt.push_back((i * 7 + static_cast<int32_t>(id)) % kVocab);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = output;
  request.logprobs = 2;
  return request;
}

// Runs a core step by step and keeps what every request gave.
class Driver {
 public:
  Driver(const model::RunnerShape& shape, EngineOptions options)
      : model_({.shape = shape}), options_(WithDefaults(options)), core_(options_, model_, 1) {
    model_.on_run = [this](const model::StepPlan& plan) { plan_ = plan; };
  }

  void Add(Request request) {
    ASSERT_TRUE(EngineCore::Validate(options_, model_.shape(), request));
    requests_[request.id] = request;
    core_.Add(std::move(request), {});
  }
  void Step() {
    plan_.Clear();
    core_.Step({});
    core_.TakeEvents(events_);
    for (RequestEvent& event : events_) {
      auto& tokens = tokens_[event.id];
      tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish) ended_.push_back(event.id);
    }
  }
  void RunToEnd() {
    for (int i = 0; i < 10'000 && core_.has_work(); ++i) Step();
    core_.CheckIdle();
  }
  // SEQ-1, and the law: what came out is what the tokens alone give.
  void ExpectOracle() {
    for (const auto& [id, request] : requests_) {
      const test::ExpectedOutput expected = test::Expect(model_, request, kVocab, options_.seed * 0x9e3779b97f4a7c15u + id);
      ASSERT_EQ(tokens_[id].size(), expected.tokens.size()) << id;
      for (size_t i = 0; i < expected.tokens.size(); ++i) EXPECT_TRUE(test::SameBits(tokens_[id][i], expected.tokens[i])) << id << " " << i;
    }
  }
  std::vector<int32_t> RowsOfStep() const {
    std::vector<int32_t> rows;
    for (const model::SequenceRows& s : plan_.sequences) rows.push_back(s.num_rows);
    return rows;
  }

  EngineCore& core() { return core_; }
  const std::vector<RequestId>& ended() const { return ended_; }
  size_t num_tokens(RequestId id) { return tokens_[id].size(); }

 private:
  static EngineOptions WithDefaults(EngineOptions options) {
    options.vocab_size = kVocab;
    options.max_model_len = 256;
    return options;
  }
  test::FakeModel model_;
  EngineOptions options_;
  EngineCore core_;
  model::StepPlan plan_;
  std::map<RequestId, Request> requests_;
  std::map<RequestId, std::vector<OutputToken>> tokens_;
  std::vector<RequestEvent> events_;
  std::vector<RequestId> ended_;
};

TEST(SchedulerOrder, DecodesFirst_ThenChunks_ThenWaiting) {
  Driver driver(ShapeOf(64), {.max_num_seqs = 8, .max_num_batched_tokens = 10});
  driver.Add(RequestOf(1, 2, 20));
  driver.Step();
  EXPECT_EQ(driver.RowsOfStep(), (std::vector<int32_t>{2}));
  driver.Add(RequestOf(2, 25, 4));
  driver.Add(RequestOf(3, 3, 4));
  driver.Step();
  EXPECT_EQ(driver.RowsOfStep(), (std::vector<int32_t>{1, 9}));  // the decode row, then what the budget leaves
  driver.Step();
  EXPECT_EQ(driver.RowsOfStep(), (std::vector<int32_t>{1, 9}));
  driver.Step();
  EXPECT_EQ(driver.RowsOfStep(), (std::vector<int32_t>{1, 7, 2}));  // 25 = 9 + 9 + 7; the next in line starts
  driver.Step();
  EXPECT_EQ(driver.RowsOfStep(), (std::vector<int32_t>{1, 1, 1}));
  driver.RunToEnd();
  driver.ExpectOracle();
}

TEST(SchedulerOrder, LongPrefillThreshold_CutsChunks) {
  Driver driver(ShapeOf(64), {.max_num_seqs = 8, .max_num_batched_tokens = 64, .long_prefill_token_threshold = 6});
  driver.Add(RequestOf(1, 20, 2));
  driver.Add(RequestOf(2, 5, 2));
  driver.Step();
  EXPECT_EQ(driver.RowsOfStep(), (std::vector<int32_t>{6, 5}));
  driver.RunToEnd();
  driver.ExpectOracle();
}

TEST(SchedulerOrder, Priority_SmallerFirst_TiesByArrival) {
  Driver driver(ShapeOf(64), {.max_num_seqs = 1, .max_num_batched_tokens = 64, .policy = SchedulingPolicy::kPriority});
  const int64_t priorities[] = {5, 1, 5, 0, 1};
  for (RequestId id = 1; id <= 5; ++id) {
    Request request = RequestOf(id, 3, 2);
    request.priority = priorities[id - 1];
    driver.Add(std::move(request));
  }
  driver.RunToEnd();
  EXPECT_EQ(driver.ended(), (std::vector<RequestId>{4, 2, 5, 1, 3}));
}

TEST(SchedulerOrder, Fcfs_IgnoresPriorities) {
  Driver driver(ShapeOf(64), {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  for (RequestId id = 1; id <= 3; ++id) {
    Request request = RequestOf(id, 3, 2);
    request.priority = -static_cast<int64_t>(id);
    driver.Add(std::move(request));
  }
  driver.RunToEnd();
  EXPECT_EQ(driver.ended(), (std::vector<RequestId>{1, 2, 3}));
}

// The newest gives way, comes back before those that never ran, and repeats nothing.
TEST(SchedulerPreemption, NewestGivesWay_ReturnsFirst_EmitsNothingTwice) {
  Driver driver(ShapeOf(10), {.max_num_seqs = 3, .max_num_batched_tokens = 64});  // 40 tokens
  driver.Add(RequestOf(1, 8, 24));
  driver.Add(RequestOf(2, 8, 24));
  driver.Add(RequestOf(3, 8, 16));
  driver.Add(RequestOf(4, 4, 4));
  while (driver.core().stats().preemptions == 0) driver.Step();
  const size_t third = driver.num_tokens(3);
  EXPECT_GT(third, 0u);
  EXPECT_LT(third, 16u);
  EXPECT_EQ(driver.num_tokens(4), 0u);
  driver.RunToEnd();
  driver.ExpectOracle();
  EXPECT_EQ(driver.ended().front(), 1u);
}

TEST(SchedulerPreemption, Priority_LeastUrgentGivesWay) {
  Driver driver(ShapeOf(8), {.max_num_seqs = 2, .max_num_batched_tokens = 64, .policy = SchedulingPolicy::kPriority});  // 32 tokens
  Request first = RequestOf(1, 8, 20);
  first.priority = 9;
  driver.Add(std::move(first));
  driver.Add(RequestOf(2, 8, 20));
  while (driver.core().stats().preemptions == 0) driver.Step();
  driver.RunToEnd();
  driver.ExpectOracle();
  EXPECT_EQ(driver.ended(), (std::vector<RequestId>{2, 1}));
}

// Waiting requests never preempt: with the pool full of running ones, an urgent arrival waits.
TEST(SchedulerPreemption, WaitingRequest_NeverPreempts) {
  Driver driver(ShapeOf(8), {.max_num_seqs = 4, .max_num_batched_tokens = 64, .policy = SchedulingPolicy::kPriority});
  Request running = RequestOf(1, 28, 4);
  running.priority = 9;
  driver.Add(std::move(running));
  driver.Step();
  driver.Add(RequestOf(2, 8, 4));
  driver.RunToEnd();
  EXPECT_EQ(driver.core().stats().preemptions, 0);
  EXPECT_EQ(driver.ended(), (std::vector<RequestId>{1, 2}));
}

// A scored prompt moves on with one free row of logits, beside streams that take the others.
TEST(SchedulerLogits, PromptLogprobs_WithFewLogitRows_MakeProgress) {
  Driver driver(ShapeOf(64, 3), {.max_num_seqs = 3, .max_num_batched_tokens = 64});
  driver.Add(RequestOf(1, 2, 60));
  driver.Add(RequestOf(2, 2, 60));
  driver.Step();
  Request scored = RequestOf(3, 20, 3);
  scored.prompt_logprobs = 2;
  driver.Add(std::move(scored));
  for (int i = 0; i < 25; ++i) driver.Step();
  EXPECT_EQ(driver.num_tokens(3), 3u);
  EXPECT_EQ(driver.num_tokens(1), 26u) << "a stream was held up";
  driver.RunToEnd();
  driver.ExpectOracle();
}

TEST(SchedulerLogits, OneRowOfLogits_IsEnough) {
  model::RunnerShape shape = ShapeOf(64, 1);
  Driver driver(shape, {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  Request scored = RequestOf(1, 20, 3);
  scored.prompt_logprobs = 0;
  driver.Add(std::move(scored));
  driver.RunToEnd();
  driver.ExpectOracle();
}

// PLAN-3: an admission that is refused for want of pages changes nothing.
TEST(SchedulerAdmission, Plan3_RefusedForPages_PoolsStayAsTheyWere) {
  Driver driver(ShapeOf(8), {.max_num_seqs = 4, .max_num_batched_tokens = 64});
  driver.Add(RequestOf(1, 20, 12));
  driver.Step();
  const int32_t free_pages = driver.core().cache().free_pages();
  const int32_t free_slots = driver.core().cache().free_slots();
  EXPECT_EQ(free_pages, 3);
  driver.Add(RequestOf(2, 16, 4));  // four pages
  driver.core().Step({});           // position 20 opens one page for the running one
  EXPECT_EQ(driver.core().cache().free_pages(), free_pages - 1);
  EXPECT_EQ(driver.core().cache().free_slots(), free_slots);
  EXPECT_EQ(driver.core().stats().num_waiting, 1);
}

// The law over budgets, pools and company: the same request gives the same tokens and logprob bits.
TEST(SameOutput, AnyBudgetPoolAndCompany_GivesTheSameTokensAndLogprobs) {
  for (const int32_t budget : {1, 7, 64}) {
    for (const int32_t pages : {10, 64}) {
      for (const RequestId company : {1u, 8u}) {
        SCOPED_TRACE(testing::Message() << "budget " << budget << " pages " << pages << " requests " << company);
        Driver driver(ShapeOf(pages), {.max_num_seqs = 8, .max_num_batched_tokens = budget});
        for (RequestId id = 1; id <= company; ++id) {
          Request request = RequestOf(id, 5 + static_cast<int32_t>(id), 12);
          request.sampling.temperature = id % 2 == 0 ? 0.0f : 0.9f;
          request.sampling.top_p = 0.95f;
          request.sampling.presence_penalty = 0.5f;
          driver.Add(std::move(request));
        }
        driver.RunToEnd();
        driver.ExpectOracle();
        if (pages == 10 && company == 8 && budget == 64) {
          EXPECT_GT(driver.core().stats().preemptions, 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace avocet::engine
