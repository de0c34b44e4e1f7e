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

  const NormedRows x = NormForGates(worker, context, input_norm, weights.qkvz, ws.mixer_input);
  ops::Linear(worker, kernels, x.products, weights.qkvz, qkvz);
  ops::Linear(worker, kernels, x.gates, weights.ba, ba);
  worker.Barrier();

  ops::DeltaNet(worker, kernels, DeltaNetShapeOf(config), params, qkvz, ba, spans, ws.delta_scratch,
                WriteFor(ws.delta_out, weights.out, rows));
  worker.Barrier();

  ops::Linear(worker, kernels, ReadFor(worker, context, ws.delta_out, weights.out, rows), weights.out, hidden, ops::Accumulate::kAdd);
  worker.Barrier();
}

}  // namespace avocet::model
