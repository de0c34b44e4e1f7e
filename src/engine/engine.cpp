#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "engine/engine_core.h"

namespace avocet::engine {

// The mailbox is the only state that other threads touch. Everything in `core` belongs to the engine thread.
struct Engine::Impl {
  Impl(const EngineOptions& options_in, model::StepRunner& runner, EventSink& sink_in, int32_t num_workers)
      : options(options_in), shape(runner.shape()), sink(sink_in), core(options_in, runner, num_workers) {}

  EngineOptions options;
  model::RunnerShape shape;
  EventSink& sink;
  EngineCore core;
  std::thread thread;

  std::mutex mutex;
  std::condition_variable has_mail;
  std::condition_variable is_idle;
  std::deque<Request> submissions;
  std::vector<RequestId> cancellations;
  bool is_draining = false;  // refuses submissions
  bool must_abort = false;   // live requests end now
  bool is_stopping = false;
  bool is_asleep = false;  // nothing is live
  EngineStats published;
  std::atomic<int64_t> num_live{0};  // mailbox included

  void Loop();
  bool DrainMailbox(std::deque<Request>& submitted, std::vector<RequestId>& cancelled);
  void PublishEvents(std::vector<RequestEvent>& events);
};

// Waits for mail when nothing is live. Returns false when the thread must end.
bool Engine::Impl::DrainMailbox(std::deque<Request>& submitted, std::vector<RequestId>& cancelled) {
  std::unique_lock lock(mutex);
  if (!core.has_work() && submissions.empty()) {
    is_asleep = true;
    is_idle.notify_all();
    has_mail.wait(lock, [this] { return is_stopping || !submissions.empty() || !cancellations.empty(); });
  }
  is_asleep = false;
  std::swap(submitted, submissions);
  std::swap(cancelled, cancellations);
  const bool must_end = is_stopping;
  const bool abort_now = must_abort || is_stopping;
  must_abort = false;
  lock.unlock();
  const Clock::time_point now = Clock::now();
  for (Request& request : submitted) core.Add(std::move(request), now);
  submitted.clear();
  for (RequestId id : cancelled) core.Cancel(id);
  cancelled.clear();
  if (abort_now) core.AbortAll();
  return !must_end;
}

void Engine::Impl::PublishEvents(std::vector<RequestEvent>& events) {
  core.TakeEvents(events);
  int64_t ended = 0;
  for (const RequestEvent& event : events) ended += event.finish.has_value();
  num_live.fetch_sub(ended, std::memory_order_relaxed);
  if (!events.empty()) sink.OnEvents(events);
}

void Engine::Impl::Loop() {
  std::deque<Request> submitted;
  std::vector<RequestId> cancelled;
  std::vector<RequestEvent> events;
  double step_seconds = 0;
  for (bool goes_on = true; goes_on;) {
    goes_on = DrainMailbox(submitted, cancelled);
    const Clock::time_point begin = Clock::now();
    if (goes_on) core.Step(begin);
    PublishEvents(events);
    step_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    if (core.num_live() == 0) core.CheckIdle();
    EngineStats stats = core.stats();
    stats.step_seconds = step_seconds;
    const std::lock_guard lock(mutex);
    published = stats;
  }
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->is_stopping = true;
    impl_->is_draining = true;
  }
  impl_->has_mail.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, model::StepRunner& runner, EventSink& sink) {
  const model::RunnerShape& shape = runner.shape();
  if (options.max_num_seqs < 1) return FailParam("max_num_seqs", "--max-num-seqs must be at least 1, got {}", options.max_num_seqs);
  if (options.max_num_seqs > shape.num_slots) {
    return FailParam("max_num_seqs", "--max-num-seqs {} is more than the {} state slots", options.max_num_seqs, shape.num_slots);
  }
  if (options.max_num_seqs > shape.max_logit_rows) {
    return FailParam("max_num_seqs", "--max-num-seqs {} is more than the {} rows of logits of a step", options.max_num_seqs,
                     shape.max_logit_rows);
  }
  if (options.num_drafts < 0 || options.num_drafts > std::min(limits::kDraftsMax, shape.max_drafts)) {
    return FailParam("speculative_config", "num_speculative_tokens {} is outside 0 to {}", options.num_drafts,
                     std::min(limits::kDraftsMax, shape.max_drafts));
  }
  if (options.max_num_batched_tokens < 1 || options.max_num_batched_tokens > shape.max_rows) {
    return FailParam("max_num_batched_tokens", "--max-num-batched-tokens {} is outside 1 to {}", options.max_num_batched_tokens,
                     shape.max_rows);
  }
  if (options.max_model_len < 1 || options.max_model_len > shape.max_context) {
    return FailParam("max_model_len", "--max-model-len {} is outside 1 to {}", options.max_model_len, shape.max_context);
  }
  if (options.vocab_size < 1 || options.vocab_size > shape.vocab_rows) {
    return Fail(Errc::kInvalidArgument, "the tokenizer has {} ids, the model {} vocabulary rows", options.vocab_size, shape.vocab_rows);
  }
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(options, runner, sink, runner.num_workers())));
}

void Engine::Start() {
  CHECK(!impl_->thread.joinable(), "the engine is started twice");
  impl_->thread = std::thread([this] { impl_->Loop(); });
}

Result<void> Engine::Submit(Request request) {
  AVOCET_TRY_VOID(EngineCore::Validate(impl_->options, impl_->shape, request));
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->is_draining) return Fail(Errc::kResourceExhausted, "the server is shutting down");
    // WAIT-1: every queue is bounded.
    if (impl_->submissions.size() >= static_cast<size_t>(limits::kMailboxMax)) {
      return Fail(Errc::kResourceExhausted, "{} requests wait to be read by the engine, no more are taken", impl_->submissions.size());
    }
    const int64_t live = impl_->num_live.load(std::memory_order_relaxed);
    if (impl_->options.max_waiting > 0 && live >= int64_t{impl_->options.max_num_seqs} + impl_->options.max_waiting) {
      return Fail(Errc::kResourceExhausted, "{} requests are queued or running, the limit is {} running and {} queued", live,
                  impl_->options.max_num_seqs, impl_->options.max_waiting);
    }
    impl_->num_live.fetch_add(1, std::memory_order_relaxed);
    impl_->submissions.push_back(std::move(request));
  }
  impl_->has_mail.notify_one();
  return {};
}

void Engine::Cancel(RequestId id) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->cancellations.push_back(id);
  }
  impl_->has_mail.notify_one();
}

void Engine::Drain(Clock::time_point deadline) {
  std::unique_lock lock(impl_->mutex);
  impl_->is_draining = true;
  if (!impl_->thread.joinable()) return;  // never started: the destructor's business
  const auto is_idle = [this] { return impl_->is_asleep && impl_->submissions.empty(); };
  if (!impl_->is_idle.wait_until(lock, deadline, is_idle)) {
    impl_->must_abort = true;
    impl_->is_idle.wait(lock, is_idle);
  }
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->published;
}

bool Engine::is_healthy() const {
  return impl_->thread.joinable();
}

}  // namespace avocet::engine
