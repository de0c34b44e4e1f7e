// The avx512_bf16 family: as avx512, and products of bf16 by bf16 with vdpbf16ps and of int8 by int8 with vpdpbusd (two and four
// multiply-adds per lane and instruction). Compiled with its own flags; nothing outside sees them.
#include <immintrin.h>
#include <cstddef>
#include <cstdint>

#include "device/isa.h"
#include "ops/kernel_table.h"

namespace avocet::ops {
namespace avx512_bf16 {
namespace {

// Register blocks: panels that go with so many rows, one register per sum, thirty-two in all.
constexpr int kRowsWide = 6;
constexpr int kPanelsOfRows[kRowsWide + 1] = {0, 4, 4, 4, 4, 4, 4};
constexpr size_t kPieceBytes = 64 * 1024;  // of one panel: a group of four takes a part of the second-level cache
constexpr int kValueRows = 4;
constexpr int kValueCols = 4;
constexpr int kValuePairs = 2;
constexpr InputType kInt8Input = InputType::kInt8;
constexpr int kDeltaSlices = 2;

#include "ops/isa/vec_avx512.h"
//
#include "ops/isa/math_inl.h"
//
#include "ops/isa/linear_inl.h"
//

// vdpbf16ps for every number of rows: another instruction for more rows would round otherwise (design decision 3).
struct Bf16Bf16 {
  static constexpr int kParts = 1;
  static constexpr size_t kStepBytes = 64;
  static constexpr int kStepInputs = 2;
  static constexpr size_t kInputStepBytes = 4;
  using X = __m512i;
  using W = __m512i;
  template <int kPart>
  static inline X LoadX(const std::byte* x) {
    int32_t pair;
    __builtin_memcpy(&pair, x, 4);
    return _mm512_set1_epi32(pair);
  }
  template <int kPart>
  static inline W LoadW(const std::byte* w) {
    return _mm512_loadu_si512(w);
  }
  static inline V16 Step(V16 sum, X x, W w) { return {_mm512_dpbf16_ps(sum.v, (__m512bh)w, (__m512bh)x)}; }
};

// Four consecutive k with vpdpbusd; the same sums as Int8ByPairs.
struct Int8Dot {
  static constexpr int kParts = 1;
  static constexpr size_t kStepBytes = 64;
  static constexpr int kStepInputs = 4;
  static constexpr size_t kInputStepBytes = 4;
  using X = __m512i;
  using W = __m512i;
  template <int kPart>
  static inline X LoadX(const std::byte* x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
  }
  template <int kPart>
  static inline W LoadW(const std::byte* w) {
    return _mm512_loadu_si512(w);
  }
  static inline V16 Step(V16 sum, X x, W w) { return {_mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(sum.v), x, w))}; }
};

#include "ops/isa/attention_inl.h"
//
#include "ops/isa/delta_rule_inl.h"
//
#include "ops/isa/rowwise_inl.h"

}  // namespace
}  // namespace avx512_bf16

const KernelTable kAvx512Bf16Kernels = {
    .isa = device::Isa::kAvx512Bf16,
    .name = "avx512_bf16",
    .product_input_type = InputType::kBf16,
    .int8_input_type = avx512_bf16::kInt8Input,
    .linear_f32_bf16 = avx512_bf16::Product<avx512_bf16::F32Bf16, avx512_bf16::StoreSums>,
    .linear_f32_f32 = avx512_bf16::Product<avx512_bf16::F32F32, avx512_bf16::StoreSums>,
    .linear_bf16_bf16 = avx512_bf16::Product<avx512_bf16::Bf16Bf16, avx512_bf16::StoreSums>,
    .linear_int8_int8 = avx512_bf16::Product<avx512_bf16::Int8Dot, avx512_bf16::StoreInt8Sums>,
    .swiglu_f32_bf16 = avx512_bf16::Product<avx512_bf16::F32Bf16, avx512_bf16::StoreSwiGlu>,
    .swiglu_f32_f32 = avx512_bf16::Product<avx512_bf16::F32F32, avx512_bf16::StoreSwiGlu>,
    .swiglu_bf16_bf16 = avx512_bf16::Product<avx512_bf16::Bf16Bf16, avx512_bf16::StoreSwiGlu>,
    .swiglu_int8_int8 = avx512_bf16::Product<avx512_bf16::Int8Dot, avx512_bf16::StoreInt8SwiGlu>,
    .quantize = avx512_bf16::Quantize,
    .attention_split = avx512_bf16::AttentionSplit,
    .attention_merge = avx512_bf16::AttentionMerge,
    .attention_gate = avx512_bf16::AttentionGate,
    .delta_rule = avx512_bf16::DeltaRule,
    .conv_silu = avx512_bf16::ConvSilu,
    .norm = avx512_bf16::Norm,
    .combine = avx512_bf16::Combine,
    .dot = avx512_bf16::Dot,
    .scale = avx512_bf16::Scale,
    .argmax = avx512_bf16::ArgMaxRow,
    .sum_exp = avx512_bf16::SumExp,
};

}  // namespace avocet::ops
