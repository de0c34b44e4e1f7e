#include "model/layers.h"
#include "ops/linear.h"
#include "ops/rowwise.h"

namespace avocet::model {
namespace {

// Rows share the routing; every worker then sorts them by expert for itself.
ops::ExpertGroups Route(device::Worker& worker, const LayerContext& context, RoutingScratch& own) {
  const auto& [config, kernels, ws, rows] = context;
  const int32_t top_k = config.moe->top_k;
  const auto [begin, end] = worker.Share(rows);
  ops::RouteTopK(kernels, ws.router_logits.Rows(begin, end - begin), top_k, ws.experts.Rows(begin, end - begin),
                 ws.expert_weights.Rows(begin, end - begin));
  worker.Barrier();
  const size_t slots = static_cast<size_t>(rows) * static_cast<size_t>(top_k);
  return ops::GroupByExpert(ws.experts.Rows(0, rows), config.moe->num_experts, own.offsets, own.slot_row.first(slots), own.active_experts,
                            own.slot_of.Rows(0, rows));
}

}  // namespace

void MlpLayer(device::Worker& worker, const LayerContext& context, std::span<const float> post_norm, const MlpWeights& weights) {
  const auto& [config, kernels, ws, rows] = context;
  const MatView<float> hidden = ws.hidden.Rows(0, rows);

  const ops::InputView x = NormFor(worker, context, post_norm, weights.gate_up, ws.input);
  ops::LinearSwiGlu(worker, kernels, x, weights.gate_up, WriteFor(ws.mlp_mid, weights.down, rows));
  worker.Barrier();

  ops::Linear(worker, kernels, ReadFor(worker, context, ws.mlp_mid, weights.down, rows), weights.down, hidden, ops::Accumulate::kAdd);
  worker.Barrier();
}

void MoeLayer(device::Worker& worker, const LayerContext& context, std::span<const float> post_norm, const MoeWeights& weights) {
  const auto& [config, kernels, ws, rows] = context;
  const int32_t slots = rows * config.moe->top_k;
  const bool has_shared = config.moe->shared_intermediate > 0;
  const int32_t shared_rows = has_shared ? rows : 0;

  const ops::PackedWeight& expert_gate_up = weights.expert_gate_up.front();
  const ops::PackedWeight& expert_down = weights.expert_down.front();
  const NormedRows x = NormForGates(worker, context, post_norm, expert_gate_up, ws.input);
  ops::Linear(worker, kernels, x.gates, weights.router, ws.router_logits.Rows(0, rows));
  if (has_shared) {
    const MlpWeights& shared = weights.shared;
    const bool reads_the_same = shared.gate_up.format == expert_gate_up.format && shared.gate_up.input == expert_gate_up.input;
    const ops::InputView shared_x = reads_the_same ? x.products : NormFor(worker, context, post_norm, shared.gate_up, ws.input);
    ops::Linear(worker, kernels, x.gates, weights.shared_gate, ws.shared_gate.Rows(0, rows));
    ops::LinearSwiGlu(worker, kernels, shared_x, shared.gate_up, WriteFor(ws.mlp_mid, shared.down, rows));
  }
  worker.Barrier();

  RoutingScratch& own = ws.routing[static_cast<size_t>(worker.id())];
  const ops::ExpertGroups groups = Route(worker, context, own);
  ops::GroupedLinearSwiGlu(worker, kernels, x.products, groups, weights.expert_gate_up, WriteFor(ws.expert_mid, expert_down, slots));
  if (has_shared) {
    const ops::InputView shared_mid = ReadFor(worker, context, ws.mlp_mid, weights.shared.down, rows);
    ops::Linear(worker, kernels, shared_mid, weights.shared.down, ws.shared_out.Rows(0, rows));
  }
  worker.Barrier();

  const ops::InputView expert_mid = ReadFor(worker, context, ws.expert_mid, expert_down, slots);
  ops::GroupedLinear(worker, kernels, expert_mid, groups, weights.expert_down, ws.expert_out.Rows(0, slots));
  worker.Barrier();

  ops::CombineExperts(worker, kernels, ws.expert_out.Rows(0, slots), own.slot_of.Rows(0, rows), ws.expert_weights.Rows(0, rows),
                      ws.shared_out.Rows(0, shared_rows), ws.shared_gate.Rows(0, shared_rows), ws.hidden.Rows(0, rows));
  worker.Barrier();
}

}  // namespace avocet::model
