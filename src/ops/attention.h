// Gated attention over a paged K/V cache. One implementation for decode (one row), chunks and verification (many rows of one
// sequence). Each row attends positions 0..its own, in splits of kSplitTokens by position, combined in ascending order: the result
// of a row is the same bits for any chunking, page size, batch and number of workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/mat_view.h"
#include "device/worker_pool.h"
#include "ops/kernel_table.h"
#include "ops/product_input.h"

namespace avocet::ops {

inline constexpr int32_t kSplitTokens = 512;  // positions per split; a multiple of every page size

// The K/V memory of one attention layer: page p starts at data + p * page_bytes. Layout inside a page is the kernels' business
// (K transposed over tokens, V by token; see attention.cpp); it is written only by StoreKv.
struct KvLayer {
  KvType type = KvType::kBf16;
  std::byte* data = nullptr;
  size_t page_bytes = 0;
  int32_t page_tokens = 0;  // a multiple of 16, divides kSplitTokens
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
};
size_t KvPageBytes(KvType type, int32_t page_tokens, int32_t num_kv_heads, int32_t head_dim);

// Consecutive rows of one sequence in this step. pages[i] holds positions i*page_tokens ...
struct AttentionSpan {
  int32_t row_begin = 0;
  int32_t num_rows = 0;
  int32_t first_position = 0;     // position of row_begin; earlier positions are in the cache
  std::span<const PageId> pages;  // covers first_position + num_rows positions
};

struct AttentionShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t rotary_dim = 0;  // leading dims that rotate, pairs (d, d + rotary_dim/2)
};

// cos/sin of every row of the step, computed once per step and used by all layers.
struct RopeAngles {
  MatView<const float> cos;  // [rows, rotary_dim/2]
  MatView<const float> sin;
};

// Workers share the rows. positions: axis-major [3][rows] (T, H, W); `axis[j]` names the axis of frequency j (interleaved M-RoPE,
// model.md 2.8); inv_freq [rotary_dim/2] in f32; `scale` multiplies cos and sin (YaRN's attention factor, else 1).
void ComputeRopeAngles(const device::Worker& worker, MatView<const int32_t> positions /*[3, rows]*/, std::span<const float> inv_freq,
                       std::span<const uint8_t> axis, float scale, MatView<float> cos, MatView<float> sin);

// qkv row = per query head [query head_dim | gate head_dim], then k heads, then v heads. Normalises q and k per head (zero-centred
// weights given as 1+w), rotates them, leaves q in place, writes k and v to the pages. Workers share (row, head) pairs; Barrier after.
void PrepareQkvAndStore(const device::Worker& worker, const KernelTable& kernels, const AttentionShape& shape, MatView<float> qkv,
                        std::span<const float> q_norm /*[head_dim], 1+w*/, std::span<const float> k_norm, float eps, const RopeAngles& rope,
                        std::span<const AttentionSpan> spans, const KvLayer& kv);

// Scratch for partial results of long contexts; sized at start.
size_t AttentionScratchBytes(const AttentionShape& shape, int32_t max_rows, int32_t max_context, int32_t num_workers);

// out[row] = softmax(q k^T / sqrt(head_dim)) v * sigmoid(gate), for all heads. Contains the barrier between splits and combination when
// the step needs one. `out` is the shared buffer; Barrier after.
void Attention(device::Worker& worker, const KernelTable& kernels, const AttentionShape& shape, MatView<const float> qkv,
               std::span<const AttentionSpan> spans, const KvLayer& kv, std::span<std::byte> scratch,
               const MutableInputView& out /*[rows, num_heads*head_dim]*/);

}  // namespace avocet::ops
