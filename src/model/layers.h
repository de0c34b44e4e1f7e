// The three kinds of layer halves, each as a function over the residual stream. Every function is executed by all workers; it starts
// and ends with the residual stream complete and visible to all of them.
#pragma once

#include <cstdint>
#include <span>

#include "device/worker_pool.h"
#include "model/config.h"
#include "model/model_weights.h"
#include "model/operand.h"
#include "model/workspace.h"
#include "ops/attention.h"
#include "ops/delta_rule.h"
#include "ops/kernel_table.h"

namespace avocet::model {

// What every layer reads besides its weights.
struct LayerContext {
  const ModelConfig& config;
  const ops::KernelTable& kernels;
  Workspace& ws;
  int32_t num_rows;
};

// hidden += out_proj(attention(norm(hidden)))            model.md 2.6
void AttentionLayer(device::Worker& worker, const LayerContext& context, std::span<const float> input_norm, const AttentionWeights& weights,
                    const ops::KvLayer& kv);

// hidden += out_proj(gated_delta_net(norm(hidden)))      model.md 2.9
void DeltaNetLayer(device::Worker& worker, const LayerContext& context, std::span<const float> input_norm, const DeltaNetWeights& weights,
                   std::span<const ops::DeltaNetSpan> spans);

// hidden += down(silu(gate(norm(hidden))) * up(norm(hidden)))   model.md 3.1
void MlpLayer(device::Worker& worker, const LayerContext& context, std::span<const float> post_norm, const MlpWeights& weights);

// hidden += experts + gated shared expert                model.md 3.2, 3.3
void MoeLayer(device::Worker& worker, const LayerContext& context, std::span<const float> post_norm, const MoeWeights& weights);

}  // namespace avocet::model
