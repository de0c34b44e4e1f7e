// The engine without a thread: sequences, scheduler, caches, sampler and one step at a time. The thread around it is engine.cpp; the
// simulation drives it with a virtual clock. Every call must come from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/cache_manager.h"
#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace avocet::engine {

class EngineCore {
 public:
  // The runner outlives the core.
  EngineCore(const EngineOptions& options, model::StepRunner& runner, int32_t num_workers);

  // What can be known about a request before it is queued: lengths, ids, ranges. Pure; any thread.
  static Result<void> Validate(const EngineOptions& options, const model::RunnerShape& shape, const Request& request);

  void Add(Request request, Clock::time_point now);
  void Cancel(RequestId id);
  // Every live request ends with kAbort.
  void AbortAll();

  // One step if anything can run. Terminal events of cancelled and overdue requests come first.
  void Step(Clock::time_point now);

  bool has_work() const { return !live_.empty() || !events_.empty(); }
  int32_t num_live() const { return static_cast<int32_t>(live_.size()); }
  // What happened since the last TakeEvents, at most one event per request. The caller keeps the vector and hands it back.
  void TakeEvents(std::vector<RequestEvent>& events);

  EngineStats stats() const;
  const CacheManager& cache() const { return cache_; }

  // Conservation laws, when nothing is live.
  void CheckIdle() const;

 private:
  void EndOverdue(Clock::time_point now);
  void SampleRows(device::Worker& worker);
  void SampleTokens(PlannedSequence& planned, Sampler::Scratch& scratch);
  std::span<SampleResult> SamplesOf(const PlannedSequence& planned);
  void Finish(PlannedSequence& planned, Clock::time_point now);
  void AddTokens(Sequence& sequence, std::span<SampleResult> samples, Clock::time_point now);
  void CountVerification(const PlannedSequence& planned);
  // Whether the sequence's last token ends it, and which stop id it was.
  struct Stop {
    FinishReason reason;
    std::optional<int32_t> stop_token;
  };
  std::optional<Stop> CheckStop(const Sequence& sequence) const;
  RequestEvent& EventFor(const Sequence& sequence);
  void End(Sequence& sequence, FinishReason reason, std::string error);
  void FailIfStuck();

  EngineOptions options_;
  model::StepRunner& runner_;
  CacheManager cache_;
  Scheduler scheduler_;
  Sampler sampler_;
  Drafter drafter_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> live_;
  int64_t next_order_ = 0;
  int32_t num_with_deadline_ = 0;

  model::StepPlan plan_;
  model::PlanLimits limits_;
  std::vector<PlannedSequence> planned_;
  std::vector<SampleResult> samples_;        // [planned sequences][1 + num_drafts]
  std::vector<Sampler::Scratch> scratches_;  // [workers]
  std::vector<RequestEvent> events_;
  std::vector<RequestId> overdue_;
  EngineStats totals_;
};

}  // namespace avocet::engine
