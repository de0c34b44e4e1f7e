// The avx512 family: AVX-512 F, BW, DQ and VL, thirty-two registers of sixteen lanes. Compiled with its own flags; nothing outside sees
// them.
#include <immintrin.h>
#include <cstddef>
#include <cstdint>

#include "device/isa.h"
#include "ops/kernel_table.h"

namespace avocet::ops {
namespace avx512 {
namespace {

// Register blocks: panels that go with so many rows, one register per sum, thirty-two in all.
constexpr int kRowsWide = 6;
constexpr int kPanelsOfRows[kRowsWide + 1] = {0, 4, 4, 4, 4, 4, 4};
constexpr size_t kPieceBytes = 64 * 1024;  // of one panel: a group of four takes a part of the second-level cache
constexpr int kValueRows = 4;
constexpr int kValueCols = 4;
constexpr int kValuePairs = 2;
constexpr InputType kInt8Input = InputType::kInt8Pairs;
constexpr int kDeltaSlices = 2;

#include "ops/isa/vec_avx512.h"
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
}  // namespace avx512

const KernelTable kAvx512Kernels = {
    .isa = device::Isa::kAvx512,
    .name = "avx512",
    .product_input_type = InputType::kF32,
    .int8_input_type = avx512::kInt8Input,
    .linear_f32_bf16 = avx512::Product<avx512::F32Bf16, avx512::StoreSums>,
    .linear_f32_f32 = avx512::Product<avx512::F32F32, avx512::StoreSums>,
    .linear_int8_int8 = avx512::Product<avx512::Int8ByPairs, avx512::StoreInt8Sums>,
    .swiglu_f32_bf16 = avx512::Product<avx512::F32Bf16, avx512::StoreSwiGlu>,
    .swiglu_f32_f32 = avx512::Product<avx512::F32F32, avx512::StoreSwiGlu>,
    .swiglu_int8_int8 = avx512::Product<avx512::Int8ByPairs, avx512::StoreInt8SwiGlu>,
    .quantize = avx512::Quantize,
    .attention_split = avx512::AttentionSplit,
    .attention_merge = avx512::AttentionMerge,
    .attention_gate = avx512::AttentionGate,
    .delta_rule = avx512::DeltaRule,
    .conv_silu = avx512::ConvSilu,
    .norm = avx512::Norm,
    .combine = avx512::Combine,
    .dot = avx512::Dot,
    .scale = avx512::Scale,
    .argmax = avx512::ArgMaxRow,
    .sum_exp = avx512::SumExp,
};

}  // namespace avocet::ops
