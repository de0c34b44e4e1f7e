// The network: Forward(plan) -> logits. The page everyone reads first is model.cpp.
// Owner: the engine thread calls Run; inside, all workers of the pool execute Forward in lock-step (SPMD).
// A row's result depends on the tokens before it and on nothing else, bit for bit (design decision 3, NUM-1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "device/worker_pool.h"
#include "model/caches.h"
#include "model/config.h"
#include "model/model_weights.h"
#include "model/step_plan.h"
#include "model/step_runner.h"
#include "model/workspace.h"
#include "ops/kernel_table.h"
#include "ops/product_input.h"

namespace avocet::model {

// kNative: products read the type the kernel family multiplies (bf16 with dot-product instructions), K/V in bf16.
// kF32: everything between the weights and the logits is f32, K/V too (--dtype float32).
enum class Precision : uint8_t { kNative, kF32 };

struct ModelOptions {
  Precision precision = Precision::kNative;
  int32_t max_rows = 2048;       // of a step: --max-num-batched-tokens
  int32_t max_logit_rows = 256;  // of a step: at least --max-num-seqs
  int32_t max_context = 0;       // positions of one sequence: --max-model-len
  int32_t page_tokens = 64;      // --block-size: 16, 32, 64, 128, 256 or 512
  int32_t num_pages = 0;
  int32_t num_slots = 0;
  bool has_int8 = false;  // for the footprint: some matrices will be int8
};

// What a model of this shape needs, for the memory plan: exact for a checkpoint whose matrices all have the config's dtype.
struct ModelFootprint {
  size_t page_bytes = 0;       // one page over all attention layers
  size_t slot_bytes = 0;       // one sequence's state over all delta-net layers
  size_t workspace_bytes = 0;  // activations, scratch, logits
};

class Model final : public StepRunner {
 public:
  static Result<std::unique_ptr<Model>> Create(ModelConfig config, ModelWeights weights, const ModelOptions& options,
                                               const ops::KernelTable& kernels, device::WorkerPool& pool);
  static ModelFootprint Footprint(const ModelConfig& config, const ModelOptions& options, const ops::KernelTable& kernels,
                                  int32_t num_workers);

  const RunnerShape& shape() const override { return shape_; }
  int32_t num_workers() const override { return pool_.num_workers(); }
  void Run(const StepPlan& plan, FunctionRef<void(device::Worker&)> after) override;
  void RunDraft(const DraftPlan& plan, std::span<int32_t> drafts) override;
  MatView<float> logits() override;

  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }
  Caches& caches() { return caches_; }

  // For tests and `avocet inspect`: called by worker 0 between layers with the residual stream after layer `layer`
  // (-1: the embedding). Empty by default; costs one branch per layer.
  using LayerProbe = FunctionRef<void(int32_t layer, MatView<const float> hidden /*[rows, hidden]*/)>;
  void SetProbe(const LayerProbe* probe) { probe_ = probe; }

 private:
  Model(ModelConfig config, ModelWeights weights, const ModelOptions& options, const ops::KernelTable& kernels, device::WorkerPool& pool);
  void Forward(device::Worker& worker, const StepPlan& plan);
  void HeadLogits(device::Worker& worker, std::span<const int32_t> rows, std::span<const float> norm);
  void KeepFinalHidden(const device::Worker& worker, int32_t rows);
  void ForwardDraft(device::Worker& worker, const DraftPlan& plan, std::span<int32_t> drafts);
  void ComputeRope(const device::Worker& worker, std::span<const int32_t> positions);
  void LayOutSequences(const StepPlan& plan);
  void Probe(device::Worker& worker, int32_t layer, int32_t rows);

  ModelConfig config_;
  ModelWeights weights_;
  const ops::KernelTable& kernels_;
  device::WorkerPool& pool_;
  RunnerShape shape_;
  PlanLimits limits_;
  std::vector<float> inverse_frequencies_;  // [rotary_dim/2]
  std::vector<uint8_t> frequency_axes_;     // [rotary_dim/2]
  Caches caches_;
  Workspace workspace_;
  int32_t num_logit_rows_ = 0;
  const LayerProbe* probe_ = nullptr;
};

}  // namespace avocet::model
