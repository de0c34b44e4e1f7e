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
#include "weights/quantization.h"

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
  std::vector<int64_t> shape = {};  // that the whole tensor must have; empty: [num_rows, in_features], the block is all of it
};

// kConcat: the blocks' rows one after the other. kGateUp: two blocks of equal length in alternating panels (ops::LinearSwiGlu).
enum class RowOrder : uint8_t { kConcat, kGateUp };

// Columns of y, counting the padding of kGateUp: the last pair of panels is whole.
constexpr int32_t OutFeatures(RowOrder order, int64_t num_rows) {
  const int64_t pair = 2 * ops::kPanelCols;
  return static_cast<int32_t>(order == RowOrder::kConcat ? num_rows : (num_rows + pair - 1) / pair * pair);
}

// kProduct: may be int8, in the file or after --quantization int8. kGate: stays float, as routers and gates must; int8 in the file is
// widened.
enum class MatrixRole : uint8_t { kProduct, kGate };

struct MatrixSpec {
  int32_t in_features = 0;
  RowOrder order = RowOrder::kConcat;
  std::vector<RowBlock> blocks;
  MatrixRole role = MatrixRole::kProduct;
};

enum class VectorTransform : uint8_t { kNone, kPlusOne };  // kPlusOne: zero-centred norm weights become 1+w

// Arena bytes of an f32 vector: whole cache lines.
constexpr size_t VectorBytes(int64_t num_elements) {
  return (static_cast<size_t>(num_elements) * sizeof(float) + 63) / 64 * 64;
}
std::span<float> AllocateVector(device::Arena& arena, int64_t num_elements);

struct PackStats {
  size_t read_bytes = 0;
  size_t written_bytes = 0;
  double seconds = 0;  // of the packing alone
};

class Loader {
 public:
  // The checkpoint and the description of its types must outlive the loader.
  Loader(const Checkpoint& checkpoint, WeightPolicy policy, const Quantization& quantization = {});
  ~Loader();

  // Declares a matrix; `out` is filled by Load and must outlive it. Fails when a tensor is missing or has another dtype or shape.
  Result<void> AddMatrix(const MatrixSpec& spec, ops::PackedWeight* out);
  // Declares a small f32 vector (bf16, f16 or f32 in the file) of exactly this shape.
  Result<void> AddVector(const std::string& name, std::span<const int64_t> shape, VectorTransform transform, std::span<const float>* out);
  // Tensors under this prefix may be present and unused; counted for the report: "153 vision tensors".
  void AllowUnused(std::string prefix, std::string group);

  // Every tensor is used exactly once, all of its rows, or an error that names it. Then allocates one arena, packs, seals.
  Result<device::Arena> Load(device::WorkerPool& pool, const ProgressFn& progress);

  size_t packed_bytes() const;     // of what was declared so far
  const PackStats& stats() const;  // of the last Load
  std::vector<std::string> UnusedReport() const;
  std::vector<std::string> ConversionReport() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace avocet::weights
