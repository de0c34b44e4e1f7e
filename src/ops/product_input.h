// The left operand of the products: normed hidden states, attention output, expert intermediates. Producers (RmsNorm, SwiGLU, ...)
// write it in the element type that the kernel family multiplies, so no op converts on the way.
//
// For few rows every worker keeps a private copy: recomputing a row costs less than moving it between cores (performance.md 1), and
// it saves a barrier. A producer whose rows IsReplicated() writes all rows to its own copy; otherwise workers share the rows of the
// common buffer and a Barrier() must stand before the first consumer.
// Memory comes from the workspace arena; shape is fixed at start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/arena.h"
#include "device/worker_pool.h"
#include "ops/kernel_table.h"

namespace avocet::ops {

constexpr size_t InputBytes(InputType type) {
  return type == InputType::kF32 ? 4 : type == InputType::kInt8 ? 1 : 2;
}

// Readable rows; `ld` elements between rows. Rows start 64-byte aligned; elements past `cols` up to an even count are zero (int8: up to a
// multiple of four readable, whatever they are, because the weights there are zero).
struct InputView {
  InputType type = InputType::kF32;
  const std::byte* data = nullptr;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t ld = 0;
  const float* scales = nullptr;  // [rows], int8 only

  const std::byte* row(int32_t r) const { return data + static_cast<size_t>(r) * static_cast<size_t>(ld) * InputBytes(type); }
  InputView Rows(int32_t first, int32_t count) const {
    return {type, row(first), count, cols, ld, scales != nullptr ? scales + first : nullptr};
  }
};

struct MutableInputView {
  InputType type = InputType::kF32;
  std::byte* data = nullptr;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t ld = 0;
  float* scales = nullptr;  // [rows], int8 only

  std::byte* row(int32_t r) const { return data + static_cast<size_t>(r) * static_cast<size_t>(ld) * InputBytes(type); }
};

// The rounded value q of an int8 operand, whichever way it is stored.
int32_t Int8ValueAt(const InputView& view, int32_t row, int32_t col);

class ProductInput {
 public:
  // Rows up to this many are replicated by the producers that can.
  static constexpr int32_t kReplicatedRowsMax = 4;

  static size_t BytesNeeded(InputType type, int32_t max_rows, int32_t cols, int32_t num_workers);
  ProductInput() = default;
  ProductInput(device::Arena& arena, InputType type, int32_t max_rows, int32_t cols, int32_t num_workers);

  InputType type() const { return type_; }
  int32_t cols() const { return cols_; }
  bool IsReplicated(int32_t rows) const { return rows <= kReplicatedRowsMax && num_workers_ > 1; }

  MutableInputView Shared(int32_t rows) const;
  MutableInputView Private(const device::Worker& worker, int32_t rows) const;
  // What a consumer reads after a producer that replicates (RmsNorm): the private copy for few rows, else the shared rows.
  InputView Replicated(const device::Worker& worker, int32_t rows) const;
  // What a consumer reads after a producer that never replicates.
  InputView SharedView(int32_t rows) const;
  // Int8 only: a row of f32 [cols] of the worker's own, in which a producer makes what it then rounds.
  std::span<float> RowScratch(const device::Worker& worker) const;

 private:
  InputType type_ = InputType::kF32;
  int32_t max_rows_ = 0;
  int32_t cols_ = 0;
  int32_t ld_ = 0;
  int32_t num_workers_ = 1;
  std::byte* shared_ = nullptr;
  std::byte* private_ = nullptr;     // [num_workers][kReplicatedRowsMax][ld]
  float* shared_scales_ = nullptr;   // [max_rows], int8 only, as the next two
  float* private_scales_ = nullptr;  // [num_workers][kScalesStride]
  float* row_scratch_ = nullptr;     // [num_workers][ld]
};

}  // namespace avocet::ops
