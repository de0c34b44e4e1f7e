// All activations of a step, allocated once for max_rows rows. Activations are f32 between ops (design decision 9); a ProductInput
// holds the left operand of the next product in the type that the kernel family multiplies. Nothing here outlives a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/mat_view.h"
#include "device/arena.h"
#include "model/config.h"
#include "model/operand.h"
#include "ops/attention.h"
#include "ops/delta_rule.h"
#include "ops/linear.h"
#include "ops/product_input.h"

namespace avocet::model {

struct WorkspaceShape {
  ops::InputType input_type = ops::InputType::kF32;
  int32_t max_rows = 0;
  int32_t max_logit_rows = 0;
  int32_t max_context = 0;
  int32_t num_workers = 0;
  std::optional<ops::InputType> int8_type = {};  // of int8 operands; without: no matrix of the model is int8
};

// Where one worker sorts the rows by expert: every worker does it for itself, which costs less than a barrier.
struct RoutingScratch {
  std::span<int32_t> offsets;         // [num_experts + 1]
  std::span<int32_t> slot_row;        // [max_rows * top_k]
  std::span<int32_t> active_experts;  // [num_experts]
  MatView<int32_t> slot_of;           // [max_rows, top_k]
};

struct Workspace {
  static Result<Workspace> Create(const ModelConfig& config, const WorkspaceShape& shape);
  static size_t BytesNeeded(const ModelConfig& config, const WorkspaceShape& shape);

  MatView<float> hidden;  // [max_rows, hidden]: the residual stream
  // With drafts: what the step's rows say after the final norm, and what the draft layer said to the rows it was asked for.
  MatView<float> final_hidden;    // [max_rows, hidden]
  MatView<float> draft_hidden;    // [max_logit_rows, hidden]
  ops::ProductInput draft_input;  // [max_rows, 2*hidden]: f32: normed embedding | normed hidden state
  // The normed hidden state [max_rows, hidden], for whom: MLP and experts; mixers (f32 in MoE models, ADR 3); routers and gates (f32).
  // The last two are handles to the same memory as one of the others where the types agree.
  ops::ProductInput input;
  ops::ProductInput mixer_input;
  ops::ProductInput gate_input;
  ops::ProductInput int8_input;  // the same, rounded for int8 products (model/operand.h)
  MatView<float> rope_cos;       // [max_rows, rotary_dim/2]
  MatView<float> rope_sin;

  // Mixers.
  MatView<float> qkv;     // [max_rows, num_heads*2*head_dim + 2*num_kv_heads*head_dim]
  Operand attention_out;  // [max_rows, num_heads*head_dim]
  std::span<std::byte> attention_scratch;
  MatView<float> qkvz;  // [max_rows, conv_dim + total_value_dim]
  MatView<float> ba;    // [max_rows, 2*num_value_heads]
  Operand delta_out;    // [max_rows, total_value_dim]
  std::span<std::byte> delta_scratch;

  // Dense MLP and experts.
  Operand mlp_mid;                      // [max_rows, intermediate or shared_intermediate]
  MatView<float> router_logits;         // [max_rows, num_experts]
  MatView<int32_t> experts;             // [max_rows, top_k]
  MatView<float> expert_weights;        // [max_rows, top_k]
  Operand expert_mid;                   // [max_rows * top_k, expert_intermediate]
  MatView<float> expert_out;            // [max_rows * top_k, hidden]
  MatView<float> shared_out;            // [max_rows, hidden]
  MatView<float> shared_gate;           // [max_rows, 1]
  std::vector<RoutingScratch> routing;  // [num_workers]

  ops::ProductInput final_input;  // [max_logit_rows, hidden]
  ops::ProductInput final_int8;
  MatView<float> logits;  // [max_logit_rows, vocab_rows]

  // Spans of the step's sequences, written by the engine thread before the workers start.
  std::vector<ops::AttentionSpan> attention_spans;
  std::vector<std::vector<ops::DeltaNetSpan>> delta_spans;  // [delta-net layers]

  device::Arena arena;
};

}  // namespace avocet::model
