// SEQ-2 from outside: however a request ends (deadline, drain, destruction, cancel), it ends once and its pages are free.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/engine_core.h"
#include "support/fake_model.h"

namespace avocet::engine {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kVocab = 40;
constexpr model::RunnerShape kShape{
    .max_rows = 64, .max_logit_rows = 8, .vocab_rows = kVocab, .num_pages = 1024, .page_tokens = 16, .num_slots = 8, .max_context = 16'000};

EngineOptions Options() {
  EngineOptions options;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 64;
  options.max_model_len = 16'000;
  options.vocab_size = kVocab;
  return options;
}

Request LongRequest(RequestId id) {
  Request request;
  request.id = id;
  request.prompt = {1, 2, 3};
  request.sampling.max_tokens = 3000;
  return request;
}

class Ends final : public EventSink {
 public:
  void OnEvents(std::span<RequestEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (const RequestEvent& event : events) {
      has_begun_ = true;
      EXPECT_FALSE(ends_.contains(event.id)) << "SEQ-2: event after the end of request " << event.id;
      if (event.finish) ends_.emplace(event.id, *event.finish);
    }
    changed_.notify_all();
  }
  void WaitForBegin() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [this] { return has_begun_; }));
  }
  std::map<RequestId, FinishReason> all() {
    const std::lock_guard lock(mutex_);
    return ends_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, FinishReason> ends_;
  bool has_begun_ = false;
};

// A step of this model takes a while, so that requests are alive when the test acts.
void SlowDown(test::FakeModel& model) {
  model.on_run = [](const model::StepPlan&) { std::this_thread::sleep_for(milliseconds(1)); };
}

TEST(EngineEnd, DrainPastItsDeadline_AbortsEveryRequestOnce) {
  test::FakeModel model({.shape = kShape});
  SlowDown(model);
  Ends ends;
  auto engine = Engine::Create(Options(), model, ends).value();
  engine->Start();
  for (RequestId id = 1; id <= 6; ++id) ASSERT_TRUE(engine->Submit(LongRequest(id)));
  ends.WaitForBegin();
  engine->Drain(Clock::now() + milliseconds(20));
  EXPECT_EQ(ends.all().size(), 6u);
  for (const auto& [id, reason] : ends.all()) EXPECT_EQ(reason, FinishReason::kAbort) << id;
  const EngineStats stats = engine->stats();
  EXPECT_FALSE(engine->Submit(LongRequest(9)));
  EXPECT_EQ(stats.num_running + stats.num_waiting, 0);
}

TEST(EngineEnd, Destruction_AbortsWhatLives) {
  test::FakeModel model({.shape = kShape});
  SlowDown(model);
  Ends ends;
  {
    auto engine = Engine::Create(Options(), model, ends).value();
    engine->Start();
    for (RequestId id = 1; id <= 6; ++id) ASSERT_TRUE(engine->Submit(LongRequest(id)));
    ends.WaitForBegin();
  }
  EXPECT_EQ(ends.all().size(), 6u);
}

TEST(EngineEnd, DrainOfAnEngineThatNeverStarted_Returns) {
  test::FakeModel model({.shape = kShape});
  Ends ends;
  auto engine = Engine::Create(Options(), model, ends).value();
  engine->Drain(Clock::now() + milliseconds(1));
}

TEST(EngineEnd, Deadline_EndsRunningAndWaitingWithAReason) {
  test::FakeModel model({.shape = kShape});
  EngineCore core(Options(), model, 1);
  const Clock::time_point start{std::chrono::hours(1)};
  for (RequestId id = 1; id <= 6; ++id) {
    Request request = LongRequest(id);
    request.deadline = start + milliseconds(10);
    core.Add(std::move(request), start);
  }
  std::vector<RequestEvent> events;
  core.Step(start);
  core.TakeEvents(events);
  for (const RequestEvent& event : events) EXPECT_FALSE(event.finish);
  core.Step(start + milliseconds(10));
  core.TakeEvents(events);
  ASSERT_EQ(events.size(), 6u);
  for (const RequestEvent& event : events) {
    EXPECT_EQ(event.finish, FinishReason::kError);
    EXPECT_NE(event.error.find("deadline"), std::string::npos);
  }
  core.CheckIdle();
}

TEST(EngineEnd, Cancel_FreesPagesBeforeTheNextStep) {
  test::FakeModel model({.shape = kShape});
  EngineCore core(Options(), model, 1);
  std::vector<RequestEvent> events;
  for (RequestId id = 1; id <= 2; ++id) core.Add(LongRequest(id), {});
  for (int i = 0; i < 40; ++i) {
    core.Step({});
    core.TakeEvents(events);
  }
  const int32_t free_pages = core.cache().free_pages();
  core.Cancel(1);
  core.Cancel(1);
  EXPECT_EQ(core.cache().free_pages(), free_pages + 3);  // 43 positions
  core.Step({});
  core.TakeEvents(events);
  EXPECT_EQ(std::ranges::count_if(events, [](const RequestEvent& e) { return e.id == 1 && e.finish == FinishReason::kAbort; }), 1);
}

// Without a seed the engine's seed and the request id decide: repeatable, and different from request to request.
TEST(EngineSeed, NoSeed_RepeatsWithTheEnginesSeed) {
  const auto run = [](uint64_t seed, RequestId id) {
    test::FakeModel model({.shape = kShape});
    EngineOptions options = Options();
    options.seed = seed;
    EngineCore core(options, model, 1);
    Request request = LongRequest(id);
    request.sampling.max_tokens = 50;
    core.Add(std::move(request), {});
    std::vector<RequestEvent> events;
    std::vector<int32_t> tokens;
    while (core.has_work()) {
      core.Step({});
      core.TakeEvents(events);
      for (const RequestEvent& event : events) tokens.push_back(event.tokens.at(0).id);
    }
    return tokens;
  };
  EXPECT_EQ(run(1, 1), run(1, 1));
  EXPECT_NE(run(1, 1), run(2, 1));
  EXPECT_NE(run(1, 1), run(1, 2));
}

}  // namespace
}  // namespace avocet::engine
