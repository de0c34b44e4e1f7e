// What /metrics shows under the vllm: names (serving.md 9.1), and the periodic log line (9.2). Gauges come from the engine's counters
// at the moment of a scrape; histograms and counters of requests are kept here, from what the server sees.
// Any thread may observe and serialise.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <prometheus/metric_family.h>

#include "engine/engine.h"
#include "engine/request.h"
#include "server/server_options.h"

namespace avocet::server {

// One sequence that has ended, for the histograms that are observed once.
struct SequenceSummary {
  engine::FinishReason finish = engine::FinishReason::kStop;
  engine::RequestTimes times;  // as far as they were reached; a zero time point was not
  engine::Clock::time_point ended;
  int32_t num_prompt_tokens = 0;
  int32_t num_output_tokens = 0;
  int32_t max_tokens = 0;
};

class Metrics {
 public:
  // options: for labels and bounds of the histograms; borrowed.
  explicit Metrics(const ServerOptions& options);
  ~Metrics();

  void ObserveFirstToken(double seconds, int32_t num_prompt_tokens);  // since the arrival
  void ObserveInterToken(double seconds);
  void AddOutputTokens(int32_t count);
  void ObserveSequence(const SequenceSummary& sequence);
  void ObserveRequest(int32_t n);
  void ObserveHttp(std::string_view method, std::string_view handler, int status, double seconds);

  // Prometheus text. stats: absent with --disable-log-stats.
  std::string Serialize(const std::optional<engine::EngineStats>& stats) const;

 private:
  void AddDraftFamilies(const engine::EngineStats& stats, std::vector<prometheus::MetricFamily>& families) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Rates between two looks at the counters. Owner: one thread.
class StatsLine {
 public:
  // The line, or nothing when the engine did nothing since the last call and nothing is waiting.
  std::optional<std::string> Next(const engine::EngineStats& stats, engine::Clock::time_point now);

 private:
  engine::EngineStats last_;
  std::optional<engine::Clock::time_point> last_time_;
  bool was_active_ = false;
};

}  // namespace avocet::server
