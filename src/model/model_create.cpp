// Building a Model: sizes, memory, tables. model.cpp holds what runs in a step.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "model/model.h"

namespace avocet::model {
namespace {

ops::KvType KvTypeOf(Precision precision) {
  return precision == Precision::kF32 ? ops::KvType::kF32 : ops::KvType::kBf16;
}

// bf16 operands only when no matrix is f32: f32 panels (from f16 or f32 checkpoints) are multiplied by f32 inputs.
ops::InputType InputTypeOf(Precision precision, bool has_f32, const ops::KernelTable& kernels) {
  return precision == Precision::kNative && !has_f32 ? kernels.product_input_type : ops::InputType::kF32;
}

std::optional<ops::InputType> Int8TypeOf(bool has_int8, const ops::KernelTable& kernels) {
  return has_int8 ? std::optional(kernels.int8_input_type) : std::nullopt;
}

// Whether a matrix of a product has this format.
bool HasProduct(const LayerWeights& layer, ops::WeightFormat format) {
  const auto is = [format](const ops::PackedWeight& weight) { return weight.out_features > 0 && weight.format == format; };
  const auto mixer = [&is](const auto& m) {
    if constexpr (requires { m.qkvz; }) {
      return is(m.qkvz) || is(m.out);
    } else {
      return is(m.qkv) || is(m.out);
    }
  };
  const auto mlp = [&is](const auto& m) {
    if constexpr (requires { m.gate_up; }) {
      return is(m.gate_up) || is(m.down);
    } else {
      return is(m.shared.gate_up) || is(m.shared.down) || std::ranges::any_of(m.expert_gate_up, is) ||
             std::ranges::any_of(m.expert_down, is);
    }
  };
  return std::visit(mixer, layer.mixer) || std::visit(mlp, layer.mlp);
}

bool HasProduct(const ModelWeights& weights, ops::WeightFormat format) {
  if (weights.draft && HasProduct(weights.draft->layer, format)) return true;
  return weights.lm_head.format == format ||
         std::ranges::any_of(weights.layers, [format](const LayerWeights& layer) { return HasProduct(layer, format); });
}

WorkspaceShape WorkspaceShapeOf(const ModelOptions& options, ops::InputType input_type, std::optional<ops::InputType> int8_type,
                                int32_t num_workers) {
  return {.input_type = input_type,
          .max_rows = options.max_rows,
          .max_logit_rows = options.max_logit_rows,
          .max_context = options.max_context,
          .num_workers = num_workers,
          .int8_type = int8_type};
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
  const ops::InputType input_type = InputTypeOf(options.precision, config.dtype != "bfloat16", kernels);
  return {.page_bytes = CachePageBytes(config, KvTypeOf(options.precision), options.page_tokens),
          .slot_bytes = CacheSlotBytes(config),
          .workspace_bytes =
              Workspace::BytesNeeded(config, WorkspaceShapeOf(options, input_type, Int8TypeOf(options.has_int8, kernels), num_workers))};
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
            .max_drafts = config_.num_drafts,
            .page_bytes = CachePageBytes(config_, KvTypeOf(options.precision), options.page_tokens),
            .slot_bytes = CacheSlotBytes(config_)};
  limits_ = {.max_rows = options.max_rows,
             .max_logit_rows = options.max_logit_rows,
             .vocab_rows = config_.vocab_rows,
             .num_pages = options.num_pages,
             .num_slots = options.num_slots,
             .page_tokens = options.page_tokens,
             .max_context = options.max_context,
             .max_drafts = config_.num_drafts};
  inverse_frequencies_ = config_.rope.InverseFrequencies();
  frequency_axes_ = config_.rope.FrequencyAxes();
}

Result<std::unique_ptr<Model>> Model::Create(ModelConfig config, ModelWeights weights, const ModelOptions& options,
                                             const ops::KernelTable& kernels, device::WorkerPool& pool) {
  AVOCET_TRY_VOID(CheckOptions(options));
  std::unique_ptr<Model> model(new Model(std::move(config), std::move(weights), options, kernels, pool));
  const CacheShape cache{KvTypeOf(options.precision), options.page_tokens, options.num_pages, options.num_slots};
  AVOCET_TRY(model->caches_, Caches::Create(model->config_, cache));
  const ops::InputType input_type = InputTypeOf(options.precision, HasProduct(model->weights_, ops::WeightFormat::kF32), kernels);
  const bool has_int8 = HasProduct(model->weights_, ops::WeightFormat::kInt8);
  AVOCET_TRY(model->workspace_,
             Workspace::Create(model->config_, WorkspaceShapeOf(options, input_type, Int8TypeOf(has_int8, kernels), pool.num_workers())));
  return model;
}

}  // namespace avocet::model
