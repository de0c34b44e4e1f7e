// Files to packed weights. First everything is declared and checked (names, dtypes, shapes, complete and single use of every
// tensor); only then memory is allocated, once, exactly; then all panels are packed in parallel by the workers.
// Owner: the thread that builds the object graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/arena.h"
#include "device/worker_pool.h"
#include "ops/packed_weight.h"
#include "weights/checkpoint.h"

namespace avocet::weights {

// What becomes of matrices that are not bf16: kExact widens f16 and f32 to f32 panels; kBf16 rounds them (half the memory);
// kF32 widens everything, bf16 too (--dtype float32).
enum class WeightPolicy : uint8_t { kExact, kBf16, kF32 };

// done and total bytes; called from one thread, about ten times a second.
using ProgressFn = std::function<void(size_t, size_t)>;

// Rows [first_row, first_row + num_rows) of a tensor whose leading dimensions are flattened: rows of in_features elements.
struct RowBlock {
  std::string tensor;
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

// kConcat: the blocks' rows one after the other. kGateUp: two blocks of equal length in alternating panels (ops::LinearSwiGlu).
enum class RowOrder : uint8_t { kConcat, kGateUp };

struct MatrixSpec {
  int32_t in_features = 0;
  RowOrder order = RowOrder::kConcat;
  std::vector<RowBlock> blocks;
};

enum class VectorTransform : uint8_t { kNone, kPlusOne };  // kPlusOne: zero-centred norm weights become 1+w

class Loader {
 public:
  explicit Loader(const Checkpoint& checkpoint, WeightPolicy policy);
  ~Loader();

  // Declares a matrix; `out` is filled by Load and must outlive it. Shape: every block's tensor must have exactly
  // `tensor_rows` flattened rows in total where given by the caller through the blocks' use; checks are complete in Load.
  Result<void> AddMatrix(const MatrixSpec& spec, ops::PackedWeight* out);
  // Declares a small f32 vector (any float dtype in the file) of exactly this shape.
  Result<void> AddVector(const std::string& name, std::span<const int64_t> shape, VectorTransform transform, std::span<const float>* out);
  // Tensors under this prefix may be present and unused; counted for the report.
  void AllowUnused(std::string prefix, std::string group);

  // Every declared tensor is covered exactly once and no other tensor is left over, or an error that names it.
  // Then allocates one arena, packs, seals.
  Result<device::Arena> Load(device::WorkerPool& pool, const ProgressFn& progress);

  size_t packed_bytes() const;  // of what was declared so far
  std::vector<std::string> UnusedReport() const;
  std::vector<std::string> ConversionReport() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace avocet::weights
