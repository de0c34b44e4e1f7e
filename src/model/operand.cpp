#include "model/operand.h"

#include "model/layers.h"
#include "ops/rowwise.h"

namespace avocet::model {
namespace {

bool IsInt8(const ops::PackedWeight& weight) {
  return weight.format == ops::WeightFormat::kInt8;
}

}  // namespace

ops::InputView NormFor(device::Worker& worker, const LayerContext& context, std::span<const float> norm, const ops::PackedWeight& weight,
                       const ops::ProductInput& plain) {
  const auto& [config, kernels, ws, rows] = context;
  const ops::ProductInput& out = IsInt8(weight) ? ws.int8_input : plain;
  ops::RmsNorm(worker, kernels, ws.hidden.Rows(0, rows), norm, config.rms_eps, out, weight.input);
  return out.Replicated(worker, rows);
}

NormedRows NormForGates(device::Worker& worker, const LayerContext& context, std::span<const float> norm, const ops::PackedWeight& weight,
                        const ops::ProductInput& plain) {
  const auto& [config, kernels, ws, rows] = context;
  ops::RmsNorm(worker, kernels, ws.hidden.Rows(0, rows), norm, config.rms_eps, ws.gate_input);
  const ops::InputView gates = ws.gate_input.Replicated(worker, rows);
  if (IsInt8(weight)) {
    ops::QuantizeRows(worker, kernels, gates, weight.input, ws.int8_input);
    return {gates, ws.int8_input.Replicated(worker, rows)};
  }
  if (plain.type() == ops::InputType::kF32) return {gates, gates};
  return {gates, NormFor(worker, context, norm, weight, plain)};
}

ops::MutableInputView WriteFor(const Operand& operand, const ops::PackedWeight& weight, int32_t rows) {
  return (IsInt8(weight) ? operand.f32 : operand.plain).Shared(rows);
}

ops::InputView ReadFor(device::Worker& worker, const LayerContext& context, const Operand& operand, const ops::PackedWeight& weight,
                       int32_t rows) {
  if (!IsInt8(weight)) return operand.plain.SharedView(rows);
  ops::QuantizeRows(worker, context.kernels, operand.f32.SharedView(rows), weight.input, operand.int8);
  return operand.int8.Replicated(worker, rows);
}

}  // namespace avocet::model
