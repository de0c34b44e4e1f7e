// From options to a model that can run: the machine, the model's files, the memory plan, then tokenizer and weights side by side.
// serve, chat and bench share it; inspect stops before loading. Built and owned by the main thread, bottom to top; destroyed in reverse.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cli/environment.h"
#include "cli/memory_plan.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "device/cpu_features.h"
#include "device/topology.h"
#include "device/worker_pool.h"
#include "engine/engine.h"
#include "model/config.h"
#include "model/model.h"
#include "model/model_weights.h"
#include "ops/kernel_table.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace avocet::cli {

struct Machine {
  device::Topology topology;
  device::CpuFeatures cpu;
  device::Isa isa = device::Isa::kRef;
  const ops::KernelTable* kernels = nullptr;
  std::vector<int32_t> worker_cpus;
};

// What is read before weights: small files.
struct ModelFiles {
  ModelPath path;
  model::ModelConfig config;
  model::GenerationConfig generation;
  model::Precision precision = model::Precision::kNative;
  weights::WeightPolicy policy = weights::WeightPolicy::kExact;
  std::optional<weights::QuantDescription> description;  // of an Ascend checkpoint
  bool rounds_to_int8 = false;                           // --quantization int8
  std::string quantization_note;                         // for the report; empty: none
  std::string dtype_note;                                // what --dtype came to, for the report

  engine::DraftDepthPolicy draft_depth = engine::DraftDepthPolicy::kMeasured;  // config.num_drafts says how many

  weights::Quantization quantization() const {
    return {description ? &*description : nullptr, config.int8_by_dtype, config.fp8_block, rounds_to_int8};
  }
};

struct Assembly {
  Machine machine;
  ModelFiles files;
  MemoryPlan plan;
  std::unique_ptr<device::WorkerPool> pool;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  // nullptr: token ids only, and why:
  std::string no_tokenizer_reason;
  std::optional<tokenizer::ChatTemplate> chat_template;  // none: the model has none; serve hands it to the server
  std::string chat_template_source;                      // where it came from; empty: there is none
  double tokenizer_seconds = 0;
  model::LoadReport load;
  std::unique_ptr<model::Model> model;
};

Result<Machine> PrepareMachine(const Options& options);
Result<ModelFiles> ReadModelFiles(const Options& options, const Environment& environment);
Result<MemoryPlan> PlanFor(const Options& options, const Machine& machine, const ModelFiles& files);

// The three above and the worker pool: what is wrong with the folder or does not fit is known now, before anything takes time.
Result<std::unique_ptr<Assembly>> Prepare(const Options& options, const Environment& environment);
// Tokenizer and chat template, on the calling thread.
Result<void> LoadText(const Options& options, Assembly* assembly);

// Weights, on a thread of their own: running on the pool pins a thread to a core, and the main thread must stay free for the threads
// that are started from it.
class WeightLoading {
 public:
  WeightLoading(const Options& options, Assembly* assembly);
  ~WeightLoading();  // waits
  WeightLoading(const WeightLoading&) = delete;
  WeightLoading& operator=(const WeightLoading&) = delete;

  // Waits, then builds the model. Once.
  Result<void> Finish();

 private:
  Assembly* assembly_;
  Result<model::ModelWeights> weights_;
  std::thread thread_;
};

// All of it, tokenizer and weights side by side.
Result<std::unique_ptr<Assembly>> Assemble(const Options& options, const Environment& environment);

engine::EngineOptions EngineOptionsFor(const Options& options, const Assembly& assembly);
// Ids that end an answer: of config.json, generation_config.json and the tokenizer; ascending.
std::vector<int32_t> EndTokenIds(const Assembly& assembly);
// What most matrices become in memory.
ops::WeightFormat WeightFormatFor(const ModelFiles& files);

}  // namespace avocet::cli
