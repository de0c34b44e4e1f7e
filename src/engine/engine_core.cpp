#include "engine/engine_core.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace avocet::engine {
namespace {

using Seconds = std::chrono::duration<double>;

// SEQ-1
void CheckCounters(const Sequence& s) {
  CHECK(0 <= s.num_computed && 0 <= s.num_planned && s.num_computed + s.num_planned <= s.num_known(),
        "SEQ-1: sequence {} has {} computed, {} planned, {} known", s.request.id, s.num_computed, s.num_planned, s.num_known());
}

Result<void> CheckIds(std::span<const int32_t> ids, int32_t vocab_size, const char* field) {
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab_size)
      return FailParam(field, "{} contains token id {}, the vocabulary has ids 0 to {}", field, id, vocab_size - 1);
  }
  return {};
}

Result<void> CheckRange(float value, float low, float high, const char* field) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return FailParam(field, "{} must be from {} to {}, got {}", field, low, high, value);
}

Result<void> ValidateSampling(const SamplingParams& p, int32_t vocab_size) {
  constexpr float kLarge = 3e38f;
  AVOCET_TRY_VOID(CheckRange(p.temperature, 0, kLarge, "temperature"));
  if (!(p.top_p > 0 && p.top_p <= 1)) return FailParam("top_p", "top_p must be above 0 and at most 1, got {}", p.top_p);
  if (p.top_k < -1) return FailParam("top_k", "top_k must be -1, 0 (all) or positive, got {}", p.top_k);
  AVOCET_TRY_VOID(CheckRange(p.min_p, 0, 1, "min_p"));
  AVOCET_TRY_VOID(CheckRange(p.presence_penalty, -2, 2, "presence_penalty"));
  AVOCET_TRY_VOID(CheckRange(p.frequency_penalty, -2, 2, "frequency_penalty"));
  if (!(std::isfinite(p.repetition_penalty) && p.repetition_penalty > 0)) {
    return FailParam("repetition_penalty", "repetition_penalty must be above 0, got {}", p.repetition_penalty);
  }
  for (const auto& [token, bias] : p.logit_bias) {
    AVOCET_TRY_VOID(CheckIds({&token, 1}, vocab_size, "logit_bias"));
    if (!std::isfinite(bias)) return FailParam("logit_bias", "logit_bias of token {} is not a number", token);
  }
  AVOCET_TRY_VOID(CheckIds(p.allowed_token_ids, vocab_size, "allowed_token_ids"));
  for (const std::vector<int32_t>& word : p.bad_words) AVOCET_TRY_VOID(CheckIds(word, vocab_size, "bad_words"));
  if (p.min_tokens < 0 || p.min_tokens > p.max_tokens) {
    return FailParam("min_tokens", "min_tokens must be from 0 to max_tokens ({}), got {}", p.max_tokens, p.min_tokens);
  }
  return {};
}

}  // namespace

Result<void> EngineCore::Validate(const EngineOptions& options, const model::RunnerShape& shape, const Request& request) {
  if (request.prompt.empty()) return FailParam("prompt", "the prompt has no tokens");
  AVOCET_TRY_VOID(CheckIds(request.prompt, options.vocab_size, "prompt"));
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t output = request.sampling.max_tokens;
  if (output < 1) return FailParam("max_tokens", "max_tokens must be at least 1, got {}", output);
  if (prompt + output > options.max_model_len) {
    return FailParam("input_tokens",
                     "This model's maximum context length is {} tokens. However, you requested {} output tokens and your prompt contains "
                     "{} input tokens "
                     "({} in total). Please reduce the length of the input prompt or the number of requested output tokens.",
                     options.max_model_len, output, prompt, prompt + output);
  }
  const int64_t cache_tokens = int64_t{shape.num_pages} * shape.page_tokens;
  if (prompt + output > cache_tokens) {
    return FailParam("input_tokens",
                     "the request needs {} cached tokens ({} prompt, {} output), the whole cache holds {}; raise --kv-cache-memory-bytes",
                     prompt + output, prompt, output, cache_tokens);
  }
  return ValidateSampling(request.sampling, options.vocab_size);
}

EngineCore::EngineCore(const EngineOptions& options, model::StepRunner& runner, int32_t num_workers)
    : options_(options),
      runner_(runner),
      cache_(runner.shape()),
      scheduler_(options, runner.shape(), cache_),
      sampler_(options.kernels != nullptr ? *options.kernels : ops::kRefKernels, runner.shape().vocab_rows, options.vocab_size),
      drafter_(options_, runner, cache_) {
  const model::RunnerShape& shape = runner.shape();
  limits_ = {.max_rows = shape.max_rows,
             .max_logit_rows = shape.max_logit_rows,
             .vocab_rows = shape.vocab_rows,
             .num_pages = shape.num_pages,
             .num_slots = shape.num_slots,
             .page_tokens = shape.page_tokens,
             .max_context = shape.max_context,
             .max_drafts = shape.max_drafts};
  for (int32_t i = 0; i < num_workers; ++i) scratches_.push_back(sampler_.MakeScratch());
  const auto seats = static_cast<size_t>(options.max_num_seqs);
  samples_.resize(seats * (static_cast<size_t>(options.num_drafts) + 1));
  planned_.reserve(seats);
  events_.reserve(seats);
  plan_.sequences.reserve(seats);
  plan_.token_ids.reserve(static_cast<size_t>(shape.max_rows));
  plan_.positions.reserve(static_cast<size_t>(shape.max_rows) * 3);
  plan_.logit_rows.reserve(static_cast<size_t>(shape.max_logit_rows));
  plan_.pages.reserve(static_cast<size_t>(shape.num_pages));
}

void EngineCore::Add(Request request, Clock::time_point now) {
  auto sequence = std::make_unique<Sequence>();
  Sequence& s = *sequence;
  s.request = std::move(request);
  s.order = next_order_++;
  // Reserved once: a step appends without allocating (MEM-1).
  s.tokens.reserve(s.request.prompt.size() + static_cast<size_t>(s.request.sampling.max_tokens));
  s.tokens.assign(s.request.prompt.begin(), s.request.prompt.end());
  s.pages.reserve(static_cast<size_t>(cache_.PagesFor(s.num_prompt() + s.request.sampling.max_tokens)));
  s.drafts.reserve(static_cast<size_t>(options_.num_drafts));
  ReserveCounts(s);
  s.seed = s.request.sampling.seed ? *s.request.sampling.seed : options_.seed * 0x9e3779b97f4a7c15u + s.request.id;
  if (s.request.sampling.repetition_penalty != 1.0f) {
    s.prompt_ids = s.request.prompt;
    std::ranges::sort(s.prompt_ids);
    const auto repeated = std::ranges::unique(s.prompt_ids);
    s.prompt_ids.erase(repeated.begin(), repeated.end());
  }
  if (s.wants_prompt_logprobs()) s.prompt_logprobs.emplace_back(std::nullopt);
  s.times.arrival = s.request.arrival == Clock::time_point{} ? now : s.request.arrival;
  if (s.request.deadline) ++num_with_deadline_;
  scheduler_.AddWaiting(&s);
  const RequestId id = s.request.id;
  const bool is_new = live_.emplace(id, std::move(sequence)).second;
  CHECK(is_new, "SEQ-2: request id {} is live already", id);
}

void EngineCore::Cancel(RequestId id) {
  const auto found = live_.find(id);
  if (found != live_.end()) End(*found->second, FinishReason::kAbort, {});
}

void EngineCore::AbortAll() {
  while (!live_.empty()) End(*live_.begin()->second, FinishReason::kAbort, {});
}

void EngineCore::EndOverdue(Clock::time_point now) {
  if (num_with_deadline_ == 0) return;
  overdue_.clear();
  for (const auto& [id, sequence] : live_) {
    if (sequence->request.deadline && *sequence->request.deadline <= now) overdue_.push_back(id);
  }
  std::ranges::sort(overdue_);  // the order of events does not depend on the hash table
  for (RequestId id : overdue_) End(*live_.at(id), FinishReason::kError, "the request's deadline passed before it was finished");
}

void EngineCore::Step(Clock::time_point now) {
  EndOverdue(now);
  if (live_.empty()) return;
  if (!scheduler_.Plan(plan_, planned_)) {
    FailIfStuck();
    return;
  }
  plan_.step_id = ++totals_.steps;
  const auto valid = model::ValidatePlan(plan_, limits_);
  CHECK(valid.has_value(), "PLAN-2: step {}: {}", plan_.step_id, valid.error().message);
  for (const PlannedSequence& p : planned_) {
    CheckCounters(*p.sequence);
    if (p.sequence->times.first_scheduled == Clock::time_point{}) p.sequence->times.first_scheduled = now;
  }
  const Clock::time_point begin = Clock::now();
  runner_.Run(plan_, [this](device::Worker& worker) { SampleRows(worker); });
  totals_.model_seconds += Seconds(Clock::now() - begin).count();
  const Clock::time_point after = now + (Clock::now() - begin);
  for (PlannedSequence& p : planned_) Finish(p, after);
  drafter_.Run(planned_, Seconds(after - now).count());
}

// Sampling and scoring, sequences shared out over the workers.
void EngineCore::SampleRows(device::Worker& worker) {
  const auto [begin, end] = worker.Share(static_cast<int32_t>(planned_.size()));
  Sampler::Scratch& scratch = scratches_[static_cast<size_t>(worker.id())];
  const MatView<float> logits = runner_.logits();
  for (int32_t i = begin; i < end; ++i) {
    PlannedSequence& p = planned_[static_cast<size_t>(i)];
    Sequence& s = *p.sequence;
    for (int32_t j = 0; j < p.num_scored; ++j) {
      const int32_t next_token = s.tokens[static_cast<size_t>(p.first_scored + j + 1)];
      TokenLogprobs& scored = s.prompt_logprobs.emplace_back(std::in_place).value();
      sampler_.Score(logits.row_span(p.logit_begin + j), next_token, s.request.prompt_logprobs, scored);
    }
    if (p.is_sampled) SampleTokens(p, scratch);
  }
}

std::span<SampleResult> EngineCore::SamplesOf(const PlannedSequence& planned) {
  const auto width = static_cast<size_t>(options_.num_drafts) + 1;
  return std::span(samples_).subspan(static_cast<size_t>(&planned - planned_.data()) * width, width);
}

// A draft is accepted when it is the token that its row's logits and draw give anyway: with a draft that is one token, this is rejection
// sampling, and the tokens are those of a run without drafts, bit for bit (NUM-1). Each row sees those before it as generated.
void EngineCore::SampleTokens(PlannedSequence& p, Sampler::Scratch& scratch) {
  Sequence& s = *p.sequence;
  const MatView<float> logits = runner_.logits();
  const std::span<SampleResult> samples = SamplesOf(p);
  for (int32_t j = 0; j <= p.num_drafts; ++j) {
    SampleResult& sample = samples[static_cast<size_t>(j)];
    sampler_.Sample(s, logits.row_span(p.logit_begin + p.num_scored + j), scratch, sample);
    s.tokens.push_back(sample.token);
    CountGenerated(s, sample.token);
    ++p.num_sampled;
    if (j == p.num_drafts || sample.token != s.drafts[static_cast<size_t>(j)] || CheckStop(s)) return;
  }
}

void EngineCore::Finish(PlannedSequence& planned, Clock::time_point now) {
  Sequence& s = *planned.sequence;
  const int32_t certain = planned.num_rows - planned.num_drafts;
  const int32_t accepted = planned.is_sampled ? planned.num_sampled - 1 : 0;
  CHECK(planned.is_sampled == (planned.num_sampled > 0), "SEQ-1: sequence {} was sampled and gained nothing", s.request.id);
  totals_.prompt_tokens += planned.is_prompt ? certain : certain - 1;
  s.num_computed += certain + accepted;
  s.num_planned = 0;
  s.num_pending = accepted;
  s.drafts.clear();
  CheckCounters(s);
  if (planned.num_drafts > 0) CountVerification(planned);
  if (!planned.is_sampled) return;
  AddTokens(s, SamplesOf(planned).first(static_cast<size_t>(planned.num_sampled)), now);
  const std::optional<Stop> stop = CheckStop(s);
  if (!stop) return;
  EventFor(s).stop_token = stop->stop_token;
  planned.sequence = nullptr;
  End(s, stop->reason, {});
}

void EngineCore::CountVerification(const PlannedSequence& planned) {
  ++totals_.num_verifications;
  totals_.num_draft_tokens += planned.num_drafts;
  totals_.num_accepted_tokens += planned.num_sampled - 1;
  for (int32_t i = 0; i + 1 < planned.num_sampled; ++i) ++totals_.num_accepted_at[static_cast<size_t>(i)];
}

// What the step sampled, to the client.
void EngineCore::AddTokens(Sequence& s, std::span<SampleResult> samples, Clock::time_point now) {
  totals_.generation_tokens += static_cast<int64_t>(samples.size());
  if (s.times.first_token == Clock::time_point{}) s.times.first_token = now;
  s.times.last_token = now;
  RequestEvent& event = EventFor(s);
  for (SampleResult& sample : samples) {
    OutputToken& token = event.tokens.emplace_back();
    token.id = sample.token;
    if (s.request.logprobs >= 0) token.logprobs = std::move(sample.logprobs);
  }
  if (s.wants_prompt_logprobs() && !s.has_reported_prompt_logprobs) {
    event.prompt_logprobs = std::move(s.prompt_logprobs);
    s.has_reported_prompt_logprobs = true;
  }
}

std::optional<EngineCore::Stop> EngineCore::CheckStop(const Sequence& s) const {
  const SamplingParams& params = s.request.sampling;
  const int32_t token = s.tokens.back();
  if (s.num_generated() >= params.min_tokens) {
    const auto contains = [token](const std::vector<int32_t>& ids) { return std::ranges::find(ids, token) != ids.end(); };
    if (!params.ignore_eos && contains(params.eos_token_ids)) return Stop{FinishReason::kStop, std::nullopt};
    if (contains(params.stop_token_ids)) return Stop{FinishReason::kStop, token};
  }
  if (s.num_generated() >= params.max_tokens || s.num_known() >= options_.max_model_len) return Stop{FinishReason::kLength, std::nullopt};
  return std::nullopt;
}

// A request has at most one event between two TakeEvents.
RequestEvent& EngineCore::EventFor(const Sequence& s) {
  const auto found = std::ranges::find(events_, s.request.id, &RequestEvent::id);
  if (found != events_.end()) return *found;
  RequestEvent& event = events_.emplace_back();
  event.id = s.request.id;
  event.times = s.times;
  return event;
}

// SEQ-2: the one terminal event; the sequence is gone afterwards.
void EngineCore::End(Sequence& s, FinishReason reason, std::string error) {
  RequestEvent& event = EventFor(s);
  CHECK(!event.finish.has_value(), "SEQ-2: request {} ends twice", s.request.id);
  event.finish = reason;
  event.error = std::move(error);
  event.times = s.times;
  if (s.request.deadline) --num_with_deadline_;
  scheduler_.Remove(&s);
  live_.erase(s.request.id);
}

// PROG-1: nothing runs and nothing could be admitted. Validate makes this impossible for a request that fits the whole cache; should
// it happen all the same, the oldest request fails instead of the engine standing still.
void EngineCore::FailIfStuck() {
  Sequence* oldest = scheduler_.oldest_waiting();
  if (scheduler_.num_running() > 0 || oldest == nullptr) return;
  End(*oldest, FinishReason::kError,
      fmt::format("PROG-1: the request cannot be started: it needs {} cache pages and one state slot, {} pages and {} slots are free; "
                  "raise --kv-cache-memory-bytes",
                  cache_.PagesFor(oldest->num_known()), cache_.free_pages(), cache_.free_slots()));
}

void EngineCore::TakeEvents(std::vector<RequestEvent>& events) {
  events.clear();
  std::swap(events, events_);
}

EngineStats EngineCore::stats() const {
  EngineStats stats = totals_;
  stats.max_drafts = options_.num_drafts;
  stats.num_running = scheduler_.num_running();
  stats.num_waiting = scheduler_.num_waiting();
  stats.num_pages = cache_.num_pages();
  stats.free_pages = cache_.free_pages();
  stats.num_slots = cache_.num_slots();
  stats.free_slots = cache_.free_slots();
  stats.kv_cache_usage = 1.0 - static_cast<double>(stats.free_pages) / static_cast<double>(stats.num_pages);
  stats.preemptions = scheduler_.num_preemptions();
  return stats;
}

void EngineCore::CheckIdle() const {
  CHECK(live_.empty(), "SEQ-2: {} requests are live", live_.size());
  cache_.CheckConservation();
  CHECK(cache_.IsIdle(), "PAGE-1: nothing is live, {} of {} pages and {} of {} slots are free", cache_.free_pages(), cache_.num_pages(),
        cache_.free_slots(), cache_.num_slots());
}

}  // namespace avocet::engine
