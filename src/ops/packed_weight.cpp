#include "ops/packed_weight.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/bf16.h"

namespace avocet::ops {
namespace {

// A panel is a transposition of 32-bit words: two bf16 or one f32. Words that have to be made first (conversion, missing columns) are
// made a block at a time.
constexpr int32_t kBlockWords = 64;
using BlockWords = std::array<std::array<uint32_t, kBlockWords>, kPanelCols>;

uint16_t Load16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return bits;
}

uint32_t Load32(const std::byte* p) {
  uint32_t bits;
  std::memcpy(&bits, p, 4);
  return bits;
}

float SourceElement(SourceType type, const std::byte* row, int32_t k) {
  const std::byte* p = row + static_cast<size_t>(k) * SourceBytes(type);
  switch (type) {
    case SourceType::kBf16: return ToF32(Bf16{Load16(p)});
    case SourceType::kF16: return ToF32(F16{Load16(p)});
    case SourceType::kInt8:
    case SourceType::kF8E4M3:
    case SourceType::kF32: break;
  }
  return std::bit_cast<float>(Load32(p));
}

#if defined(__SSE2__)
// Four words of four rows: dst gets word w of them at w * kPanelCols words.
void Transpose4x4(const std::byte* const rows[4], size_t offset, std::byte* dst) {
  const auto row = [&](int r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + offset)); };
  const __m128i ab_low = _mm_unpacklo_epi32(row(0), row(1)), ab_high = _mm_unpackhi_epi32(row(0), row(1));
  const __m128i cd_low = _mm_unpacklo_epi32(row(2), row(3)), cd_high = _mm_unpackhi_epi32(row(2), row(3));
  const auto store = [&](size_t word, __m128i value) { _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + word * kPanelCols * 4), value); };
  store(0, _mm_unpacklo_epi64(ab_low, cd_low));
  store(1, _mm_unpackhi_epi64(ab_low, cd_low));
  store(2, _mm_unpacklo_epi64(ab_high, cd_high));
  store(3, _mm_unpackhi_epi64(ab_high, cd_high));
}
#endif

// Word w of row c becomes word w * kPanelCols + c of dst.
void TransposeWords(const std::byte* const rows[kPanelCols], int32_t num_words, std::byte* dst) {
  int32_t w = 0;
#if defined(__SSE2__)
  for (; w + 4 <= num_words; w += 4) {
    const size_t offset = static_cast<size_t>(w) * 4;
    for (size_t c = 0; c < kPanelCols; c += 4) Transpose4x4(rows + c, offset, dst + (offset * kPanelCols) + c * 4);
  }
#endif
  for (; w < num_words; ++w) {
    for (int32_t c = 0; c < kPanelCols; ++c) {
      std::memcpy(dst + (static_cast<size_t>(w) * kPanelCols + static_cast<size_t>(c)) * 4, rows[c] + static_cast<size_t>(w) * 4, 4);
    }
  }
}

// Word `w` of a panel column whose elements are row[0, in_features).
template <WeightFormat kFormat>
uint32_t MakeWord(SourceType source, const std::byte* row, int32_t in_features, int32_t w) {
  if (kFormat == WeightFormat::kF32) return std::bit_cast<uint32_t>(SourceElement(source, row, w));
  const uint32_t low = ToBf16(SourceElement(source, row, 2 * w)).bits;
  const uint32_t high = 2 * w + 1 < in_features ? ToBf16(SourceElement(source, row, 2 * w + 1)).bits : 0;
  return low | high << 16;
}

template <WeightFormat kFormat>
void PackMadeWords(SourceType source, const std::byte* const rows[kPanelCols], int32_t in_features, int32_t first, int32_t num_words,
                   std::byte* dst) {
  BlockWords words;
  const std::byte* made[kPanelCols];
  for (size_t c = 0; c < kPanelCols; ++c) made[c] = reinterpret_cast<const std::byte*>(words[c].data());
  for (int32_t begin = first; begin < num_words; begin += kBlockWords) {
    const int32_t count = std::min(kBlockWords, num_words - begin);
    for (size_t c = 0; c < kPanelCols; ++c) {
      for (int32_t i = 0; i < count; ++i) {
        words[c][static_cast<size_t>(i)] = rows[c] != nullptr ? MakeWord<kFormat>(source, rows[c], in_features, begin + i) : 0;
      }
    }
    TransposeWords(made, count, dst + static_cast<size_t>(begin) * kPanelCols * 4);
  }
}

}  // namespace

void PackPanel(WeightFormat format, SourceType source, const std::byte* const rows[kPanelCols], int32_t in_features, std::byte* dst) {
  const int32_t num_words = format == WeightFormat::kBf16 ? (in_features + 1) / 2 : in_features;
  const bool is_same = source == (format == WeightFormat::kBf16 ? SourceType::kBf16 : SourceType::kF32);
  int32_t done = 0;
  if (is_same && std::find(rows, rows + kPanelCols, nullptr) == rows + kPanelCols) {
    done = format == WeightFormat::kBf16 ? in_features / 2 : in_features;
    TransposeWords(rows, done, dst);
  }
  if (format == WeightFormat::kBf16) {
    PackMadeWords<WeightFormat::kBf16>(source, rows, in_features, done, num_words, dst);
  } else {
    PackMadeWords<WeightFormat::kF32>(source, rows, in_features, done, num_words, dst);
  }
}

void PackInt8Panel(const int8_t* const rows[kPanelCols], const float scales[kPanelCols], const int32_t biases[kPanelCols],
                   int32_t in_features, std::byte* dst) {
  const std::byte* bytes[kPanelCols];
  std::copy(rows, rows + kPanelCols, reinterpret_cast<const int8_t**>(bytes));
  const int32_t num_words = (in_features + 3) / 4;
  int32_t done = 0;
  if (std::find(rows, rows + kPanelCols, nullptr) == rows + kPanelCols) {
    done = in_features / 4;
    TransposeWords(bytes, done, dst);
  }
  for (int32_t w = done; w < num_words; ++w) {
    for (int32_t c = 0; c < kPanelCols; ++c) {
      std::array<int8_t, 4> word{};
      const int32_t count = std::min(4, in_features - 4 * w);
      if (rows[c] != nullptr) std::copy_n(rows[c] + static_cast<size_t>(w) * 4, count, word.begin());
      std::memcpy(dst + (static_cast<size_t>(w) * kPanelCols + static_cast<size_t>(c)) * 4, word.data(), 4);
    }
  }
  float* scale = reinterpret_cast<float*>(dst + static_cast<size_t>(num_words) * kPanelCols * 4);
  auto* bias = reinterpret_cast<int32_t*>(scale + kPanelCols);
  for (int32_t c = 0; c < kPanelCols; ++c) {
    int32_t sum = 0;
    for (int32_t k = 0; rows[c] != nullptr && k < in_features; ++k) sum += rows[c][k];
    scale[c] = rows[c] != nullptr ? scales[c] : 0.0f;
    // Wraps as the kernels' sums do: only the total has to fit.
    bias[c] = static_cast<int32_t>(static_cast<uint32_t>(rows[c] != nullptr ? biases[c] : 0) - 128u * static_cast<uint32_t>(sum));
  }
}

float QuantizeWeightRow(std::span<const float> row, int8_t* q) {
  float max = 0;
  for (const float w : row) max = std::max(max, std::fabs(w));
  const float scale = max > 0 ? max / 127.0f : 1.0f;
  for (size_t k = 0; k < row.size(); ++k) {
    q[k] = static_cast<int8_t>(std::clamp(std::nearbyint(row[k] / scale), -128.0f, 127.0f));
  }
  return scale;
}

float PackedElement(const PackedWeight& weight, int32_t out, int32_t in) {
  const std::byte* panel = weight.data + static_cast<size_t>(out / kPanelCols) * PanelBytes(weight.format, weight.in_features);
  const auto col = static_cast<size_t>(out % kPanelCols);
  if (weight.format == WeightFormat::kInt8) {
    const auto words = static_cast<size_t>((weight.in_features + 3) / 4);
    const auto q = static_cast<int8_t>(panel[(static_cast<size_t>(in / 4) * kPanelCols + col) * 4 + static_cast<size_t>(in % 4)]);
    return static_cast<float>(q) * std::bit_cast<float>(Load32(panel + (words * kPanelCols + col) * 4));
  }
  if (weight.format == WeightFormat::kBf16) {
    return ToF32(Bf16{Load16(panel + (static_cast<size_t>(in / 2) * kPanelCols + col) * 4 + static_cast<size_t>(in % 2) * 2)});
  }
  float value;
  std::memcpy(&value, panel + (static_cast<size_t>(in) * kPanelCols + col) * 4, 4);
  return value;
}

void UnpackRow(const PackedWeight& weight, int32_t out, float* dst) {
  const std::byte* word = weight.data + static_cast<size_t>(out / kPanelCols) * PanelBytes(weight.format, weight.in_features) +
                          static_cast<size_t>(out % kPanelCols) * 4;
  const size_t stride = kPanelCols * 4;
  if (weight.format == WeightFormat::kInt8) {
    const auto words = static_cast<size_t>((weight.in_features + 3) / 4);
    const float scale = std::bit_cast<float>(Load32(word + words * stride));
    for (int32_t k = 0; k < weight.in_features; ++k) {
      dst[k] = static_cast<float>(static_cast<int8_t>(word[static_cast<size_t>(k / 4) * stride + static_cast<size_t>(k % 4)])) * scale;
    }
    return;
  }
  if (weight.format == WeightFormat::kF32) {
    for (int32_t k = 0; k < weight.in_features; ++k, word += stride) dst[k] = std::bit_cast<float>(Load32(word));
    return;
  }
  for (int32_t k = 0; k < weight.in_features; k += 2, word += stride) {
    const uint32_t pair = Load32(word);
    dst[k] = std::bit_cast<float>(pair << 16);
    if (k + 1 < weight.in_features) dst[k + 1] = std::bit_cast<float>(pair & 0xffff0000u);
  }
}

}  // namespace avocet::ops
