#include "server/metrics.h"

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace avocet::server {

namespace {

using Boundaries = prometheus::Histogram::BucketBoundaries;

const Boundaries kFirstTokenBuckets{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560};
const Boundaries kInterTokenBuckets{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
const Boundaries kRequestBuckets{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Boundaries kHttpBuckets{.1, .5, 1};  // as the reference's instrumentation
const Boundaries kSampleCountBuckets{1, 2, 5, 10, 20};

// 1, 2, 5, 10, 20, 50 ... up to the longest sequence.
Boundaries TokenCountBuckets(int32_t max_model_len) {
  Boundaries buckets;
  for (double decade = 1; decade <= max_model_len; decade *= 10) {
    for (const double step : {1, 2, 5}) {
      if (step * decade <= max_model_len) buckets.push_back(step * decade);
    }
  }
  return buckets;
}

double Seconds(engine::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

bool IsSet(engine::Clock::time_point time) {
  return time != engine::Clock::time_point{};
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(const ServerOptions& options) : labels{{"model_name", options.served_model_names.front()}, {"engine", "0"}} {}

  prometheus::Histogram& Histogram(const std::string& name, const std::string& help, const Boundaries& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry).Add({}, buckets);
  }
  prometheus::Counter& Counter(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry).Add({});
  }
  prometheus::MetricFamily Snapshot(std::string name, std::string help, prometheus::MetricType type, double value) const;

  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> cache_config;
  bool has_engine_metrics = false;
  mutable prometheus::Registry registry;
  prometheus::Counter* prompt_tokens = nullptr;
  prometheus::Counter* generation_tokens = nullptr;
  std::array<prometheus::Counter*, 4> success{};  // by FinishReason
  prometheus::Histogram* first_token = nullptr;
  prometheus::Histogram* inter_token = nullptr;
  prometheus::Histogram* time_per_token = nullptr;
  prometheus::Histogram* e2e = nullptr;
  prometheus::Histogram* queue = nullptr;
  prometheus::Histogram* inference = nullptr;
  prometheus::Histogram* prefill = nullptr;
  prometheus::Histogram* decode = nullptr;
  prometheus::Histogram* request_prompt_tokens = nullptr;
  prometheus::Histogram* request_generation_tokens = nullptr;
  prometheus::Histogram* request_max_generation_tokens = nullptr;
  prometheus::Histogram* params_max_tokens = nullptr;
  prometheus::Histogram* params_n = nullptr;
  prometheus::Family<prometheus::Counter>* http_requests = nullptr;
  prometheus::Family<prometheus::Histogram>* http_seconds = nullptr;
};

prometheus::MetricFamily Metrics::Impl::Snapshot(std::string name, std::string help, prometheus::MetricType type, double value) const {
  prometheus::ClientMetric metric;
  for (const auto& [key, label] : labels) metric.label.push_back({key, label});
  metric.gauge.value = metric.counter.value = value;
  return {std::move(name), std::move(help), type, {std::move(metric)}};
}

Metrics::Metrics(const ServerOptions& options) : impl_(std::make_unique<Impl>(options)) {
  Impl& m = *impl_;
  m.http_requests =
      &prometheus::BuildCounter().Name("http_requests_total").Help("Answers by method, status and route.").Register(m.registry);
  m.http_seconds = &prometheus::BuildHistogram()
                        .Name("http_request_duration_seconds")
                        .Help("Seconds from the arrival of a request to the status of its answer.")
                        .Register(m.registry);
  m.has_engine_metrics = options.log_stats;
  m.cache_config = options.cache_config;
  if (!options.log_stats) return;
  m.prompt_tokens = &m.Counter("vllm:prompt_tokens_total", "Prompt tokens of requests that produced a token.");
  m.generation_tokens = &m.Counter("vllm:generation_tokens_total", "Tokens produced.");
  auto& success =
      prometheus::BuildCounter().Name("vllm:request_success_total").Help("Ended requests by reason.").Labels(m.labels).Register(m.registry);
  for (const auto reason :
       {engine::FinishReason::kStop, engine::FinishReason::kLength, engine::FinishReason::kAbort, engine::FinishReason::kError}) {
    constexpr std::array<const char*, 4> kNames{"stop", "length", "abort", "error"};
    m.success[static_cast<size_t>(reason)] = &success.Add({{"finished_reason", kNames[static_cast<size_t>(reason)]}});
  }
  m.first_token = &m.Histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", kFirstTokenBuckets);
  m.inter_token = &m.Histogram("vllm:inter_token_latency_seconds", "Between successive outputs of a request.", kInterTokenBuckets);
  m.time_per_token =
      &m.Histogram("vllm:request_time_per_output_token_seconds", "Decode time of a request per token after the first.", kInterTokenBuckets);
  m.e2e = &m.Histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", kRequestBuckets);
  m.queue = &m.Histogram("vllm:request_queue_time_seconds", "From arrival to the first step.", kRequestBuckets);
  m.inference = &m.Histogram("vllm:request_inference_time_seconds", "From the first step to the last token.", kRequestBuckets);
  m.prefill = &m.Histogram("vllm:request_prefill_time_seconds", "From the first step to the first token.", kRequestBuckets);
  m.decode = &m.Histogram("vllm:request_decode_time_seconds", "From the first token to the last.", kRequestBuckets);
  const Boundaries token_counts = TokenCountBuckets(options.max_model_len);
  m.request_prompt_tokens = &m.Histogram("vllm:request_prompt_tokens", "Prompt tokens per request.", token_counts);
  m.request_generation_tokens = &m.Histogram("vllm:request_generation_tokens", "Tokens produced per request.", token_counts);
  m.request_max_generation_tokens =
      &m.Histogram("vllm:request_max_num_generation_tokens", "Most tokens produced by one choice of a request.", token_counts);
  m.params_max_tokens = &m.Histogram("vllm:request_params_max_tokens", "The limit on output tokens per request.", token_counts);
  m.params_n = &m.Histogram("vllm:request_params_n", "The parameter n per request.", kSampleCountBuckets);
}

Metrics::~Metrics() = default;

void Metrics::ObserveFirstToken(double seconds, int32_t num_prompt_tokens) {
  if (!impl_->has_engine_metrics) return;
  impl_->first_token->Observe(seconds);
  impl_->prompt_tokens->Increment(num_prompt_tokens);
}

void Metrics::ObserveInterToken(double seconds) {
  if (impl_->has_engine_metrics) impl_->inter_token->Observe(seconds);
}

void Metrics::AddOutputTokens(int32_t count) {
  if (impl_->has_engine_metrics) impl_->generation_tokens->Increment(count);
}

void Metrics::ObserveRequest(int32_t n) {
  if (impl_->has_engine_metrics) impl_->params_n->Observe(n);
}

void Metrics::ObserveSequence(const SequenceSummary& sequence) {
  if (!impl_->has_engine_metrics) return;
  Impl& m = *impl_;
  const engine::RequestTimes& times = sequence.times;
  m.success[static_cast<size_t>(sequence.finish)]->Increment();
  m.request_prompt_tokens->Observe(sequence.num_prompt_tokens);
  m.request_generation_tokens->Observe(sequence.num_output_tokens);
  m.request_max_generation_tokens->Observe(sequence.num_output_tokens);
  m.params_max_tokens->Observe(sequence.max_tokens);
  m.e2e->Observe(Seconds(sequence.ended - times.arrival));
  if (!IsSet(times.first_scheduled)) return;
  m.queue->Observe(Seconds(times.first_scheduled - times.arrival));
  if (!IsSet(times.first_token) || !IsSet(times.last_token)) return;
  m.prefill->Observe(Seconds(times.first_token - times.first_scheduled));
  m.inference->Observe(Seconds(times.last_token - times.first_scheduled));
  const double decode_s = Seconds(times.last_token - times.first_token);
  m.decode->Observe(decode_s);
  if (sequence.num_output_tokens > 1) m.time_per_token->Observe(decode_s / (sequence.num_output_tokens - 1));
}

void Metrics::ObserveHttp(std::string_view method, std::string_view handler, int status, double seconds) {
  const std::map<std::string, std::string> labels{{"method", std::string(method)}, {"handler", std::string(handler)}};
  auto with_status = labels;
  with_status["status"] = fmt::format("{}xx", status / 100);
  impl_->http_requests->Add(with_status).Increment();
  impl_->http_seconds->Add(labels, kHttpBuckets).Observe(seconds);
}

void Metrics::AddDraftFamilies(const engine::EngineStats& stats, std::vector<prometheus::MetricFamily>& families) const {
  const auto add = [&](const char* name, const char* help, int64_t value) -> prometheus::MetricFamily& {
    return families.emplace_back(impl_->Snapshot(name, help, prometheus::MetricType::Counter, static_cast<double>(value)));
  };
  add("vllm:spec_decode_num_drafts_total", "Verifications of at least one draft token.", stats.num_verifications);
  add("vllm:spec_decode_num_draft_tokens_total", "Draft tokens verified.", stats.num_draft_tokens);
  add("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens accepted.", stats.num_accepted_tokens);
  prometheus::MetricFamily& places =
      add("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Verifications that accepted the draft of this position.", 0);
  const prometheus::ClientMetric base = places.metric.front();
  places.metric.clear();
  for (int32_t i = 0; i < stats.max_drafts; ++i) {
    places.metric.push_back(base);
    places.metric.back().label.push_back({"position", std::to_string(i)});
    places.metric.back().counter.value = static_cast<double>(stats.num_accepted_at[static_cast<size_t>(i)]);
  }
}

std::string Metrics::Serialize(const std::optional<engine::EngineStats>& stats) const {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  if (stats.has_value() && impl_->has_engine_metrics) {
    const Impl& m = *impl_;
    families.push_back(m.Snapshot("vllm:num_requests_running", "Requests in the running batch.", MetricType::Gauge,
                                  static_cast<double>(stats->num_running)));
    families.push_back(m.Snapshot("vllm:num_requests_waiting", "Requests waiting to be scheduled.", MetricType::Gauge,
                                  static_cast<double>(stats->num_waiting)));
    families.push_back(
        m.Snapshot("vllm:kv_cache_usage_perc", "Share of the K/V pages in use; 1 is all.", MetricType::Gauge, stats->kv_cache_usage));
    families.push_back(m.Snapshot("vllm:num_preemptions_total", "Times a running request lost its pages.", MetricType::Counter,
                                  static_cast<double>(stats->preemptions)));
    if (stats->max_drafts > 0) AddDraftFamilies(*stats, families);
    prometheus::MetricFamily config = m.Snapshot("vllm:cache_config_info", "The cache configuration, as labels.", MetricType::Gauge, 1);
    for (const auto& [key, value] : m.cache_config) config.metric.front().label.push_back({key, value});
    families.push_back(std::move(config));
    prometheus::MetricFamily sleep = m.Snapshot("vllm:engine_sleep_state", "1 for the state that the engine is in.", MetricType::Gauge, 0);
    const prometheus::ClientMetric base = sleep.metric.front();
    sleep.metric.clear();
    for (const char* state : {"awake", "weights_offloaded", "discard_all"}) {
      sleep.metric.push_back(base);
      sleep.metric.back().label.push_back({"sleep_state", state});
      sleep.metric.back().gauge.value = std::string_view(state) == "awake" ? 1 : 0;
    }
    families.push_back(std::move(sleep));
  }
  return prometheus::TextSerializer().Serialize(families);
}

std::optional<std::string> StatsLine::Next(const engine::EngineStats& stats, engine::Clock::time_point now) {
  const engine::EngineStats last = std::exchange(last_, stats);
  const std::optional<engine::Clock::time_point> last_time = std::exchange(last_time_, now);
  if (!last_time.has_value()) return std::nullopt;
  const double seconds = Seconds(now - *last_time);
  const bool is_active = stats.num_running > 0 || stats.num_waiting > 0 || stats.steps != last.steps;
  // One line more after the last activity, so that the log ends with zeros.
  if (!std::exchange(was_active_, is_active) && !is_active) return std::nullopt;
  if (seconds <= 0) return std::nullopt;
  const int64_t preemptions = stats.preemptions - last.preemptions;
  std::string drafts;
  if (const int64_t verified = stats.num_verifications - last.num_verifications; verified > 0) {
    const auto accepted = static_cast<double>(stats.num_accepted_tokens - last.num_accepted_tokens);
    const auto drafted = static_cast<double>(stats.num_draft_tokens - last.num_draft_tokens);
    std::string places;
    for (int32_t i = 0; i < stats.max_drafts; ++i) {
      const auto at = static_cast<size_t>(i);
      places += fmt::format("{}{:.3f}", i == 0 ? "" : ", ",
                            static_cast<double>(stats.num_accepted_at[at] - last.num_accepted_at[at]) / static_cast<double>(verified));
    }
    drafts = fmt::format(
        "\nSpecDecoding metrics: Mean acceptance length: {:.2f}, Accepted throughput: {:.2f} tokens/s, Drafted throughput: {:.2f} "
        "tokens/s, "
        "Accepted: {:.0f} tokens, Drafted: {:.0f} tokens, Per-position acceptance rate: {}, Avg Draft acceptance rate: {:.1f}%",
        1 + accepted / static_cast<double>(verified), accepted / seconds, drafted / seconds, accepted, drafted, places,
        100 * accepted / drafted);
  }
  return fmt::format(
      "Engine 000: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, Running: {} reqs, Waiting: {} reqs, "
      "{}GPU KV cache usage: {:.1f}%{}",
      static_cast<double>(stats.prompt_tokens - last.prompt_tokens) / seconds,
      static_cast<double>(stats.generation_tokens - last.generation_tokens) / seconds, stats.num_running, stats.num_waiting,
      preemptions > 0 ? fmt::format("Preemptions: {}, ", preemptions) : std::string(), stats.kv_cache_usage * 100, drafts);
}

}  // namespace avocet::server
