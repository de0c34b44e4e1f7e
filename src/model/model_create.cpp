// Building a Model: sizes, memory, tables. model.cpp holds what runs in a step.
#include <utility>

#include "base/check.h"
#include "model/model.h"

namespace avocet::model {
namespace {

ops::KvType KvTypeOf(Precision precision) {
  return precision == Precision::kF32 ? ops::KvType::kF32 : ops::KvType::kBf16;
}

// bf16 operands only when every matrix is bf16: f32 panels (from f16 or f32 checkpoints) are multiplied by f32 inputs.
ops::InputType InputTypeOf(Precision precision, bool all_bf16, const ops::KernelTable& kernels) {
  return precision == Precision::kNative && all_bf16 ? kernels.product_input_type : ops::InputType::kF32;
}

bool IsBf16(const ops::PackedWeight& weight) {
  return weight.out_features == 0 || weight.format == ops::WeightFormat::kBf16;
}

bool AllBf16(const LayerWeights& layer) {
  const auto mixer = [](const auto& m) {
    if constexpr (requires { m.qkvz; }) {
      return IsBf16(m.qkvz) && IsBf16(m.out);
    } else {
      return IsBf16(m.qkv) && IsBf16(m.out);
    }
  };
  const auto mlp = [](const MlpWeights& m) { return IsBf16(m.gate_up) && IsBf16(m.down); };
  const auto moe = [&mlp](const MoeWeights& m) {
    bool all = mlp(m.shared);
    for (const auto& weight : m.expert_gate_up) all = all && IsBf16(weight);
    for (const auto& weight : m.expert_down) all = all && IsBf16(weight);
    return all;
  };
  const bool mlp_ok =
      std::holds_alternative<MlpWeights>(layer.mlp) ? mlp(std::get<MlpWeights>(layer.mlp)) : moe(std::get<MoeWeights>(layer.mlp));
  return mlp_ok && std::visit(mixer, layer.mixer);
}

bool AllBf16(const ModelWeights& weights) {
  bool all = IsBf16(weights.lm_head);
  for (const LayerWeights& layer : weights.layers) all = all && AllBf16(layer);
  return all;
}

WorkspaceShape WorkspaceShapeOf(const ModelOptions& options, ops::InputType input_type, int32_t num_workers) {
  return {.input_type = input_type,
          .max_rows = options.max_rows,
          .max_logit_rows = options.max_logit_rows,
          .max_context = options.max_context,
          .num_workers = num_workers};
}

Result<void> CheckOptions(const ModelOptions& options) {
  if (options.max_rows < 1) return FailParam("max_num_batched_tokens", "a step needs at least 1 row, got {}", options.max_rows);
  if (options.max_logit_rows < 1) return FailParam("max_num_seqs", "a step needs at least 1 logit row, got {}", options.max_logit_rows);
  if (options.max_context < 1) return FailParam("max_model_len", "a sequence needs at least 1 position, got {}", options.max_context);
  const int32_t page = options.page_tokens;
  if (page < 16 || page > ops::kSplitTokens || (page & (page - 1)) != 0) {
    return FailParam("block_size", "a page of {} tokens is not offered; --block-size takes 16, 32, 64, 128, 256 or 512", page);
  }
  if (options.num_pages < 1 || options.num_slots < 1) {
    return FailParam("kv_cache_memory_bytes",
                     "the cache has {} pages and {} state slots, at least one of each is needed; raise --kv-cache-memory-bytes",
                     options.num_pages, options.num_slots);
  }
  return {};
}

}  // namespace

ModelFootprint Model::Footprint(const ModelConfig& config, const ModelOptions& options, const ops::KernelTable& kernels,
                                int32_t num_workers) {
  const ops::InputType input_type = InputTypeOf(options.precision, config.dtype == "bfloat16", kernels);
  return {.page_bytes = CachePageBytes(config, KvTypeOf(options.precision), options.page_tokens),
          .slot_bytes = CacheSlotBytes(config),
          .workspace_bytes = Workspace::BytesNeeded(config, WorkspaceShapeOf(options, input_type, num_workers))};
}

Model::Model(ModelConfig config, ModelWeights weights, const ModelOptions& options, const ops::KernelTable& kernels,
             device::WorkerPool& pool)
    : config_(std::move(config)), weights_(std::move(weights)), kernels_(kernels), pool_(pool) {
  shape_ = {.max_rows = options.max_rows,
            .max_logit_rows = options.max_logit_rows,
            .vocab_rows = config_.vocab_rows,
            .num_pages = options.num_pages,
            .page_tokens = options.page_tokens,
            .num_slots = options.num_slots,
            .max_context = options.max_context,
            .page_bytes = CachePageBytes(config_, KvTypeOf(options.precision), options.page_tokens),
            .slot_bytes = CacheSlotBytes(config_)};
  limits_ = {.max_rows = options.max_rows,
             .max_logit_rows = options.max_logit_rows,
             .vocab_rows = config_.vocab_rows,
             .num_pages = options.num_pages,
             .num_slots = options.num_slots,
             .page_tokens = options.page_tokens,
             .max_context = options.max_context};
  inverse_frequencies_ = config_.rope.InverseFrequencies();
  frequency_axes_ = config_.rope.FrequencyAxes();
}

Result<std::unique_ptr<Model>> Model::Create(ModelConfig config, ModelWeights weights, const ModelOptions& options,
                                             const ops::KernelTable& kernels, device::WorkerPool& pool) {
  AVOCET_TRY_VOID(CheckOptions(options));
  std::unique_ptr<Model> model(new Model(std::move(config), std::move(weights), options, kernels, pool));
  const CacheShape cache{KvTypeOf(options.precision), options.page_tokens, options.num_pages, options.num_slots};
  AVOCET_TRY(model->caches_, Caches::Create(model->config_, cache));
  const ops::InputType input_type = InputTypeOf(options.precision, AllBf16(model->weights_), kernels);
  AVOCET_TRY(model->workspace_, Workspace::Create(model->config_, WorkspaceShapeOf(options, input_type, pool.num_workers())));
  return model;
}

}  // namespace avocet::model
