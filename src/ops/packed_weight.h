// A weight matrix in the kernels' layout: panels of 16 output columns, so that one load is one vector of weights for 16 outputs.
//
//   bf16: panel p = [in/2 rounded up][16][2]   two consecutive k of one output side by side (the operand of vdpbf16ps and AMX)
//   f32:  panel p = [in][16]
//   int8: panel p = [in/4 rounded up][16][4], then [16] f32 scales, then [16] int32 biases
//
// An int8 product is (sum over k of (q + 128) w  +  bias) * row scale * scale, all in f32 after the sum. The bias takes back the 128 that
// makes left operands unsigned, as vpdpbusd wants them, and holds quant_bias where the checkpoint has one.
// Panels follow each other; the last one is padded with zero columns, `in` with zero k. Produced once at load, then read-only. Design:
// performance.md 3 ("one packed format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/kernel_table.h"

namespace avocet::ops {

inline constexpr int32_t kPanelCols = 16;

// Element types a checkpoint can hold for such a matrix.
// int8 and fp8 have scales beside them: whoever packs applies those.
enum class SourceType : uint8_t { kBf16, kF16, kF32, kInt8, kF8E4M3 };

constexpr size_t SourceBytes(SourceType type) {
  return type == SourceType::kF32 ? 4 : type == SourceType::kBf16 || type == SourceType::kF16 ? 2 : 1;
}

// More would overflow a sum of int8 products: 255 * 128 each.
inline constexpr int32_t kInt8InFeaturesMax = 65'536;

struct PackedWeight {
  WeightFormat format = WeightFormat::kBf16;
  int32_t out_features = 0;         // columns of y
  int32_t in_features = 0;          // columns of x
  const std::byte* data = nullptr;  // 64-byte aligned, in the weights arena
  Int8Input input = {};             // int8 only: how the left operand is made

  int32_t num_panels() const { return (out_features + kPanelCols - 1) / kPanelCols; }
};

constexpr size_t PanelBytes(WeightFormat format, int32_t in_features) {
  const size_t in = static_cast<size_t>(in_features);
  const size_t words = format == WeightFormat::kInt8 ? (in + 3) / 4 + 2 : format == WeightFormat::kBf16 ? (in + 1) / 2 : in;
  return words * kPanelCols * 4;
}

constexpr size_t PackedBytes(WeightFormat format, int32_t out_features, int32_t in_features) {
  const size_t panels = (static_cast<size_t>(out_features) + kPanelCols - 1) / kPanelCols;
  return panels * PanelBytes(format, in_features);
}

// Packs one panel. rows[c] is the row of `in_features` source elements (any alignment) that becomes output column c of the panel;
// nullptr is a zero column. Rounds half to even when the format is narrower. dst has PanelBytes(format, in_features).
// As fast as memory: it is the inner loop of loading. Not for int8.
void PackPanel(WeightFormat format, SourceType source, const std::byte* const rows[kPanelCols], int32_t in_features, std::byte* dst);

// Packs one int8 panel of int8 rows with the scale of each column, and the bias of each before the 128 is taken back.
void PackInt8Panel(const int8_t* const rows[kPanelCols], const float scales[kPanelCols], const int32_t biases[kPanelCols],
                   int32_t in_features, std::byte* dst);

// One row of a float matrix to int8: scale = max|w| / 127 (1 for a row of zeros), q = round half to even (w / scale). Returns the scale.
float QuantizeWeightRow(std::span<const float> row, int8_t* q);

// The weight of output column `out` at input `in`, widened: for tests and for embeddings taken from a tied head.
float PackedElement(const PackedWeight& weight, int32_t out, int32_t in);

// Row `out` widened to f32 (the embedding of a token when the head is tied: one copy of the matrix serves both).
void UnpackRow(const PackedWeight& weight, int32_t out, float* dst /*[in_features]*/);

}  // namespace avocet::ops
