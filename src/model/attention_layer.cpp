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

  ops::Linear(worker, kernels, NormFor(worker, context, input_norm, weights.qkv, ws.mixer_input), weights.qkv, qkv);
  worker.Barrier();

  const ops::RopeAngles rope{ws.rope_cos.Rows(0, rows), ws.rope_sin.Rows(0, rows)};
  ops::PrepareQkvAndStore(worker, kernels, shape, qkv, weights.q_norm, weights.k_norm, config.rms_eps, rope, ws.attention_spans, kv);
  worker.Barrier();

  ops::Attention(worker, kernels, shape, qkv, ws.attention_spans, kv, ws.attention_scratch, WriteFor(ws.attention_out, weights.out, rows));
  worker.Barrier();

  ops::Linear(worker, kernels, ReadFor(worker, context, ws.attention_out, weights.out, rows), weights.out, hidden, ops::Accumulate::kAdd);
  worker.Barrier();
}

}  // namespace avocet::model
