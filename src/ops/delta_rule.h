// Gated DeltaNet mixer between its two projections (model.md 2.9): causal convolution + SiLU, L2 norms, gates, the delta rule, gated
// RMSNorm. One task per (sequence, key head): its convolution channels, its value heads and their states belong to nobody else, so
// the whole mixer needs no barrier inside.
//
// One arithmetic (design decision 3): a token's update is the same f32 operations in the same order alone, in a chunk or in
// verification. The state of a value head is stored in slices of 16 value columns, [value_dim/16][key_dim][16], so that a slice
// (8 KB) stays in L1 while a chunk runs through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/mat_view.h"
#include "device/worker_pool.h"
#include "ops/kernel_table.h"
#include "ops/product_input.h"

namespace avocet::ops {

struct DeltaNetShape {
  int32_t num_key_heads = 0;
  int32_t num_value_heads = 0;  // a multiple of num_key_heads; value head i uses key head i / (num_value_heads / num_key_heads)
  int32_t key_dim = 0;          // per head
  int32_t value_dim = 0;        // per head; any positive number (padded to 16 in the state)
  int32_t conv_kernel = 0;      // taps, 4

  int32_t conv_dim() const { return 2 * num_key_heads * key_dim + num_value_heads * value_dim; }
  int32_t total_value_dim() const { return num_value_heads * value_dim; }
};

// f32 elements of one sequence's state in one layer.
size_t RecurrentStateFloats(const DeltaNetShape& shape);
size_t ConvStateFloats(const DeltaNetShape& shape);  // the last conv_kernel-1 raw inputs of every channel, in delta_rule.cpp's order

struct DeltaNetParams {
  std::span<const float> conv_weight;  // [conv_dim, conv_kernel] as stored: tap conv_kernel-1 multiplies the current token
  std::span<const float> a_log;        // [num_value_heads]
  std::span<const float> dt_bias;      // [num_value_heads]
  std::span<const float> norm;         // [value_dim], used as is (not 1+w)
  float eps = 1e-6f;
};

// f32 elements that one draft row leaves behind in one layer.
size_t DraftRowFloats(const DeltaNetShape& shape);

// Consecutive rows of one sequence. Position 0 starts from a zero state whatever the memory holds.
//
// The last `num_drafts` rows may turn out wrong: they see the state as if it had advanced, but it stays before them, and what they would
// have applied is kept in `drafts`. The next span of the sequence applies the first `num_pending` of them before its own rows. So there is
// one state per sequence however many drafts, and a rejected row costs nothing (STATE-3).
struct DeltaNetSpan {
  int32_t row_begin = 0;
  int32_t num_rows = 0;
  int32_t first_position = 0;  // of row_begin; the state stands num_pending positions before it
  int32_t num_drafts = 0;
  int32_t num_pending = 0;
  float* recurrent = nullptr;  // [RecurrentStateFloats]
  float* conv = nullptr;       // [ConvStateFloats]
  float* drafts = nullptr;     // [rows of drafts][DraftRowFloats]; read and written only if there are any
};

size_t DeltaNetScratchBytes(const DeltaNetShape& shape, int32_t max_rows, int32_t num_workers);

// qkvz row = q | k | v (conv channels) | z; ba row = b | a. `out` is the shared buffer; Barrier after. States advance to the last
// row that is no draft.
void DeltaNet(const device::Worker& worker, const KernelTable& kernels, const DeltaNetShape& shape, const DeltaNetParams& params,
              MatView<const float> qkvz /*[rows, conv_dim + total_value_dim]*/, MatView<const float> ba /*[rows, 2*num_value_heads]*/,
              std::span<const DeltaNetSpan> spans, std::span<std::byte> scratch, const MutableInputView& out /*[rows, total_value_dim]*/);

// The state of one value head as a plain [key_dim][value_dim] matrix: for tests.
void UnpackRecurrentState(const DeltaNetShape& shape, const float* recurrent, int32_t value_head, float* dst);

}  // namespace avocet::ops
