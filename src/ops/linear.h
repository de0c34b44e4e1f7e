// y = x W^T, alone or grouped by expert. Work is split over the workers by output panels; a worker streams its panels once for all
// rows. Every output element is one accumulation over k in one fixed order, whatever the number of rows, workers or neighbours
// (design decision 3, invariant NUM-1). No op here ends with a barrier: Barrier() stands in the caller.
#pragma once

#include <cstdint>
#include <span>

#include "base/mat_view.h"
#include "device/worker_pool.h"
#include "ops/kernel_table.h"
#include "ops/packed_weight.h"
#include "ops/product_input.h"

namespace avocet::ops {

void Linear(const device::Worker& worker, const KernelTable& kernels, const InputView& x /*[rows, in]*/, const PackedWeight& weight,
            MatView<float> y /*[rows, out]*/, Accumulate accumulate = Accumulate::kStore);

// out = silu(x Wg^T) * (x Wu^T). `gate_up` has 2*intermediate output columns in alternating panels: 16 gate columns, then the 16 up
// columns of the same intermediate indices (the last pair padded when intermediate is no multiple of 16; out_features counts the
// padded columns). `out` is the shared buffer: its producer never replicates.
void LinearSwiGlu(const device::Worker& worker, const KernelTable& kernels, const InputView& x /*[rows, in]*/, const PackedWeight& gate_up,
                  const MutableInputView& out /*[rows, intermediate]*/);

// Which experts the rows of a step chose, sorted by expert: slot s in [offsets[e], offsets[e+1]) belongs to expert e and multiplies
// row `slot_row[s]`. Within an expert slots ascend by row. Built by GroupByExpert (rowwise.h).
struct ExpertGroups {
  std::span<const int32_t> offsets;         // [num_experts + 1]
  std::span<const int32_t> slot_row;        // [rows * top_k]
  std::span<const int32_t> active_experts;  // experts with at least one slot, ascending
  int32_t num_slots() const { return static_cast<int32_t>(slot_row.size()); }
};

// Grouped form: visits the union of chosen experts once. out[s] = swiglu of row slot_row[s] under its expert.
void GroupedLinearSwiGlu(const device::Worker& worker, const KernelTable& kernels, const InputView& x /*[rows, in]*/,
                         const ExpertGroups& groups, std::span<const PackedWeight> gate_up /*[num_experts]*/,
                         const MutableInputView& out /*[slots, intermediate]*/);

// y[s] = x[s] W_e^T for the expert e of slot s.
void GroupedLinear(const device::Worker& worker, const KernelTable& kernels, const InputView& x /*[slots, in]*/, const ExpertGroups& groups,
                   std::span<const PackedWeight> weights /*[num_experts]*/, MatView<float> y /*[slots, out]*/);

}  // namespace avocet::ops
