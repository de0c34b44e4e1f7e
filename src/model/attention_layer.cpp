#include "model/caches.h"
#include "model/layers.h"
#include "ops/rowwise.h"

namespace avocet::model {

void AttentionLayer(device::Worker& worker, const LayerContext& context, std::span<const float> input_norm, const AttentionWeights& weights,
                    const ops::KvLayer& kv) {
  const auto& [config, kernels, ws, rows] = context;
  const MatView<float> hidden = ws.hidden.Rows(0, rows);
  const MatView<float> qkv = ws.qkv.Rows(0, rows);
  const ops::AttentionShape shape = AttentionShapeOf(config);

  ops::RmsNorm(worker, kernels, hidden, input_norm, config.rms_eps, ws.mixer_input);
  ops::Linear(worker, kernels, ws.mixer_input.Replicated(worker, rows), weights.qkv, qkv);
  worker.Barrier();

  const ops::RopeAngles rope{ws.rope_cos.Rows(0, rows), ws.rope_sin.Rows(0, rows)};
  ops::PrepareQkvAndStore(worker, kernels, shape, qkv, weights.q_norm, weights.k_norm, config.rms_eps, rope, ws.attention_spans, kv);
  worker.Barrier();

  ops::Attention(worker, kernels, shape, qkv, ws.attention_spans, kv, ws.attention_scratch, ws.attention_out.Shared(rows));
  worker.Barrier();

  ops::Linear(worker, kernels, ws.attention_out.SharedView(rows), weights.out, hidden, ops::Accumulate::kAdd);
  worker.Barrier();
}

}  // namespace avocet::model
