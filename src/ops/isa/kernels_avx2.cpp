// The avx2 family: AVX2, FMA and F16C, sixteen registers of eight lanes. Compiled with its own flags; nothing outside sees them.
#include <immintrin.h>
#include <cstddef>
#include <cstdint>

#include "device/isa.h"
#include "ops/kernel_table.h"

namespace avocet::ops {
namespace avx2 {
namespace {

// Register blocks: panels that go with so many rows, two registers per sum, three for the operands, sixteen in all.
constexpr int kRowsWide = 6;
constexpr int kPanelsOfRows[kRowsWide + 1] = {0, 4, 2, 2, 1, 1, 1};
constexpr size_t kPieceBytes = 16 * 1024;  // of one panel: a group of four takes a part of the second-level cache
constexpr int kValueRows = 4;
constexpr int kValueCols = 1;
constexpr int kValuePairs = 0;
constexpr InputType kInt8Input = InputType::kInt8Pairs;
constexpr int kDeltaSlices = 1;

#include "ops/isa/vec_avx2.h"
//
#include "ops/isa/math_inl.h"
//
#include "ops/isa/linear_inl.h"
//
#include "ops/isa/attention_inl.h"
//
#include "ops/isa/delta_rule_inl.h"
//
#include "ops/isa/rowwise_inl.h"

}  // namespace
}  // namespace avx2

const KernelTable kAvx2Kernels = {
    .isa = device::Isa::kAvx2,
    .name = "avx2",
    .product_input_type = InputType::kF32,
    .int8_input_type = avx2::kInt8Input,
    .linear_f32_bf16 = avx2::Product<avx2::F32Bf16, avx2::StoreSums>,
    .linear_f32_f32 = avx2::Product<avx2::F32F32, avx2::StoreSums>,
    .linear_int8_int8 = avx2::Product<avx2::Int8ByPairs, avx2::StoreInt8Sums>,
    .swiglu_f32_bf16 = avx2::Product<avx2::F32Bf16, avx2::StoreSwiGlu>,
    .swiglu_f32_f32 = avx2::Product<avx2::F32F32, avx2::StoreSwiGlu>,
    .swiglu_int8_int8 = avx2::Product<avx2::Int8ByPairs, avx2::StoreInt8SwiGlu>,
    .quantize = avx2::Quantize,
    .attention_split = avx2::AttentionSplit,
    .attention_merge = avx2::AttentionMerge,
    .attention_gate = avx2::AttentionGate,
    .delta_rule = avx2::DeltaRule,
    .conv_silu = avx2::ConvSilu,
    .norm = avx2::Norm,
    .combine = avx2::Combine,
    .dot = avx2::Dot,
    .scale = avx2::Scale,
    .argmax = avx2::ArgMaxRow,
    .sum_exp = avx2::SumExp,
};

}  // namespace avocet::ops
