// The second half of loading: rows that were declared and checked, in files, become panels in memory. All workers take tasks of about a
// megabyte from one counter, in file order, so that a disk reads ahead; a worker reads the rows of a task into a buffer of its own, which
// stays in its cache, and packs them from there.
// Internal to weights/. Owner: the Loader that builds the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "device/worker_pool.h"
#include "ops/packed_weight.h"
#include "weights/checkpoint.h"
#include "weights/loader.h"

namespace avocet::weights {

// Rows of a tensor, each of in_features elements, one after the other in the file. An int8 tensor has these beside it, one value a row:
struct SourceRows {
  const TensorInfo* tensor = nullptr;
  size_t offset = 0;  // of the first row, in bytes from the tensor's begin
  int64_t num_rows = 0;
  ops::SourceType type = ops::SourceType::kBf16;
  const TensorInfo* scales = nullptr;   // f32, bf16 or f16, or int64 that hold the bits of an f32
  const TensorInfo* offsets = nullptr;  // must be zero; may be absent
  const TensorInfo* biases = nullptr;   // int32; may be absent
  // An fp8 tensor: scales of blocks of rows and columns, [rows / block, in_features / block] rounded up.
  const TensorInfo* block_scales = nullptr;
  int32_t block = 0;
};

struct PlannedMatrix {
  ops::PackedWeight weight;  // data: where the panels go
  RowOrder order = RowOrder::kConcat;
  uint32_t first_source = 0;
  uint32_t num_sources = 0;
};

struct PackPlan {
  std::vector<SourceRows> sources;
  std::vector<PlannedMatrix> matrices;
};

// Any alignment.
void WidenToF32(ops::SourceType type, const std::byte* src, int64_t num_elements, float* dst);

// Fails when a file cannot be read any more (cut since it was opened, or a disk error); the memory is then half filled.
Result<PackStats> RunPackPlan(const PackPlan& plan, const Checkpoint& checkpoint, device::WorkerPool& pool, const ProgressFn& progress);

}  // namespace avocet::weights
