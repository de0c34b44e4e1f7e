#include "model/workspace.h"

#include <algorithm>

#include "model/caches.h"

namespace avocet::model {
namespace {

constexpr size_t kAlignment = 64;

// Adds up what the allocations below will take, so that sizes and allocation cannot drift apart: both run the same Layout().
class Measurer {
 public:
  template <typename T>
  MatView<T> Matrix(int64_t rows, int64_t cols) {
    Add(static_cast<size_t>(rows * cols) * sizeof(T));
    return {};
  }
  template <typename T>
  std::span<T> Array(int64_t count) {
    Add(static_cast<size_t>(count) * sizeof(T));
    return {};
  }
  ops::ProductInput Input(ops::InputType type, int64_t rows, int32_t cols, int32_t workers) {
    constexpr size_t kPieces = 5;  // of an operand, each aligned
    Add(ops::ProductInput::BytesNeeded(type, static_cast<int32_t>(rows), cols, workers) + kPieces * kAlignment);
    return {};
  }
  size_t bytes() const { return bytes_; }

 private:
  void Add(size_t bytes) { bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  size_t bytes_ = 0;
};

class Allocator {
 public:
  explicit Allocator(device::Arena& arena) : arena_(arena) {}
  template <typename T>
  MatView<T> Matrix(int64_t rows, int64_t cols) {
    return {arena_.AllocateSpan<T>(static_cast<size_t>(rows * cols)).data(), static_cast<int32_t>(rows), static_cast<int32_t>(cols)};
  }
  template <typename T>
  std::span<T> Array(int64_t count) {
    return arena_.AllocateSpan<T>(static_cast<size_t>(count));
  }
  ops::ProductInput Input(ops::InputType type, int64_t rows, int32_t cols, int32_t workers) {
    return {arena_, type, static_cast<int32_t>(rows), cols, workers};
  }

 private:
  device::Arena& arena_;
};

template <typename Source>
Operand LayOperand(const WorkspaceShape& shape, int64_t rows, int32_t cols, Source& from) {
  Operand operand;
  operand.plain = from.Input(shape.input_type, rows, cols, shape.num_workers);
  if (!shape.int8_type) return operand;
  operand.f32 = shape.input_type == ops::InputType::kF32 ? operand.plain : from.Input(ops::InputType::kF32, rows, cols, shape.num_workers);
  operand.int8 = from.Input(*shape.int8_type, rows, cols, shape.num_workers);
  return operand;
}

template <typename Source>
void LayoutMixers(Workspace& ws, const ModelConfig& config, const WorkspaceShape& shape, Source& from) {
  const int64_t rows = shape.max_rows;
  if (config.NumKvLayers() > 0) {
    const ops::AttentionShape attention = AttentionShapeOf(config);
    ws.rope_cos = from.template Matrix<float>(rows, attention.rotary_dim / 2);
    ws.rope_sin = from.template Matrix<float>(rows, attention.rotary_dim / 2);
    ws.qkv = from.template Matrix<float>(rows, int64_t{2} * (attention.num_heads + attention.num_kv_heads) * attention.head_dim);
    ws.attention_out = LayOperand(shape, rows, attention.num_heads * attention.head_dim, from);
    ws.attention_scratch = from.template Array<std::byte>(
        static_cast<int64_t>(ops::AttentionScratchBytes(attention, shape.max_rows, shape.max_context, shape.num_workers)));
  }
  if (config.NumLayers(LayerKind::kDeltaNet) > 0) {
    const ops::DeltaNetShape delta = DeltaNetShapeOf(config);
    ws.qkvz = from.template Matrix<float>(rows, delta.conv_dim() + delta.total_value_dim());
    ws.ba = from.template Matrix<float>(rows, int64_t{2} * delta.num_value_heads);
    ws.delta_out = LayOperand(shape, rows, delta.total_value_dim(), from);
    ws.delta_scratch =
        from.template Array<std::byte>(static_cast<int64_t>(ops::DeltaNetScratchBytes(delta, shape.max_rows, shape.num_workers)));
  }
}

template <typename Source>
void LayoutMlp(Workspace& ws, const ModelConfig& config, const WorkspaceShape& shape, Source& from) {
  const int64_t rows = shape.max_rows;
  if (!config.moe) {
    ws.mlp_mid = LayOperand(shape, rows, config.intermediate, from);
    return;
  }
  const MoeConfig& moe = *config.moe;
  const int64_t slots = rows * moe.top_k;
  ws.router_logits = from.template Matrix<float>(rows, moe.num_experts);
  ws.experts = from.template Matrix<int32_t>(rows, moe.top_k);
  ws.expert_weights = from.template Matrix<float>(rows, moe.top_k);
  ws.expert_mid = LayOperand(shape, slots, moe.expert_intermediate, from);
  ws.expert_out = from.template Matrix<float>(slots, config.hidden);
  if (moe.shared_intermediate > 0) {
    ws.mlp_mid = LayOperand(shape, rows, moe.shared_intermediate, from);
    ws.shared_out = from.template Matrix<float>(rows, config.hidden);
    ws.shared_gate = from.template Matrix<float>(rows, 1);
  }
  ws.routing.resize(static_cast<size_t>(shape.num_workers));
  for (RoutingScratch& routing : ws.routing) {
    routing.offsets = from.template Array<int32_t>(moe.num_experts + 1);
    routing.slot_row = from.template Array<int32_t>(slots);
    routing.active_experts = from.template Array<int32_t>(moe.num_experts);
    routing.slot_of = from.template Matrix<int32_t>(rows, moe.top_k);
  }
}

template <typename Source>
void Layout(Workspace& ws, const ModelConfig& config, const WorkspaceShape& shape, Source& from) {
  ws.hidden = from.template Matrix<float>(shape.max_rows, config.hidden);
  if (config.num_drafts > 0) {
    ws.final_hidden = from.template Matrix<float>(shape.max_rows, config.hidden);
    ws.draft_hidden = from.template Matrix<float>(shape.max_logit_rows, config.hidden);
    ws.draft_input = from.Input(ops::InputType::kF32, shape.max_rows, 2 * config.hidden, shape.num_workers);
  }
  ws.input = from.Input(shape.input_type, shape.max_rows, config.hidden, shape.num_workers);
  ws.gate_input = shape.input_type == ops::InputType::kF32
                      ? ws.input
                      : from.Input(ops::InputType::kF32, shape.max_rows, config.hidden, shape.num_workers);
  ws.mixer_input = config.moe ? ws.gate_input : ws.input;
  if (shape.int8_type) ws.int8_input = from.Input(*shape.int8_type, shape.max_rows, config.hidden, shape.num_workers);
  LayoutMixers(ws, config, shape, from);
  LayoutMlp(ws, config, shape, from);
  ws.final_input = from.Input(shape.input_type, shape.max_logit_rows, config.hidden, shape.num_workers);
  if (shape.int8_type) ws.final_int8 = from.Input(*shape.int8_type, shape.max_logit_rows, config.hidden, shape.num_workers);
  ws.logits = from.template Matrix<float>(shape.max_logit_rows, config.vocab_rows);
}

}  // namespace

size_t Workspace::BytesNeeded(const ModelConfig& config, const WorkspaceShape& shape) {
  Workspace ws;
  Measurer measurer;
  Layout(ws, config, shape, measurer);
  return measurer.bytes();
}

Result<Workspace> Workspace::Create(const ModelConfig& config, const WorkspaceShape& shape) {
  Workspace ws;
  AVOCET_TRY(ws.arena, device::Arena::Create("workspace", BytesNeeded(config, shape)));
  Allocator allocator(ws.arena);
  Layout(ws, config, shape, allocator);
  // A step has at most max_rows sequences: a sequence in a step has at least one row.
  ws.attention_spans.reserve(static_cast<size_t>(shape.max_rows));
  ws.delta_spans.resize(static_cast<size_t>(config.NumLayers(LayerKind::kDeltaNet)));
  for (auto& spans : ws.delta_spans) spans.reserve(static_cast<size_t>(shape.max_rows));
  return ws;
}

}  // namespace avocet::model
