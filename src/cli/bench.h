// avocet bench latency and throughput: the engine in this process, fed with token ids; flags, lines and JSON of vllm bench.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/assembly.h"
#include "cli/command_line.h"
#include "cli/environment.h"
#include "cli/event_queue.h"
#include "cli/json_text.h"

namespace avocet::cli {

// The exit code. Errors are logged in one line.
int BenchLatency(const CommandLine& line, const Environment& environment);
int BenchThroughput(const CommandLine& line, const Environment& environment);

// One request of a measurement: the end of text is ignored, so exactly output_len tokens come.
struct BenchRequest {
  std::vector<int32_t> prompt;
  int32_t output_len = 0;
};

// What a batch of requests took.
struct BenchRun {
  double seconds = 0;
  int64_t num_output_tokens = 0;
  // Mean over the requests of (last token - first token) / (tokens - 1): a decode step at this concurrency. 0: answers of one token.
  double decode_step_seconds = 0;
};

// An engine over the assembly for as long as a measurement lasts.
class BenchEngine {
 public:
  static Result<std::unique_ptr<BenchEngine>> Create(const Options& options, const Assembly& assembly);

  // Submits all, `copies` times each, and waits for all; detokenises the answers inside the measured time where asked for.
  Result<BenchRun> Run(std::span<const BenchRequest> requests, int32_t copies);

 private:
  BenchEngine(const Options& options, const Assembly& assembly) : options_(options), assembly_(assembly) {}
  Result<void> CheckLengths(std::span<const BenchRequest> requests) const;
  // From number `*next` on, until all are submitted or the engine's mailbox is full.
  Result<void> SubmitSome(std::span<const BenchRequest> requests, int32_t copies, size_t* next);

  const Options& options_;
  const Assembly& assembly_;
  EventQueue events_;
  std::unique_ptr<engine::Engine> engine_;
  engine::RequestId next_id_ = 1;
};

// Value at `percentage` of the sorted values, linear between neighbours (as numpy.percentile).
double Percentile(std::vector<double> values, double percentage);

// Bytes that a decode step of `batch` sequences reads and writes at the least: weights, K/V of `context` positions, states.
// For experts: the distinct ones that random rows would choose.
double DecodeStepBytes(const Assembly& assembly, int32_t batch, double context);

Result<void> WriteJsonFile(const std::string& path, const Json& json);
// Loads and says on stderr what runs: model, kernels, what has no effect.
Result<std::unique_ptr<Assembly>> AssembleForBench(const CommandLine& line, const Options& options, const Environment& environment);

}  // namespace avocet::cli
