#include "engine/engine.h"

#include <atomic>
#include <condition_variable>
#include <ctime>
#include <map>
#include <mutex>

#include <gtest/gtest.h>

#include "engine/cache_manager.h"
#include "engine/engine_core.h"
#include "support/fake_model.h"

namespace avocet::engine {
namespace {

using test::FakeModel;

constexpr model::RunnerShape kShape{.max_rows = 64,
                                    .max_logit_rows = 16,
                                    .vocab_rows = 40,
                                    .num_pages = 64,
                                    .page_tokens = 4,
                                    .num_slots = 8,
                                    .max_context = 128,
                                    .page_bytes = 1,
                                    .slot_bytes = 1};

EngineOptions Options() {
  EngineOptions options;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.max_model_len = 128;
  options.vocab_size = 37;
  return options;
}

Request MakeRequest(RequestId id, int32_t prompt, int32_t output) {
  Request request;
  request.id = id;
  for (int32_t i = 0; i < prompt; ++i) request.prompt.push_back((i * 7 + static_cast<int32_t>(id)) % 37);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = output;
  return request;
}

std::vector<int32_t> ExpectedTokens(const FakeModel& model, const Request& request) {
  std::vector<int32_t> tokens;
  for (const OutputToken& token : test::Expect(model, request, 37, 0).tokens) tokens.push_back(token.id);
  return tokens;
}

// Collects events of all requests; waits for ends.
class Collector final : public EventSink {
 public:
  void OnEvents(std::span<RequestEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (RequestEvent& event : events) {
      for (const OutputToken& token : event.tokens) tokens_[event.id].push_back(token.id);
      if (event.finish) {
        EXPECT_TRUE(ends_.emplace(event.id, *event.finish).second) << "SEQ-2: request " << event.id << " ends twice";
      }
    }
    changed_.notify_all();
  }
  FinishReason WaitFor(RequestId id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return ends_.contains(id); }))
        << "request " << id << " never ended";
    return ends_[id];
  }
  std::vector<int32_t> TokensOf(RequestId id) {
    const std::lock_guard lock(mutex_);
    return tokens_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::vector<int32_t>> tokens_;
  std::map<RequestId, FinishReason> ends_;
};

TEST(Engine, Requests_FromManyThreads_GetTheirOwnTokens) {
  FakeModel runner({.shape = kShape, .num_workers = 2});
  Collector sink;
  auto engine = Engine::Create(Options(), runner, sink).value();
  engine->Start();
  std::vector<std::thread> clients;
  for (RequestId client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (RequestId i = 0; i < 25; ++i) ASSERT_TRUE(engine->Submit(MakeRequest(client * 100 + i + 1, 1 + static_cast<int32_t>(i), 10)));
    });
  }
  for (std::thread& client : clients) client.join();
  for (RequestId client = 0; client < 4; ++client) {
    for (RequestId i = 0; i < 25; ++i) {
      const RequestId id = client * 100 + i + 1;
      EXPECT_EQ(sink.WaitFor(id), FinishReason::kLength);
      EXPECT_EQ(sink.TokensOf(id), ExpectedTokens(runner, MakeRequest(id, 1 + static_cast<int32_t>(i), 10)));
    }
  }
}

TEST(Engine, Idle_UsesNoCpu) {
  FakeModel runner({.shape = kShape, .num_workers = 2});
  Collector sink;
  auto engine = Engine::Create(Options(), runner, sink).value();
  engine->Start();
  ASSERT_TRUE(engine->Submit(MakeRequest(1, 3, 3)));
  sink.WaitFor(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used_ms =
      static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 + static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-6;
  EXPECT_LT(used_ms, 5.0);
}

TEST(Engine, Cancel_EndsWithAbort_AndDrainRefusesMore) {
  FakeModel runner({.shape = kShape});
  Collector sink;
  auto engine = Engine::Create(Options(), runner, sink).value();
  engine->Start();
  ASSERT_TRUE(engine->Submit(MakeRequest(1, 5, 120)));
  engine->Cancel(1);
  engine->Cancel(77);  // unknown: ignored
  const FinishReason reason = sink.WaitFor(1);
  EXPECT_TRUE(reason == FinishReason::kAbort || reason == FinishReason::kLength);
  engine->Drain(Clock::now() + std::chrono::seconds(5));
  const auto refused = engine->Submit(MakeRequest(2, 5, 5));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kResourceExhausted);
}

TEST(Engine, Wait1_FullQueue_IsRefusedAtOnce) {
  FakeModel runner({.shape = kShape});
  Collector sink;
  EngineOptions options = Options();
  options.max_num_seqs = 1;
  options.max_waiting = 2;
  auto engine = Engine::Create(options, runner, sink).value();  // not started: nothing leaves the queue
  for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(engine->Submit(MakeRequest(id, 3, 3)));
  const auto refused = engine->Submit(MakeRequest(4, 3, 3));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kResourceExhausted);
  engine->Start();
  for (RequestId id = 1; id <= 3; ++id) sink.WaitFor(id);
}

TEST(EngineCore, Validate_NamesTheField) {
  const auto field = [](auto change) {
    Request request = MakeRequest(1, 4, 4);
    change(request);
    const auto result = EngineCore::Validate(Options(), kShape, request);
    return result ? std::string("ok") : result.error().param;
  };
  EXPECT_EQ(field([](Request&) {}), "ok");
  EXPECT_EQ(field([](Request& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(field([](Request& r) { r.prompt[0] = 37; }), "prompt");
  EXPECT_EQ(field([](Request& r) { r.prompt[0] = -1; }), "prompt");
  EXPECT_EQ(field([](Request& r) { r.sampling.max_tokens = 0; }), "max_tokens");
  EXPECT_EQ(field([](Request& r) { r.sampling.max_tokens = 125; }), "input_tokens");
  EXPECT_EQ(field([](Request& r) { r.sampling.temperature = NAN; }), "temperature");
  EXPECT_EQ(field([](Request& r) { r.sampling.top_p = 0; }), "top_p");
  EXPECT_EQ(field([](Request& r) { r.sampling.logit_bias = {{99, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(field([](Request& r) { r.sampling.min_tokens = 9; }), "min_tokens");
}

// The prompt of one sequence never holds up the next token of another: a decode row is planned before any chunk.
TEST(Scheduler, LongPrompt_DoesNotStallARunningStream) {
  FakeModel runner({.shape = kShape});
  EngineOptions options = Options();
  options.max_num_batched_tokens = 8;
  EngineCore core(options, runner, 1);
  std::vector<RequestEvent> events;
  const Clock::time_point now = Clock::now();
  core.Add(MakeRequest(2, 100, 5), now);  // the long one is the older one
  core.Add(MakeRequest(1, 1, 20), now);
  int tokens_of_stream = 0;
  for (int step = 0; step < 14; ++step) {
    core.Step(now);
    core.TakeEvents(events);
    for (const RequestEvent& event : events) tokens_of_stream += event.id == 1 ? static_cast<int>(event.tokens.size()) : 0;
  }
  // The first step is the long prompt's alone; once the stream runs it has a token in every step.
  EXPECT_GE(tokens_of_stream, 1);
  core.Add(MakeRequest(3, 90, 5), now);
  for (int step = 0; step < 5; ++step) {
    core.Step(now);
    core.TakeEvents(events);
    int here = 0;
    for (const RequestEvent& event : events) here += event.id == 1 ? static_cast<int>(event.tokens.size()) : 0;
    EXPECT_EQ(here, 1) << "step " << step << " left the stream without a token";
  }
}

// PLAN-3: what cannot be admitted leaves the pools as they were.
TEST(Scheduler, Plan3_RefusedAdmission_LeavesPoolsUntouched) {
  model::RunnerShape shape = kShape;
  shape.num_pages = 33;  // 132 tokens
  FakeModel runner({.shape = shape});
  EngineCore core(Options(), runner, 1);
  const Clock::time_point now = Clock::now();
  core.Add(MakeRequest(1, 60, 60), now);
  core.Step(now);
  core.Step(now);
  const int32_t free_before = core.cache().free_pages();
  core.Add(MakeRequest(2, 64, 10), now);  // wants 16 pages in its first chunk; fewer than 18 are free later on
  core.Step(now);
  const auto stats = core.stats();
  EXPECT_LE(stats.num_running, 2);
  EXPECT_EQ(core.cache().free_pages() + (stats.num_running == 2 ? 16 : 0), free_before - (62 % 4 == 0 ? 1 : 0));
  core.cache().CheckConservation();  // PAGE-1
}

// PROG-1: a request that fits the whole cache is never refused for ever; one that does not is refused with the numbers.
TEST(EngineCore, Prog1_LargestRequest_Finishes) {
  model::RunnerShape shape = kShape;
  shape.num_pages = 32;
  FakeModel runner({.shape = shape});
  EngineCore core(Options(), runner, 1);
  Request request = MakeRequest(1, 100, 28);
  ASSERT_TRUE(EngineCore::Validate(Options(), shape, request));
  core.Add(std::move(request), Clock::now());
  std::vector<RequestEvent> events;
  bool is_done = false;
  for (int step = 0; step < 100 && !is_done; ++step) {
    core.Step(Clock::now());
    core.TakeEvents(events);
    for (const RequestEvent& event : events) is_done = is_done || event.finish == FinishReason::kLength;
  }
  EXPECT_TRUE(is_done);
  core.CheckIdle();
}

TEST(PagePoolDeath, Page1_DoubleRelease_Dies) {
  PagePool pool(2);
  const PageId page = pool.Allocate();
  pool.Release(page);
  EXPECT_DEATH(pool.Release(page), "PAGE-1");
}

TEST(StatePoolDeath, State1_DoubleRelease_Dies) {
  StatePool pool(2);
  const SlotId slot = pool.Allocate();
  pool.Release(slot);
  EXPECT_DEATH(pool.Release(slot), "STATE-1");
}

// PLAN-2: every way in which a plan can be incomplete has a message.
TEST(StepPlan, Plan2_IncompletePlans_AreRefused) {
  const model::PlanLimits limits{
      .max_rows = 8, .max_logit_rows = 4, .vocab_rows = 40, .num_pages = 4, .num_slots = 2, .page_tokens = 4, .max_context = 16};
  model::StepPlan good;
  good.token_ids = {1, 2};
  good.positions = {0, 1, 0, 1, 0, 1};
  good.sequences = {{.row_begin = 0, .num_rows = 2, .first_position = 0, .page_begin = 0, .num_pages = 1, .slot = SlotId{1}}};
  good.pages = {PageId{3}};
  good.logit_rows = {1};
  EXPECT_TRUE(model::ValidatePlan(good, limits));
  const auto refused = [&](auto change) {
    model::StepPlan plan = good;
    change(plan);
    return !model::ValidatePlan(plan, limits).has_value();
  };
  EXPECT_TRUE(refused([](auto& p) { p.token_ids[0] = 40; }));
  EXPECT_TRUE(refused([](auto& p) { p.positions.pop_back(); }));
  EXPECT_TRUE(refused([](auto& p) { p.sequences[0].num_rows = 1; }));
  EXPECT_TRUE(refused([](auto& p) { p.sequences[0].slot = SlotId{2}; }));
  EXPECT_TRUE(refused([](auto& p) { p.pages[0] = PageId{4}; }));
  EXPECT_TRUE(refused([](auto& p) { p.sequences[0].first_position = 15; }));
  EXPECT_TRUE(refused([](auto& p) { p.sequences[0].num_pages = 0; }));
  EXPECT_TRUE(refused([](auto& p) { p.logit_rows = {1, 1}; }));
  EXPECT_TRUE(refused([](auto& p) { p.logit_rows = {2}; }));
}

}  // namespace
}  // namespace avocet::engine
