// Kernels are unchecked functions for one thread and one tile, in one table per instruction set, chosen once from cpuid. `ref` is a
// complete table, plain and written differently: it is the truth (NUM-2: every family agrees with it within rounding). Argument structs are
// plain data; shapes were checked by the op. A kernel never sees a worker, a barrier or a model word.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/isa.h"

namespace avocet::ops {

// Of a product's left operand. int8 is stored as q + 128, with a scale for every row beside it (product_input.h): kInt8 as bytes, for
// dot products of bytes; kInt8Pairs as int16, every four k in the order 0, 2, 1, 3, for families that multiply pairs of int16.
enum class InputType : uint8_t { kF32, kBf16, kInt8, kInt8Pairs };

constexpr bool IsInt8(InputType type) {
  return type == InputType::kInt8 || type == InputType::kInt8Pairs;
}
enum class WeightFormat : uint8_t { kBf16, kF32, kInt8 };  // of packed panels (packed_weight.h)
enum class KvType : uint8_t { kBf16, kF32 };               // of cached keys and values
enum class Accumulate : uint8_t { kStore, kAdd };          // y = xW^T, or y += xW^T (the residual stream)

// Rows of x times `num_panels` consecutive panels. Row i of the product reads x row (row_index ? row_index[i] : i).
struct LinearArgs {
  const std::byte* x = nullptr;  // rows of in_features elements, an even count readable (padding is zero)
  size_t x_row_bytes = 0;
  const int32_t* row_index = nullptr;  // gather, or nullptr
  const float* row_scales = nullptr;   // int8 only: of every x row, indexed as x is
  int32_t rows = 0;
  int32_t in_features = 0;
  const std::byte* panels = nullptr;  // the first panel
  size_t panel_bytes = 0;
  int32_t num_panels = 0;
  // linear: f32 results. swiglu: panels alternate gate, up; out gets silu(gate) * up.
  std::byte* out = nullptr;  // at the first panel's column
  size_t out_row_bytes = 0;
  int32_t out_cols = 0;                        // valid columns from there: the last panel may be partial
  Accumulate accumulate = Accumulate::kStore;  // linear only
  InputType out_type = InputType::kF32;        // swiglu only: kF32 or kBf16
};

// One split of the context for queries that share a K/V head. Token t of the split is token `t % page_tokens` of page t / page_tokens.
struct AttentionArgs {
  const float* const* queries = nullptr;  // [num_queries], head_dim values each, already scaled
  const int32_t* limits = nullptr;        // [num_queries] tokens of this split that the query may see; at least 1
  int32_t num_queries = 0;
  int32_t head_dim = 0;  // even
  KvType type = KvType::kBf16;
  const std::byte* const* k = nullptr;  // per page: K of this head, [page_tokens/16][head_dim/2][16][2] bf16 or [..][head_dim][16] f32
  const std::byte* const* v = nullptr;  // per page: V of this head, [page_tokens][head_dim]
  int32_t page_tokens = 0;
  float* scores = nullptr;  // scratch [num_queries][kSplitTokens]
  float* out = nullptr;     // [num_queries][head_dim]: sum of exp(score - max) v
  float* max = nullptr;     // [num_queries]
  float* sum = nullptr;     // [num_queries]
};

// The delta rule over `num_tokens` tokens of one value head (model.md 2.9, step 7).
struct DeltaRuleArgs {
  int32_t num_tokens = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  const float* q = nullptr;  // [tokens, key_dim], normalised and scaled
  const float* k = nullptr;  // [tokens, key_dim], normalised
  int32_t qk_ld = 0;
  const float* v = nullptr;  // [tokens, value_dim]
  int32_t v_ld = 0;
  const float* decay = nullptr;  // [tokens], exp(g)
  const float* beta = nullptr;   // [tokens]
  const float* kq = nullptr;     // [tokens], k . q
  float* state = nullptr;        // [value_dim/16 rounded up][key_dim][16]
  float* out = nullptr;          // [tokens, value_dim]
  int32_t out_ld = 0;
};

// Causal depthwise convolution and SiLU over channels [0, channels) of consecutive rows.
struct ConvArgs {
  int32_t num_tokens = 0;
  int32_t channels = 0;
  int32_t taps = 0;
  const float* x = nullptr;  // [tokens, channels] raw inputs
  int32_t x_ld = 0;
  const float* const* history = nullptr;  // [taps-1] rows before the first token, oldest first
  const float* weight = nullptr;          // [channels, taps]
  float* out = nullptr;                   // [tokens, channels]
  int32_t out_ld = 0;
};

// out = x * rsqrt(mean(x^2) + eps) * weight [* silu(gate)], converted to out_type.
struct NormArgs {
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* gate = nullptr;  // nullptr: no gate
  int32_t size = 0;
  float eps = 0;
  InputType out_type = InputType::kF32;
  std::byte* out = nullptr;
};

// hidden[c] += sum over j of weights[j] * rows[j][c], then + shared_scale * shared[c] if there is one.
struct CombineArgs {
  float* hidden = nullptr;
  int32_t size = 0;
  const float* const* rows = nullptr;  // [count]
  const float* weights = nullptr;      // [count]
  int32_t count = 0;
  const float* shared = nullptr;  // nullptr: none
  float shared_scale = 0;
};

// Combines an attention split into the running result: max, sum and acc are rescaled to the new maximum.
struct MergeArgs {
  float* acc = nullptr;
  float* max = nullptr;
  float* sum = nullptr;
  const float* split_acc = nullptr;
  float split_max = 0;
  float split_sum = 0;
  int32_t size = 0;
};

// out = acc / sum * sigmoid(gate), converted.
struct GateArgs {
  const float* acc = nullptr;
  float sum = 1;
  const float* gate = nullptr;
  int32_t size = 0;
  InputType out_type = InputType::kF32;
  std::byte* out = nullptr;
};

// How f32 values become int8: q = round half to even (x / scale + offset), clipped to -128..127. A scale of 0 stands for a scale of the
// row's own: max|x| / 127 (1 for a row of zeros), no offset.
struct Int8Input {
  float scale = 0;
  float offset = 0;

  bool is_dynamic() const { return scale == 0; }
  bool operator==(const Int8Input&) const = default;
};

// One row to int8 in the family's int8_input_type, and the scale that its products are multiplied with: the row's own, or 1 where the
// input's is fixed (it is part of the weight's then).
struct QuantizeArgs {
  const float* x = nullptr;
  int32_t size = 0;
  Int8Input input;
  std::byte* out = nullptr;
  float* row_scale = nullptr;
};

struct KernelTable {
  device::Isa isa;
  const char* name = "";
  // What producers write and products read when the weights are bf16: bf16 where the instruction set multiplies bf16.
  InputType product_input_type = InputType::kF32;
  InputType int8_input_type = InputType::kInt8;  // what `quantize` writes and int8 products read

  // By input and weight: (f32, bf16), (f32, f32), (bf16, bf16), (int8, int8). The third is nullptr where product_input_type is f32.
  void (*linear_f32_bf16)(const LinearArgs&) = nullptr;
  void (*linear_f32_f32)(const LinearArgs&) = nullptr;
  void (*linear_bf16_bf16)(const LinearArgs&) = nullptr;
  void (*linear_int8_int8)(const LinearArgs&) = nullptr;
  void (*swiglu_f32_bf16)(const LinearArgs&) = nullptr;
  void (*swiglu_f32_f32)(const LinearArgs&) = nullptr;
  void (*swiglu_bf16_bf16)(const LinearArgs&) = nullptr;
  void (*swiglu_int8_int8)(const LinearArgs&) = nullptr;
  void (*quantize)(const QuantizeArgs&) = nullptr;

  void (*attention_split)(const AttentionArgs&) = nullptr;
  void (*attention_merge)(const MergeArgs&) = nullptr;
  void (*attention_gate)(const GateArgs&) = nullptr;
  void (*delta_rule)(const DeltaRuleArgs&) = nullptr;
  void (*conv_silu)(const ConvArgs&) = nullptr;
  void (*norm)(const NormArgs&) = nullptr;
  void (*combine)(const CombineArgs&) = nullptr;
  float (*dot)(const float* a, const float* b, int32_t size) = nullptr;
  // x[i] *= scale
  void (*scale)(float* x, int32_t size, float scale) = nullptr;
  // Largest value and its lowest index; NaN never wins; -1 when nothing does.
  void (*argmax)(const float* x, int32_t size, float* max, int32_t* index) = nullptr;
  // sum of exp(x - max)
  float (*sum_exp)(const float* x, int32_t size, float max) = nullptr;
};

const KernelTable& KernelsFor(device::Isa isa);

// The tables themselves, one per unit.
extern const KernelTable kRefKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;
#endif

}  // namespace avocet::ops
