// A weight matrix in the kernels' layout: panels of 16 output columns, so that one load is one vector of weights for 16 outputs.
//
//   bf16: panel p = [in/2 rounded up][16][2]   two consecutive k of one output side by side (the operand of vdpbf16ps and AMX)
//   f32:  panel p = [in][16]
//
// Panels follow each other; the last one is padded with zero columns, an odd `in` with a zero k. Produced once at load, then
// read-only. Design: performance.md 3 ("one packed format").
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kernel_table.h"

namespace avocet::ops {

inline constexpr int32_t kPanelCols = 16;

// Element types a checkpoint can hold for such a matrix.
enum class SourceType : uint8_t { kBf16, kF16, kF32 };

constexpr size_t SourceBytes(SourceType type) {
  return type == SourceType::kF32 ? 4 : 2;
}

struct PackedWeight {
  WeightFormat format = WeightFormat::kBf16;
  int32_t out_features = 0;         // columns of y
  int32_t in_features = 0;          // columns of x
  const std::byte* data = nullptr;  // 64-byte aligned, in the weights arena

  int32_t num_panels() const { return (out_features + kPanelCols - 1) / kPanelCols; }
};

constexpr size_t PanelBytes(WeightFormat format, int32_t in_features) {
  const size_t in = static_cast<size_t>(in_features);
  return format == WeightFormat::kBf16 ? (in + 1) / 2 * kPanelCols * 4 : in * kPanelCols * 4;
}

constexpr size_t PackedBytes(WeightFormat format, int32_t out_features, int32_t in_features) {
  const size_t panels = (static_cast<size_t>(out_features) + kPanelCols - 1) / kPanelCols;
  return panels * PanelBytes(format, in_features);
}

// Packs one panel. rows[c] is the row of `in_features` source elements (any alignment) that becomes output column c of the panel;
// nullptr is a zero column. Rounds half to even when the format is narrower. dst has PanelBytes(format, in_features).
// As fast as memory: it is the inner loop of loading.
void PackPanel(WeightFormat format, SourceType source, const std::byte* const rows[kPanelCols], int32_t in_features, std::byte* dst);

// The weight of output column `out` at input `in`, widened: for tests and for embeddings taken from a tied head.
float PackedElement(const PackedWeight& weight, int32_t out, int32_t in);

// Row `out` widened to f32 (the embedding of a token when the head is tied: one copy of the matrix serves both).
void UnpackRow(const PackedWeight& weight, int32_t out, float* dst /*[in_features]*/);

}  // namespace avocet::ops
