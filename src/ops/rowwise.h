// Operations on single rows: norms, embedding lookup, the router, combining experts, and reductions over the vocabulary.
#pragma once

#include <cstdint>
#include <span>

#include "base/mat_view.h"
#include "device/worker_pool.h"
#include "ops/kernel_table.h"
#include "ops/linear.h"
#include "ops/packed_weight.h"
#include "ops/product_input.h"

namespace avocet::ops {

// y = x * rsqrt(mean(x^2) + eps) * weight, weight = 1+w for the family's zero-centred norms. Replicates few rows (product_input.h);
// otherwise workers share the rows and the op ends with a Barrier, so `out.Replicated(worker, rows)` is always ready to read.
// An int8 `out` gets the rounded norm, as `input` says.
void RmsNorm(device::Worker& worker, const KernelTable& kernels, MatView<const float> x /*[rows, hidden]*/,
             std::span<const float> weight /*[hidden]*/, float eps, const ProductInput& out, Int8Input input = {});

// As RmsNorm, for chosen rows of x (the rows whose logits are wanted).
void RmsNormRows(device::Worker& worker, const KernelTable& kernels, MatView<const float> x, std::span<const int32_t> rows,
                 std::span<const float> weight, float eps, const ProductInput& out /*[rows.size(), hidden]*/, Int8Input input = {});

// Rows of f32 as an int8 operand; replicates and shares as RmsNorm does.
void QuantizeRows(device::Worker& worker, const KernelTable& kernels, const InputView& x /*[rows, cols], f32*/, Int8Input input,
                  const ProductInput& out);

// out[r] = norm(x[r]) | norm(y[y_rows[r]]), one after the other. Workers share the rows as GatherEmbedding does, so x may be what that
// has just written; Barrier after.
void RmsNormPairs(const device::Worker& worker, const KernelTable& kernels, MatView<const float> x /*[rows, hidden]*/,
                  std::span<const float> x_weight, MatView<const float> y, std::span<const int32_t> y_rows /*[rows]*/,
                  std::span<const float> y_weight, float eps, const MutableInputView& out /*[rows, 2*hidden], f32*/);

// out[r] = row token_ids[r] of the table. Workers share the rows.
void GatherEmbedding(const device::Worker& worker, std::span<const int32_t> token_ids, const PackedWeight& table, MatView<float> out);

// For each row: softmax over all experts in f32, the top_k largest (ties: lowest index first), renormalised to sum 1, sorted by
// ascending expert id. Every worker may compute all rows into its own memory, or share the rows.
void RouteTopK(const KernelTable& kernels, MatView<const float> router_logits /*[rows, num_experts]*/, int32_t top_k,
               MatView<int32_t> experts /*[rows, top_k]*/, MatView<float> weights /*[rows, top_k]*/);

// Counting sort of (row, choice) by expert. slot_of[row, j] = slot of the row's j-th expert. All spans are caller memory.
ExpertGroups GroupByExpert(MatView<const int32_t> experts /*[rows, top_k]*/, int32_t num_experts,
                           std::span<int32_t> offsets /*[num_experts+1]*/, std::span<int32_t> slot_row /*[rows*top_k]*/,
                           std::span<int32_t> active_experts /*[num_experts]*/, MatView<int32_t> slot_of /*[rows, top_k]*/);

// hidden[row] += sum over j ascending of weights[row,j] * expert_out[slot_of[row,j]]  +  sigmoid(shared_gate[row]) * shared_out[row].
// Workers share (rows, columns). shared_out with zero rows: there is no shared expert.
void CombineExperts(const device::Worker& worker, const KernelTable& kernels, MatView<const float> expert_out /*[slots, hidden]*/,
                    MatView<const int32_t> slot_of, MatView<const float> weights, MatView<const float> shared_out /*[rows, hidden]*/,
                    MatView<const float> shared_gate /*[rows, 1]*/, MatView<float> hidden);

struct MaxResult {
  float value = 0;
  int32_t index = -1;  // lowest index among equal maxima; -1 for an empty or all-NaN row
};
// Over one row of logits. NaN never wins.
MaxResult ArgMax(const KernelTable& kernels, std::span<const float> row);
// log(sum exp(row - max)) + max, in a fixed order (the same bits wherever it runs within one kernel family).
float LogSumExp(const KernelTable& kernels, std::span<const float> row, float max);

}  // namespace avocet::ops
