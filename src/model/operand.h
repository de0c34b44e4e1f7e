// The left operand of one kind of product, in the types that weights can ask for: products of float weights read `plain`, int8 ones rows
// that were rounded from f32 (ops/kernel_table.h, Int8Input). A checkpoint decides per matrix, so both may occur in one model.
// Executed by all workers.
#pragma once

#include <cstdint>
#include <span>

#include "device/worker_pool.h"
#include "ops/kernel_table.h"
#include "ops/packed_weight.h"
#include "ops/product_input.h"

namespace avocet::model {

struct LayerContext;

struct Operand {
  ops::ProductInput plain;
  // Only where the model has int8 weights:
  ops::ProductInput f32;  // what is rounded; a handle to the memory of `plain` where that is f32
  ops::ProductInput int8;
};

// norm(hidden) for the product with `weight`: int8, or in `plain`.
ops::InputView NormFor(device::Worker& worker, const LayerContext& context, std::span<const float> norm, const ops::PackedWeight& weight,
                       const ops::ProductInput& plain);

// norm(hidden) in f32 for routers and gates, and for the product with `weight`. Where products read bf16 the gates still read f32: a
// rounded router input would pick another expert in one of a hundred choices, and these matrices are too narrow to matter (ADR 3).
struct NormedRows {
  ops::InputView gates;
  ops::InputView products;
};
NormedRows NormForGates(device::Worker& worker, const LayerContext& context, std::span<const float> norm, const ops::PackedWeight& weight,
                        const ops::ProductInput& plain);

// Where a producer writes rows that `weight` will multiply; a Barrier() and ReadFor follow. ReadFor may contain a barrier.
ops::MutableInputView WriteFor(const Operand& operand, const ops::PackedWeight& weight, int32_t rows);
ops::InputView ReadFor(device::Worker& worker, const LayerContext& context, const Operand& operand, const ops::PackedWeight& weight,
                       int32_t rows);

}  // namespace avocet::model
