#include "model/caches.h"
#include "model/layers.h"
#include "ops/rowwise.h"

namespace avocet::model {

void DeltaNetLayer(device::Worker& worker, const LayerContext& context, std::span<const float> input_norm, const DeltaNetWeights& weights,
                   std::span<const ops::DeltaNetSpan> spans) {
  const auto& [config, kernels, ws, rows] = context;
  const MatView<float> hidden = ws.hidden.Rows(0, rows);
  const MatView<float> qkvz = ws.qkvz.Rows(0, rows);
  const MatView<float> ba = ws.ba.Rows(0, rows);
  const ops::DeltaNetParams params{weights.conv, weights.a_log, weights.dt_bias, weights.norm, config.rms_eps};

  NormForGates(worker, context, input_norm, ws.mixer_input);
  ops::Linear(worker, kernels, ws.mixer_input.Replicated(worker, rows), weights.qkvz, qkvz);
  ops::Linear(worker, kernels, ws.gate_input.Replicated(worker, rows), weights.ba, ba);
  worker.Barrier();

  ops::DeltaNet(worker, kernels, DeltaNetShapeOf(config), params, qkvz, ba, spans, ws.delta_scratch, ws.delta_out.Shared(rows));
  worker.Barrier();

  ops::Linear(worker, kernels, ws.delta_out.SharedView(rows), weights.out, hidden, ops::Accumulate::kAdd);
  worker.Barrier();
}

}  // namespace avocet::model
