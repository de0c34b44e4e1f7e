#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <thread>

#include "base/log.h"
#include "cli/bench.h"
#include "cli/human_number.h"
#include "cli/machine_rates.h"

namespace avocet::cli {
namespace {

constexpr int32_t kDefaultInputLen = 32;
constexpr int32_t kDefaultOutputLen = 128;

// Random ids, as the reference draws them: below 10,000.
std::vector<BenchRequest> RandomBatch(const Options& options, int32_t vocab_size) {
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  std::uniform_int_distribution<int32_t> ids(0, std::min(10'000, vocab_size) - 1);
  std::vector<BenchRequest> requests(static_cast<size_t>(options.batch_size));
  for (BenchRequest& request : requests) {
    request.prompt.resize(static_cast<size_t>(options.input_len.value_or(kDefaultInputLen)));
    for (int32_t& id : request.prompt) id = ids(random);
    request.output_len = options.output_len.value_or(kDefaultOutputLen);
  }
  return requests;
}

struct Roof {
  double read_gb_per_s = 0;
  double step_bytes = 0;
  double share = 0;  // of the roof that a decode step reached
};

// Of the weights themselves, by the same workers. The engine is idle meanwhile.
double ReadRate(Assembly& assembly) {
  double rate = 0;
  const device::Arena& arena = assembly.model->weights().arena;
  std::thread([&] { rate = MeasureReadRate({arena.data(), arena.used_bytes()}, *assembly.pool); }).join();
  return rate;
}

// One iteration, and the roof around it: what memory gives changes by half within seconds where neighbours share it.
struct Iteration {
  double step_seconds = 0;
  double read_gb_per_s = 0;  // mean of before and after
};

// Medians over the iterations; those whose roof was far below the best are left out: a neighbour was at work.
Roof CompareWithRoof(const Options& options, const Assembly& assembly, const std::vector<Iteration>& iterations) {
  constexpr double kKeepAbove = 0.6;
  Roof roof;
  const int32_t batch = std::min(options.batch_size * options.n, assembly.plan.max_num_seqs);
  const double context = options.input_len.value_or(kDefaultInputLen) + options.output_len.value_or(kDefaultOutputLen) / 2.0;
  roof.step_bytes = DecodeStepBytes(assembly, batch, context);
  double best = 0;
  for (const Iteration& iteration : iterations) best = std::max(best, iteration.read_gb_per_s);
  std::vector<double> rates, shares;
  for (const Iteration& iteration : iterations) {
    if (iteration.read_gb_per_s < kKeepAbove * best || iteration.step_seconds <= 0) continue;
    rates.push_back(iteration.read_gb_per_s);
    shares.push_back(roof.step_bytes / 1e9 / iteration.read_gb_per_s / iteration.step_seconds);
  }
  if (rates.empty()) return roof;
  roof.read_gb_per_s = Percentile(rates, 50);
  roof.share = Percentile(shares, 50);
  return roof;
}

Result<void> Report(const Options& options, const std::vector<double>& latencies, const Roof& roof, double step_seconds) {
  const auto count = static_cast<double>(latencies.size());
  const double mean = std::accumulate(latencies.begin(), latencies.end(), 0.0) / count;
  const double square = std::accumulate(latencies.begin(), latencies.end(), 0.0,
                                        [mean](double sum, double value) { return sum + (value - mean) * (value - mean); });
  Json percentiles = Json::object();
  fmt::print("Avg latency: {} seconds\n", mean);
  for (const int percentage : {10, 25, 50, 75, 90, 99}) {
    const double value = Percentile(latencies, percentage);
    fmt::print("{}% percentile latency: {} seconds\n", percentage, value);
    percentiles[fmt::format("{}", percentage)] = value;
  }
  fmt::print("Decode step: {:.3f} ms, {:.1f}% of the read roof ({} per step at {:.1f} GB/s)\n", step_seconds * 1e3, roof.share * 100,
             FormatBytes(static_cast<size_t>(roof.step_bytes)), roof.read_gb_per_s);
  if (options.output_json.empty()) return {};
  Json result = Json::object();
  result["avg_latency"] = mean;
  result["std_latency"] = std::sqrt(square / count);
  result["latencies"] = latencies;
  result["percentiles"] = percentiles;
  result["avocet"] = {{"decode_step_seconds", step_seconds},
                      {"decode_step_bytes", roof.step_bytes},
                      {"read_roof_gb_per_s", roof.read_gb_per_s},
                      {"read_roof_share", roof.share}};
  return WriteJsonFile(options.output_json, result);
}

Result<void> Run(const CommandLine& line, const Environment& environment) {
  Options options = line.options;
  if (options.max_model_len == 0) options.max_model_len = -1;
  AVOCET_TRY(const std::unique_ptr<Assembly> assembly, AssembleForBench(line, options, environment));
  std::vector<double> latencies, steps;
  std::vector<Iteration> iterations;
  {
    AVOCET_TRY(const std::unique_ptr<BenchEngine> bench, BenchEngine::Create(options, *assembly));
    const std::vector<BenchRequest> requests = RandomBatch(options, EngineOptionsFor(options, *assembly).vocab_size);
    fmt::print("Warming up...\n");
    for (int32_t i = 0; i < options.num_iters_warmup; ++i) AVOCET_TRY_VOID(bench->Run(requests, options.n));
    double before = ReadRate(*assembly);
    for (int32_t i = 0; i < options.num_iters; ++i) {
      AVOCET_TRY(const BenchRun run, bench->Run(requests, options.n));
      const double after = ReadRate(*assembly);
      latencies.push_back(run.seconds);
      steps.push_back(run.decode_step_seconds);
      iterations.push_back({run.decode_step_seconds, (before + after) / 2});
      before = after;
    }
  }
  return Report(options, latencies, CompareWithRoof(options, *assembly, iterations), Percentile(steps, 50));
}

}  // namespace

int BenchLatency(const CommandLine& line, const Environment& environment) {
  const Result<void> done = Run(line, environment);
  if (done) return 0;
  LogError("{}", done.error().message);
  return 1;
}

}  // namespace avocet::cli
