// Deterministic simulation: the engine core with a fake model that notices mix-ups, a virtual clock, random pools and budgets, random
// arrivals, cancels, deadlines and priorities, rows of NaN. Invariants after every step; every token, logprob and finish reason against
// an oracle that knows no scheduler. AVOCET_SIM_SEED picks the seed (printed), AVOCET_SIM_STEPS the number of steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "support/fake_model.h"

namespace avocet {
namespace {

using engine::FinishReason;
using engine::Request;
using engine::RequestEvent;
using engine::RequestId;

constexpr int32_t kVocabRows = 40;
constexpr int32_t kVocabSize = 37;  // three rows without a token
constexpr uint64_t kDefaultSteps = 300'000;
constexpr int kStepsPerWorld = 1000;

uint64_t FromEnvironment(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int32_t Between(int32_t low, int32_t high) { return low + static_cast<int32_t>(engine_() % static_cast<uint64_t>(high - low + 1)); }
  bool OneIn(int32_t n) { return Between(1, n) == 1; }
  template <typename T>
  T Pick(std::initializer_list<T> choices) {
    return choices.begin()[Between(0, static_cast<int32_t>(choices.size()) - 1)];
  }
  uint64_t Bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

// What the world knows of a request that was submitted.
struct Client {
  Request request;
  test::ExpectedOutput expected;
  std::vector<engine::OutputToken> tokens;
  bool has_prompt_logprobs = false;
  bool is_cancelled = false;
  bool has_ended = false;
};

test::FakeModelOptions RandomModel(Random& random) {
  const int32_t slots = random.Between(1, 9);
  const int32_t page_tokens = random.Pick({1, 4, 16});
  return {.shape = {.max_rows = random.Pick({1, 2, 7, 16, 64}),
                    .max_logit_rows = slots + random.Pick({0, 0, 1, 5, 30}),
                    .vocab_rows = kVocabRows,
                    .num_pages = std::max(1, random.Pick({24, 48, 80, 400}) / page_tokens),
                    .page_tokens = page_tokens,
                    .num_slots = slots,
                    .max_context = 64,
                    .max_drafts = random.Pick({0, 1, 3, 15})},
          .num_workers = random.Between(1, 3),
          .seed = random.Bits(),
          .fault_period = random.OneIn(3) ? 50u : 0u};
}

engine::EngineOptions RandomOptions(Random& random, const model::RunnerShape& shape) {
  return {.max_num_seqs = random.Between(1, shape.num_slots),
          .max_num_batched_tokens = random.Between(1, shape.max_rows),
          .max_model_len = shape.max_context,
          .long_prefill_token_threshold = random.Pick({0, 0, 1, 5}),
          .policy = random.Pick({engine::SchedulingPolicy::kFcfs, engine::SchedulingPolicy::kPriority}),
          .num_drafts = random.Between(0, shape.max_drafts),
          .draft_depth = random.Pick({engine::DraftDepthPolicy::kMeasured, engine::DraftDepthPolicy::kMost}),
          .seed = 77,
          .vocab_size = kVocabSize};
}

class World {
 public:
  World(uint64_t seed, Random& random)
      : seed_(seed),
        random_(random),
        model_(RandomModel(random)),
        options_(RandomOptions(random, model_.shape())),
        core_(options_, model_, model_.num_workers()) {
    pressure_ = random.Pick({1, 2, 8});
    model_.on_run = [this](const model::StepPlan& plan) { CheckPlan(plan); };
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      now_ += std::chrono::milliseconds(random_.Between(0, 20));
      Arrive();
      CancelSome();
      Step();
    }
    DrainAll();
  }

  int64_t num_finished() const { return num_finished_; }
  int64_t num_preemptions() const { return core_.stats().preemptions; }
  int64_t num_accepted() const { return core_.stats().num_accepted_tokens; }

 private:
  void Arrive() {
    while (core_.num_live() < 40 && random_.OneIn(pressure_ + 1)) {
      Request request = RandomRequest();
      if (!engine::EngineCore::Validate(options_, model_.shape(), request)) continue;  // longer than the pool or the context
      Client& client = clients_[request.id];
      client.request = request;
      client.expected = test::Expect(model_, request, kVocabSize, 0);
      core_.Add(std::move(request), now_);
      if (random_.OneIn(2)) return;
    }
  }

  Request RandomRequest() {
    Request request;
    request.id = next_id_++;
    const int32_t length = random_.OneIn(4) ? random_.Between(1, 60) : random_.Between(1, 12);
    for (int32_t i = 0; i < length; ++i) request.prompt.push_back(random_.Between(0, kVocabSize - 1));
    request.arrival = now_;
    request.priority = random_.Between(-2, 2);
    if (random_.OneIn(8)) request.deadline = now_ + std::chrono::milliseconds(random_.Between(0, 400));
    if (random_.OneIn(4)) request.logprobs = random_.Between(0, 5);
    if (random_.OneIn(6)) request.prompt_logprobs = random_.Between(0, 3);
    engine::SamplingParams& p = request.sampling;
    p.seed = random_.Bits();
    p.max_tokens = random_.OneIn(4) ? random_.Between(1, 40) : random_.Between(1, 8);
    p.min_tokens = random_.OneIn(6) ? random_.Between(0, p.max_tokens) : 0;
    p.temperature = random_.Pick({0.0f, 0.0f, 0.7f, 1.0f, 3.0f});
    p.top_k = random_.Pick({0, 0, 1, 5});
    p.top_p = random_.Pick({1.0f, 0.9f, 0.3f});
    p.min_p = random_.Pick({0.0f, 0.0f, 0.2f});
    p.repetition_penalty = random_.Pick({1.0f, 1.0f, 1.3f});
    p.presence_penalty = random_.Pick({0.0f, 0.0f, 0.5f});
    p.frequency_penalty = random_.Pick({0.0f, 0.0f, -0.5f});
    p.eos_token_ids = {3, 4};
    p.ignore_eos = random_.OneIn(4);
    if (random_.OneIn(4)) p.stop_token_ids = {9, 11};
    if (random_.OneIn(8)) p.bad_words = {{1}, {5, 6}};
    if (random_.OneIn(8)) p.logit_bias = {{7, 2.0f}};
    if (random_.OneIn(16)) p.allowed_token_ids = {2, 3, 5, 7, 11};
    return request;
  }

  void CancelSome() {
    if (random_.OneIn(200)) {  // a storm
      for (auto& [id, client] : clients_) Cancel(id, client);
    }
    if (random_.OneIn(20) && !clients_.empty()) {
      auto at = clients_.begin();
      std::advance(at, random_.Between(0, static_cast<int32_t>(clients_.size()) - 1));
      Cancel(at->first, at->second);
    }
    if (random_.OneIn(50)) core_.Cancel(next_id_ + 1000);  // nobody
  }

  void Cancel(RequestId id, Client& client) {
    client.is_cancelled = true;
    core_.Cancel(id);
  }

  void Step() {
    const int32_t live = core_.num_live();
    const int64_t steps = model_.num_steps();
    core_.Step(now_);
    core_.TakeEvents(events_);
    // PROG-1: while anything is live a step runs rows or ends a request.
    ASSERT_TRUE(live == 0 || model_.num_steps() > steps || core_.num_live() < live) << Repro();
    for (RequestEvent& event : events_) OnEvent(event);
    CheckPools();
    std::erase_if(clients_, [](const auto& entry) { return entry.second.has_ended; });
    ASSERT_EQ(static_cast<int32_t>(clients_.size()), core_.num_live()) << Repro();
  }

  void OnEvent(const RequestEvent& event) {
    const auto found = clients_.find(event.id);
    ASSERT_NE(found, clients_.end()) << "SEQ-2: event for request " << event.id << " which has ended; " << Repro();
    Client& client = found->second;
    ASSERT_FALSE(client.has_ended) << "SEQ-2: two events or two ends; " << Repro();
    for (const engine::OutputToken& token : event.tokens) {
      const size_t at = client.tokens.size();
      ASSERT_LT(at, client.expected.tokens.size()) << Repro();
      ASSERT_TRUE(test::SameBits(token, client.expected.tokens[at])) << "request " << event.id << " token " << at << "; " << Repro();
      ASSERT_TRUE(token.id >= 0 && token.id < kVocabSize) << Repro();
      client.tokens.push_back(token);
    }
    if (!event.prompt_logprobs.empty()) {
      ASSERT_FALSE(client.has_prompt_logprobs) << Repro();
      client.has_prompt_logprobs = true;
      ASSERT_TRUE(std::ranges::equal(event.prompt_logprobs, client.expected.prompt_logprobs,
                                     [](const auto& a, const auto& b) { return test::SameBits(a, b); }))
          << "prompt_logprobs of request " << event.id << "; " << Repro();
    }
    if (event.finish) OnEnd(event, client);
  }

  void OnEnd(const RequestEvent& event, Client& client) {
    client.has_ended = true;
    ++num_finished_;
    if (*event.finish == FinishReason::kAbort) {
      ASSERT_TRUE(client.is_cancelled) << Repro();
    } else if (*event.finish == FinishReason::kError) {
      ASSERT_TRUE(client.request.deadline && *client.request.deadline <= now_) << event.error << "; " << Repro();
    } else {
      ASSERT_EQ(client.tokens.size(), client.expected.tokens.size()) << Repro();
      ASSERT_EQ(*event.finish, client.expected.finish) << Repro();
      ASSERT_EQ(event.stop_token, client.expected.stop_token) << Repro();
      ASSERT_EQ(client.has_prompt_logprobs, client.request.prompt_logprobs >= 0) << Repro();
    }
  }

  // PLAN-2 beyond what ValidatePlan sees: the budget of the options.
  void CheckPlan(const model::StepPlan& plan) {
    ASSERT_LE(plan.num_rows(), options_.max_num_batched_tokens) << Repro();
    ASSERT_LE(static_cast<int32_t>(plan.sequences.size()), options_.max_num_seqs) << Repro();
    ASSERT_LE(static_cast<int32_t>(plan.logit_rows.size()), model_.shape().max_logit_rows) << Repro();
  }

  void CheckPools() {
    core_.cache().CheckConservation();
    const engine::EngineStats stats = core_.stats();
    ASSERT_EQ(stats.num_running + stats.num_waiting, core_.num_live()) << Repro();
    ASSERT_LE(stats.num_running, options_.max_num_seqs) << Repro();
    ASSERT_EQ(stats.num_slots - stats.free_slots, stats.num_running) << "STATE-1: " << Repro();
    if (core_.num_live() == 0) core_.CheckIdle();
  }

  void DrainAll() {
    if (random_.OneIn(4)) {
      for (auto& [id, client] : clients_) client.is_cancelled = true;
      core_.AbortAll();
    }
    // Every request needs at most its length in rows, once more per preemption; a preempted one waits for a more urgent one to end.
    for (int i = 0; core_.has_work() && !::testing::Test::HasFailure(); ++i) {
      ASSERT_LT(i, 200'000) << "PROG-1: the requests do not end; " << Repro();
      now_ += std::chrono::milliseconds(1);
      Step();
    }
    if (!::testing::Test::HasFailure()) core_.CheckIdle();
  }

  std::string Repro() const { return "AVOCET_SIM_SEED=" + std::to_string(seed_); }

  uint64_t seed_;
  Random& random_;
  test::FakeModel model_;
  engine::EngineOptions options_;
  engine::EngineCore core_;
  int32_t pressure_ = 1;  // arrivals are rarer with larger values
  engine::Clock::time_point now_{std::chrono::hours(1)};
  RequestId next_id_ = 1;
  std::map<RequestId, Client> clients_;
  std::vector<RequestEvent> events_;
  int64_t num_finished_ = 0;
};

// SEQ-1, SEQ-2, PAGE-1, PAGE-2, STATE-1, PLAN-2, PLAN-3, PROG-1 under random load. Every 1,000 steps a new world with other pools.
TEST(Simulation, AnyLoad_EveryRequestGivesWhatTheOracleGives) {
  const uint64_t steps = FromEnvironment("AVOCET_SIM_STEPS", kDefaultSteps);
  const uint64_t first_seed = FromEnvironment("AVOCET_SIM_SEED", 20261201);
  int64_t finished = 0;
  int64_t preemptions = 0;
  int64_t accepted = 0;
  for (uint64_t done = 0, seed = first_seed; done < steps; done += kStepsPerWorld, ++seed) {
    Random random(seed);
    World world(seed, random);
    world.Run(kStepsPerWorld);
    ASSERT_FALSE(HasFailure()) << "repeat: AVOCET_SIM_SEED=" << seed << " AVOCET_SIM_STEPS=1";
    finished += world.num_finished();
    preemptions += world.num_preemptions();
    accepted += world.num_accepted();
  }
  std::printf("simulation: seed %llu, %llu steps, %lld requests, %lld preemptions, %lld drafts accepted\n",
              static_cast<unsigned long long>(first_seed), static_cast<unsigned long long>(steps), static_cast<long long>(finished),
              static_cast<long long>(preemptions), static_cast<long long>(accepted));
  // A run that never preempts or finishes nothing tests nothing.
  EXPECT_GT(finished, 100);
  if (steps >= kDefaultSteps) {
    EXPECT_GT(preemptions, 100);
    EXPECT_GT(accepted, 100);
  }
}

}  // namespace
}  // namespace avocet
