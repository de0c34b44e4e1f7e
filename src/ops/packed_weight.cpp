#include "ops/packed_weight.h"

#include <cstring>

#include "base/bf16.h"

namespace avocet::ops {
namespace {

uint16_t Load16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return bits;
}

float SourceElement(SourceType type, const std::byte* row, int32_t k) {
  const std::byte* p = row + static_cast<size_t>(k) * SourceBytes(type);
  switch (type) {
    case SourceType::kBf16: return ToF32(Bf16{Load16(p)});
    case SourceType::kF16: return ToF32(F16{Load16(p)});
    case SourceType::kF32: break;
  }
  float value;
  std::memcpy(&value, p, 4);
  return value;
}

// bf16 to bf16: a transposition of 32-bit pairs.
void PackPairs(const std::byte* const rows[kPanelCols], int32_t pairs, std::byte* dst) {
  for (int32_t s = 0; s < pairs; ++s) {
    for (int32_t c = 0; c < kPanelCols; ++c)
      std::memcpy(dst + (static_cast<size_t>(s) * kPanelCols + static_cast<size_t>(c)) * 4, rows[c] + static_cast<size_t>(s) * 4, 4);
  }
}

bool HasAllRows(const std::byte* const rows[kPanelCols]) {
  for (int32_t c = 0; c < kPanelCols; ++c) {
    if (rows[c] == nullptr) return false;
  }
  return true;
}

}  // namespace

void PackPanel(WeightFormat format, SourceType source, const std::byte* const rows[kPanelCols], int32_t in_features, std::byte* dst) {
  int32_t k = 0;
  if (format == WeightFormat::kBf16 && source == SourceType::kBf16 && HasAllRows(rows)) {
    PackPairs(rows, in_features / 2, dst);
    k = in_features / 2 * 2;
  }
  const int32_t stored = format == WeightFormat::kBf16 ? (in_features + 1) / 2 * 2 : in_features;
  for (; k < stored; ++k) {
    for (int32_t c = 0; c < kPanelCols; ++c) {
      const float value = rows[c] != nullptr && k < in_features ? SourceElement(source, rows[c], k) : 0.0f;
      if (format == WeightFormat::kF32) {
        std::memcpy(dst + (static_cast<size_t>(k) * kPanelCols + static_cast<size_t>(c)) * 4, &value, 4);
      } else {
        const uint16_t bits = ToBf16(value).bits;
        std::memcpy(dst + (static_cast<size_t>(k / 2) * kPanelCols + static_cast<size_t>(c)) * 4 + static_cast<size_t>(k % 2) * 2, &bits,
                    2);
      }
    }
  }
}

float PackedElement(const PackedWeight& weight, int32_t out, int32_t in) {
  const std::byte* panel = weight.data + static_cast<size_t>(out / kPanelCols) * PanelBytes(weight.format, weight.in_features);
  const auto col = static_cast<size_t>(out % kPanelCols);
  if (weight.format == WeightFormat::kBf16) {
    return ToF32(Bf16{Load16(panel + (static_cast<size_t>(in / 2) * kPanelCols + col) * 4 + static_cast<size_t>(in % 2) * 2)});
  }
  float value;
  std::memcpy(&value, panel + (static_cast<size_t>(in) * kPanelCols + col) * 4, 4);
  return value;
}

void UnpackRow(const PackedWeight& weight, int32_t out, float* dst) {
  for (int32_t k = 0; k < weight.in_features; ++k) dst[k] = PackedElement(weight, out, k);
}

}  // namespace avocet::ops
