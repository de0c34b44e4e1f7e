// Planning and sampling beside the model: a decode step of 32 sequences (or as many as the argument says) over the family's vocabulary with
// a model that costs nothing, for every way of sampling, with one worker. The logits are copied outside the clock; medians. JSON lines.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "device/cpu_features.h"
#include "device/worker_pool.h"
#include "engine/engine_core.h"

namespace {

using namespace avocet;
using SteadyClock = std::chrono::steady_clock;

constexpr int32_t kVocabRows = 248320;
constexpr int32_t kVocabSize = 248077;
constexpr int32_t kMaxSequences = 32;
constexpr int kSteps = 31;

// Hands out the same logits in every step.
class StillModel final : public model::StepRunner {
 public:
  StillModel() : source_(static_cast<size_t>(kVocabRows)), logits_(source_.size() * kMaxSequences) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal(0, 2.5f);
    for (float& logit : source_) logit = normal(random);
  }
  const model::RunnerShape& shape() const override { return shape_; }
  int32_t num_workers() const override { return 1; }
  MatView<float> logits() override { return {logits_.data(), num_logits_, kVocabRows}; }
  void Run(const model::StepPlan& plan, FunctionRef<void(device::Worker&)> after) override {
    const auto begin = SteadyClock::now();
    num_logits_ = static_cast<int32_t>(plan.logit_rows.size());
    for (int32_t row = 0; row < num_logits_; ++row) std::copy(source_.begin(), source_.end(), logits().row(row));
    model_seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    device::Worker worker(nullptr, 0, 1);
    after(worker);
  }
  void RunDraft(const model::DraftPlan&, std::span<int32_t>) override {}  // nothing is drafted here
  double model_seconds = 0;

 private:
  model::RunnerShape shape_{.max_rows = 256,
                            .max_logit_rows = kMaxSequences,
                            .vocab_rows = kVocabRows,
                            .num_pages = 4096,
                            .page_tokens = 16,
                            .num_slots = kMaxSequences,
                            .max_context = 4096};
  std::vector<float> source_;
  std::vector<float> logits_;
  int32_t num_logits_ = 0;
};

struct Way {
  const char* name;
  engine::SamplingParams params;
  int32_t logprobs = -1;
};

// Milliseconds of one decode step without the copying of logits.
double StepMs(const Way& way, const ops::KernelTable& kernels, int32_t sequences) {
  StillModel model;
  engine::EngineOptions options{
      .max_num_seqs = kMaxSequences, .max_num_batched_tokens = 256, .max_model_len = 4096, .vocab_size = kVocabSize};
  options.kernels = &kernels;
  engine::EngineCore core(options, model, 1);
  for (int32_t i = 0; i < sequences; ++i) {
    engine::Request request;
    request.id = static_cast<engine::RequestId>(i + 1);
    request.prompt = {1, 2, 3};
    request.sampling = way.params;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = 1000;
    request.logprobs = way.logprobs;
    core.Add(std::move(request), SteadyClock::now());
  }
  std::vector<engine::RequestEvent> events;
  std::vector<double> times;
  for (int step = 0; step < kSteps; ++step) {
    const auto begin = SteadyClock::now();
    core.Step(begin);
    core.TakeEvents(events);
    times.push_back((std::chrono::duration<double>(SteadyClock::now() - begin).count() - model.model_seconds) * 1e3);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// The roof: adding up as many logits, from memory as they are.
double ReadMs(int32_t sequences) {
  const std::vector<uint64_t> words(static_cast<size_t>(kVocabRows) * static_cast<size_t>(sequences) / 2, 1);
  std::vector<double> times;
  uint64_t sum = 0;
  for (int round = 0; round < 9; ++round) {
    const auto begin = SteadyClock::now();
    sum += std::accumulate(words.begin(), words.end(), uint64_t{0});
    times.push_back(std::chrono::duration<double>(SteadyClock::now() - begin).count() * 1e3);
  }
  std::ranges::sort(times);
  return sum == 0 ? 0 : times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int32_t sequences = argc > 1 ? std::clamp(std::atoi(argv[1]), 1, kMaxSequences) : kMaxSequences;
  const auto isa = device::ChooseIsa(device::DetectCpu());
  if (!isa) return 1;
  const ops::KernelTable& kernels = ops::KernelsFor(*isa);
  const Way ways[] = {
      {"greedy", {.temperature = 0}},
      {"greedy_logprobs5", {.temperature = 0}, 5},
      {"random", {}},
      {"top_k20_top_p", {.temperature = 0.7f, .top_p = 0.95f, .top_k = 20}},
      {"top_p", {.temperature = 0.7f, .top_p = 0.95f}},
      {"min_p", {.min_p = 0.05f}},
      {"penalties", {.temperature = 0, .presence_penalty = 1.5f, .repetition_penalty = 1.1f}},
  };
  const double read_ms = ReadMs(sequences);
  for (const Way& way : ways) {
    fmt::print(
        "{{\"bench\":\"sampler\",\"way\":\"{}\",\"isa\":\"{}\",\"sequences\":{},\"vocab\":{},\"step_ms\":{:.3f},\"read_ms\":{:.3f}}}\n",
        way.name, kernels.name, sequences, kVocabRows, StepMs(way, kernels, sequences), read_ms);
  }
}
