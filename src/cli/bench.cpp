#include "cli/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "cli/human_number.h"
#include "cli/start_report.h"

namespace avocet::cli {
namespace {

using Clock = std::chrono::steady_clock;

size_t BytesOf(const ops::PackedWeight& weight) {
  return weight.out_features == 0 ? 0 : ops::PackedBytes(weight.format, weight.out_features, weight.in_features);
}

struct ExpertBytes {
  size_t all = 0;
  size_t chosen = 0;  // distinct ones of a step
};

ExpertBytes ExpertsOf(const model::ModelWeights& weights, const model::ModelConfig& config, int32_t batch) {
  ExpertBytes bytes;
  if (!config.moe) return bytes;
  const double share = static_cast<double>(config.moe->top_k) / config.moe->num_experts;
  const double distinct_share = 1 - std::pow(1 - share, batch);
  for (const model::LayerWeights& layer : weights.layers) {
    const auto* moe = std::get_if<model::MoeWeights>(&layer.mlp);
    if (moe == nullptr) continue;
    size_t all = 0;
    for (const ops::PackedWeight& weight : moe->expert_gate_up) all += BytesOf(weight);
    for (const ops::PackedWeight& weight : moe->expert_down) all += BytesOf(weight);
    bytes.all += all;
    bytes.chosen += static_cast<size_t>(static_cast<double>(all) * distinct_share);
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<BenchEngine>> BenchEngine::Create(const Options& options, const Assembly& assembly) {
  std::unique_ptr<BenchEngine> bench(new BenchEngine(options, assembly));
  AVOCET_TRY(bench->engine_, engine::Engine::Create(EngineOptionsFor(options, assembly), *assembly.model, bench->events_));
  bench->engine_->Start();
  return bench;
}

Result<void> BenchEngine::CheckLengths(std::span<const BenchRequest> requests) const {
  for (const BenchRequest& request : requests) {
    if (static_cast<int64_t>(request.prompt.size()) + request.output_len <= assembly_.plan.max_model_len) continue;
    return Fail(Errc::kInvalidArgument, "a request of {} + {} tokens is longer than the context of {}; raise --max-model-len",
                request.prompt.size(), request.output_len, assembly_.plan.max_model_len);
  }
  return {};
}

Result<void> BenchEngine::SubmitSome(std::span<const BenchRequest> requests, int32_t copies, size_t* next) {
  for (const size_t end = requests.size() * static_cast<size_t>(copies); *next < end; ++*next) {
    const BenchRequest& request = requests[*next / static_cast<size_t>(copies)];
    engine::Request submitted;
    submitted.id = next_id_++;
    submitted.prompt = request.prompt;
    submitted.sampling.ignore_eos = true;
    submitted.sampling.max_tokens = request.output_len;
    submitted.arrival = Clock::now();
    const Result<void> taken = engine_->Submit(std::move(submitted));
    if (!taken && taken.error().code == Errc::kResourceExhausted && *next > 0) return {};
    AVOCET_TRY_VOID(taken);
  }
  return {};
}

Result<BenchRun> BenchEngine::Run(std::span<const BenchRequest> requests, int32_t copies) {
  constexpr auto kPatience = std::chrono::milliseconds(1000);
  const bool keeps_tokens = !options_.disable_detokenize && assembly_.tokenizer != nullptr;
  std::unordered_map<engine::RequestId, std::vector<int32_t>> answers;
  std::unordered_map<engine::RequestId, int64_t> counts;
  BenchRun run;
  double steps_seconds = 0;
  int64_t num_steps = 0;

  AVOCET_TRY_VOID(CheckLengths(requests));
  const Clock::time_point start = Clock::now();
  size_t next = 0;
  for (size_t left = requests.size() * static_cast<size_t>(copies); left > 0;) {
    AVOCET_TRY_VOID(SubmitSome(requests, copies, &next));
    for (const engine::RequestEvent& event : events_.Take(kPatience)) {
      counts[event.id] += static_cast<int64_t>(event.tokens.size());
      if (keeps_tokens) {
        for (const engine::OutputToken& token : event.tokens) answers[event.id].push_back(token.id);
      }
      if (!event.finish) continue;
      --left;
      if (*event.finish == engine::FinishReason::kError) return Fail(Errc::kInternal, "{}", event.error);
      if (keeps_tokens) (void)assembly_.tokenizer->Decode(answers[event.id], tokenizer::SpecialTokens::kSkip);
      run.num_output_tokens += counts[event.id];
      num_steps += counts[event.id] - 1;
      steps_seconds += std::chrono::duration<double>(event.times.last_token - event.times.first_token).count();
    }
  }
  run.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (num_steps > 0) run.decode_step_seconds = steps_seconds / static_cast<double>(num_steps);
  return run;
}

double Percentile(std::vector<double> values, double percentage) {
  std::sort(values.begin(), values.end());
  const double place = percentage / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

double DecodeStepBytes(const Assembly& assembly, int32_t batch, double context) {
  const model::ModelWeights& weights = assembly.model->weights();
  const ExpertBytes experts = ExpertsOf(weights, assembly.files.config, batch);
  // An untied embedding is read a row per token.
  const size_t embedding = weights.embedding.data == weights.lm_head.data ? 0 : BytesOf(weights.embedding);
  const auto fixed = static_cast<double>(weights.arena.used_bytes() - embedding - experts.all + experts.chosen);
  const double kv_per_token = static_cast<double>(assembly.plan.page_bytes) / assembly.plan.page_tokens;
  return fixed + batch * (context * kv_per_token + 2 * static_cast<double>(assembly.plan.slot_bytes));
}

Result<void> WriteJsonFile(const std::string& path, const Json& json) {
  std::ofstream file(path, std::ios::trunc);
  file << json.dump(4) << "\n";
  file.close();
  if (!file) return Fail(Errc::kIo, "cannot write {}", Printable(path));
  return {};
}

Result<std::unique_ptr<Assembly>> AssembleForBench(const CommandLine& line, const Options& options, const Environment& environment) {
  AVOCET_TRY(std::unique_ptr<Assembly> assembly, Assemble(options, environment));
  for (const std::string& text : DescribeMachine(assembly->machine)) LogInfo("{}", text);
  for (const std::string& text : DescribeModel(assembly->files)) LogInfo("{}", text);
  for (const std::string& text : assembly->plan.notes) LogInfo("{}", text);
  for (const std::string& text : ArgumentsWithoutEffect(line.arguments)) LogInfo("no effect: {}", text);
  return assembly;
}

}  // namespace avocet::cli
