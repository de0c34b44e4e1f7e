#include "model/model.h"

#include <utility>

#include "base/check.h"
#include "model/layers.h"
#include "ops/attention.h"
#include "ops/rowwise.h"

namespace avocet::model {

// The whole network. Executed by every worker of the pool in lock-step; Barrier() stands where data crosses workers.
void Model::Forward(device::Worker& worker, const StepPlan& plan) {
  Workspace& ws = workspace_;
  const int32_t rows = plan.num_rows();
  const LayerContext context{config_, kernels_, ws, rows};

  ops::GatherEmbedding(worker, plan.token_ids, weights_.embedding, ws.hidden.Rows(0, rows));
  ComputeRope(worker, plan.positions);
  worker.Barrier();
  Probe(worker, -1, rows);

  int32_t attention_index = 0;
  int32_t delta_index = 0;
  for (int32_t i = 0; i < config_.num_layers; ++i) {
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(i)];
    if (config_.layers[static_cast<size_t>(i)] == LayerKind::kAttention) {
      AttentionLayer(worker, context, layer.input_norm, std::get<AttentionWeights>(layer.mixer), caches_.Kv(attention_index++));
    } else {
      DeltaNetLayer(worker, context, layer.input_norm, std::get<DeltaNetWeights>(layer.mixer),
                    ws.delta_spans[static_cast<size_t>(delta_index++)]);
    }
    if (config_.moe) {
      MoeLayer(worker, context, layer.post_norm, std::get<MoeWeights>(layer.mlp));
    } else {
      MlpLayer(worker, context, layer.post_norm, std::get<MlpWeights>(layer.mlp));
    }
    Probe(worker, i, rows);
  }

  if (weights_.draft) KeepFinalHidden(worker, rows);
  if (plan.logit_rows.empty()) return;  // every row is an inner part of a prompt
  HeadLogits(worker, plan.logit_rows, weights_.final_norm);
}

// Logits of chosen rows of the residual stream, in their order.
void Model::HeadLogits(device::Worker& worker, std::span<const int32_t> rows, std::span<const float> norm) {
  Workspace& ws = workspace_;
  const auto num_logits = static_cast<int32_t>(rows.size());
  const ops::PackedWeight& head = weights_.lm_head;
  const ops::ProductInput& final_input = head.format == ops::WeightFormat::kInt8 ? ws.final_int8 : ws.final_input;
  ops::RmsNormRows(worker, kernels_, ws.hidden, rows, norm, config_.rms_eps, final_input, head.input);
  ops::Linear(worker, kernels_, final_input.Replicated(worker, num_logits), head, ws.logits.Rows(0, num_logits));
  worker.Barrier();
}

void Model::Run(const StepPlan& plan, FunctionRef<void(device::Worker&)> after) {
  DCHECK(ValidatePlan(plan, limits_), "PLAN-2: step {}: {}", plan.step_id, ValidatePlan(plan, limits_).error().message);
  num_logit_rows_ = static_cast<int32_t>(plan.logit_rows.size());
  LayOutSequences(plan);
  pool_.Run([&](device::Worker& worker) {
    Forward(worker, plan);
    after(worker);
  });
}

MatView<float> Model::logits() {
  return workspace_.logits.Rows(0, num_logit_rows_);
}

// Resolves ids to addresses once per step, on the engine thread.
void Model::LayOutSequences(const StepPlan& plan) {
  Workspace& ws = workspace_;
  ws.attention_spans.clear();
  for (auto& spans : ws.delta_spans) spans.clear();
  for (const SequenceRows& s : plan.sequences) {
    ws.attention_spans.push_back({s.row_begin, s.num_rows, s.first_position, plan.PagesOf(s)});
    for (size_t i = 0; i < ws.delta_spans.size(); ++i) {
      const auto layer = static_cast<int32_t>(i);
      ws.delta_spans[i].push_back({.row_begin = s.row_begin,
                                   .num_rows = s.num_rows,
                                   .first_position = s.first_position,
                                   .num_drafts = s.num_drafts,
                                   .num_pending = s.num_pending,
                                   .recurrent = caches_.Recurrent(layer, s.slot),
                                   .conv = caches_.Conv(layer, s.slot),
                                   .drafts = caches_.Drafts(layer, s.slot)});
    }
  }
}

void Model::ComputeRope(const device::Worker& worker, std::span<const int32_t> step_positions) {
  if (caches_.num_attention_layers() == 0) return;
  const auto rows = static_cast<int32_t>(step_positions.size() / 3);
  const MatView<const int32_t> positions(step_positions.data(), 3, rows);
  ops::ComputeRopeAngles(worker, positions, inverse_frequencies_, frequency_axes_, config_.rope.attention_factor,
                         workspace_.rope_cos.Rows(0, rows), workspace_.rope_sin.Rows(0, rows));
}

void Model::Probe(device::Worker& worker, int32_t layer, int32_t rows) {
  if (probe_ == nullptr) return;
  if (worker.id() == 0) (*probe_)(layer, workspace_.hidden.Rows(0, rows));
  worker.Barrier();
}

}  // namespace avocet::model
