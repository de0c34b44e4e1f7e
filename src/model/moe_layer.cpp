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

  ops::RmsNorm(worker, kernels, hidden, post_norm, config.rms_eps, ws.input);
  ops::LinearSwiGlu(worker, kernels, ws.input.Replicated(worker, rows), weights.gate_up, ws.mlp_mid.Shared(rows));
  worker.Barrier();

  ops::Linear(worker, kernels, ws.mlp_mid.SharedView(rows), weights.down, hidden, ops::Accumulate::kAdd);
  worker.Barrier();
}

void MoeLayer(device::Worker& worker, const LayerContext& context, std::span<const float> post_norm, const MoeWeights& weights) {
  const auto& [config, kernels, ws, rows] = context;
  const int32_t slots = rows * config.moe->top_k;
  const bool has_shared = config.moe->shared_intermediate > 0;
  const int32_t shared_rows = has_shared ? rows : 0;

  NormForGates(worker, context, post_norm, ws.input);
  const ops::InputView x = ws.input.Replicated(worker, rows);
  const ops::InputView gate_x = ws.gate_input.Replicated(worker, rows);
  ops::Linear(worker, kernels, gate_x, weights.router, ws.router_logits.Rows(0, rows));
  if (has_shared) {
    ops::Linear(worker, kernels, gate_x, weights.shared_gate, ws.shared_gate.Rows(0, rows));
    ops::LinearSwiGlu(worker, kernels, x, weights.shared.gate_up, ws.mlp_mid.Shared(rows));
  }
  worker.Barrier();

  RoutingScratch& own = ws.routing[static_cast<size_t>(worker.id())];
  const ops::ExpertGroups groups = Route(worker, context, own);
  ops::GroupedLinearSwiGlu(worker, kernels, x, groups, weights.expert_gate_up, ws.expert_mid.Shared(slots));
  if (has_shared) ops::Linear(worker, kernels, ws.mlp_mid.SharedView(rows), weights.shared.down, ws.shared_out.Rows(0, rows));
  worker.Barrier();

  ops::GroupedLinear(worker, kernels, ws.expert_mid.SharedView(slots), groups, weights.expert_down, ws.expert_out.Rows(0, slots));
  worker.Barrier();

  ops::CombineExperts(worker, kernels, ws.expert_out.Rows(0, slots), own.slot_of.Rows(0, rows), ws.expert_weights.Rows(0, rows),
                      ws.shared_out.Rows(0, shared_rows), ws.shared_gate.Rows(0, shared_rows), ws.hidden.Rows(0, rows));
  worker.Barrier();
}

}  // namespace avocet::model
