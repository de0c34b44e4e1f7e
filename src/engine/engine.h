// The engine: one thread that owns sequences, pools, plan and metrics, and runs steps while there is work. Other threads reach it
// through a bounded mailbox (Submit, Cancel) and hear from it through the EventSink. It never waits for a client (WAIT-1).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "base/limits.h"
#include "engine/request.h"
#include "model/step_runner.h"
#include "ops/kernel_table.h"

namespace avocet::engine {

enum class SchedulingPolicy : uint8_t { kFcfs, kPriority };

// How many drafts a step takes: as many as pay by what was measured so far (draft_depth.h), or always the most.
enum class DraftDepthPolicy : uint8_t { kMeasured, kMost };

struct EngineOptions {
  int32_t max_num_seqs = 256;                // running sequences
  int32_t max_num_batched_tokens = 2048;     // rows per step
  int32_t max_model_len = 0;                 // prompt + output of one sequence
  int32_t long_prefill_token_threshold = 0;  // 0: none
  int32_t max_waiting = 0;                   // refuse beyond this many queued requests (HTTP 503); 0: the mailbox bound only
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  int32_t num_drafts = 0;  // at most, per sequence and step; 0: no speculative decoding
  DraftDepthPolicy draft_depth = DraftDepthPolicy::kMeasured;
  uint64_t seed = 0;
  int32_t vocab_size = 0;                     // ids at or above it have no token and are never sampled
  const ops::KernelTable* kernels = nullptr;  // reductions over the vocabulary; nullptr: the reference kernels
};

// Called on the engine thread after each step (and for refusals), with at most one event per request. Must not block.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnEvents(std::span<RequestEvent> events) = 0;
};

// A consistent copy of the counters, for /metrics and the periodic log line. Histograms are kept by the server from events.
struct EngineStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  double kv_cache_usage = 0;  // 0..1
  int64_t prompt_tokens = 0;  // computed
  int64_t generation_tokens = 0;
  int64_t preemptions = 0;
  int64_t steps = 0;
  int64_t num_pages = 0;
  int64_t free_pages = 0;
  int64_t num_slots = 0;
  int64_t free_slots = 0;
  // Speculative decoding: verifications of at least one draft, drafts verified, drafts accepted, and verifications that accepted more than
  // i drafts.
  int64_t num_verifications = 0;
  int64_t num_draft_tokens = 0;
  int64_t num_accepted_tokens = 0;
  std::array<int64_t, limits::kDraftsMax> num_accepted_at{};
  int32_t max_drafts = 0;    // 0: off
  double model_seconds = 0;  // inside StepRunner::Run
  double step_seconds = 0;   // whole loop bodies
};

class Engine {
 public:
  // `runner` and `sink` outlive the engine. Options are checked against the runner's shape.
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options, model::StepRunner& runner, EventSink& sink);
  ~Engine();  // stops the thread; live requests get kAbort

  void Start();

  // Any thread. Validates (prompt not empty, ids in range, lengths); kResourceExhausted when the mailbox or the queue is full.
  // After an ok every request gets exactly one terminal event.
  Result<void> Submit(Request request);
  // Any thread. The request ends with kAbort before two more steps; unknown ids are ignored.
  void Cancel(RequestId id);

  // No new submissions; returns when the live requests have finished or `deadline` passed (then they are aborted).
  void Drain(Clock::time_point deadline);

  EngineStats stats() const;
  bool is_healthy() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace avocet::engine
