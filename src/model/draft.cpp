// The draft layer (model.md 5). Executed like Forward, by all workers in lock-step.
#include "base/check.h"
#include "model/layers.h"
#include "model/model.h"
#include "ops/rowwise.h"

namespace avocet::model {
namespace {

void NormToF32(const ops::KernelTable& kernels, const float* x, std::span<const float> weight, float eps, float* out) {
  kernels.norm({.x = x,
                .weight = weight.data(),
                .gate = nullptr,
                .size = static_cast<int32_t>(weight.size()),
                .eps = eps,
                .out_type = ops::InputType::kF32,
                .out = reinterpret_cast<std::byte*>(out)});
}

}  // namespace

// What the head reads, of every row: the draft layer pairs it with the token that comes next.
void Model::KeepFinalHidden(const device::Worker& worker, int32_t rows) {
  const auto [begin, end] = worker.Share(rows);
  for (int32_t r = begin; r < end; ++r) {
    NormToF32(kernels_, workspace_.hidden.row(r), weights_.final_norm, config_.rms_eps, workspace_.final_hidden.row(r));
  }
}

void Model::ForwardDraft(device::Worker& worker, const DraftPlan& plan, std::span<int32_t> drafts) {
  Workspace& ws = workspace_;
  const DraftWeights& draft = *weights_.draft;
  const int32_t rows = plan.num_rows();
  const MatView<float> hidden = ws.hidden.Rows(0, rows);
  const LayerContext context{config_, kernels_, ws, rows};

  ops::GatherEmbedding(worker, plan.token_ids, weights_.embedding, hidden);
  const MatView<float> source = plan.source == DraftPlan::Source::kStep ? ws.final_hidden : ws.draft_hidden;
  ops::RmsNormPairs(worker, kernels_, hidden, draft.embedding_norm, source, plan.source_rows, draft.hidden_norm, config_.rms_eps,
                    ws.draft_input.Shared(rows));
  ComputeRope(worker, plan.positions);
  worker.Barrier();
  ops::Linear(worker, kernels_, ws.draft_input.SharedView(rows), draft.fc, hidden);
  worker.Barrier();

  AttentionLayer(worker, context, draft.layer.input_norm, std::get<AttentionWeights>(draft.layer.mixer),
                 caches_.Kv(caches_.num_attention_layers() - 1));
  if (plan.draft_rows.empty()) return;  // the K/V was what was wanted
  if (config_.moe) {
    MoeLayer(worker, context, draft.layer.post_norm, std::get<MoeWeights>(draft.layer.mlp));
  } else {
    MlpLayer(worker, context, draft.layer.post_norm, std::get<MlpWeights>(draft.layer.mlp));
  }

  const auto num_drafts = static_cast<int32_t>(plan.draft_rows.size());
  const auto [begin, end] = worker.Share(num_drafts);
  for (int32_t i = begin; i < end; ++i) {
    NormToF32(kernels_, ws.hidden.row(plan.draft_rows[static_cast<size_t>(i)]), draft.final_norm, config_.rms_eps, ws.draft_hidden.row(i));
  }
  HeadLogits(worker, plan.draft_rows, draft.final_norm);
  for (int32_t i = begin; i < end; ++i) {
    const int32_t best = ops::ArgMax(kernels_, ws.logits.row_span(i)).index;
    drafts[static_cast<size_t>(i)] = best < 0 ? 0 : best;  // nothing is a number: any token, it will be rejected
  }
}

void Model::RunDraft(const DraftPlan& plan, std::span<int32_t> drafts) {
  CHECK(weights_.draft.has_value(), "PLAN-2: drafts are planned and the model has no draft layer");
  CHECK(plan.num_rows() > 0 && plan.num_rows() <= shape_.max_rows && drafts.size() == plan.draft_rows.size() &&
            drafts.size() <= static_cast<size_t>(shape_.max_logit_rows),
        "PLAN-2: {} draft rows, {} drafts", plan.num_rows(), drafts.size());
  workspace_.attention_spans.clear();
  for (const SequenceRows& s : plan.sequences) {
    workspace_.attention_spans.push_back({s.row_begin, s.num_rows, s.first_position, plan.PagesOf(s)});
  }
  pool_.Run([&](device::Worker& worker) { ForwardDraft(worker, plan, drafts); });
}

}  // namespace avocet::model
