#include "ops/product_input.h"

#include "base/check.h"

namespace avocet::ops {
namespace {

// Rows start on a cache line; the padding is never written and therefore zero, as the arena delivers it.
int32_t RowElements(InputType type, int32_t cols) {
  const auto per_line = static_cast<int32_t>(64 / InputBytes(type));
  return (cols + per_line - 1) / per_line * per_line;
}

size_t RowBytes(InputType type, int32_t cols) {
  return static_cast<size_t>(RowElements(type, cols)) * InputBytes(type);
}

}  // namespace

size_t ProductInput::BytesNeeded(InputType type, int32_t max_rows, int32_t cols, int32_t num_workers) {
  const size_t rows = static_cast<size_t>(max_rows) + static_cast<size_t>(num_workers) * kReplicatedRowsMax;
  return rows * RowBytes(type, cols);
}

ProductInput::ProductInput(device::Arena& arena, InputType type, int32_t max_rows, int32_t cols, int32_t num_workers)
    : type_(type), max_rows_(max_rows), cols_(cols), ld_(RowElements(type, cols)), num_workers_(num_workers) {
  shared_ = arena.Allocate(static_cast<size_t>(max_rows) * RowBytes(type, cols));
  private_ = arena.Allocate(static_cast<size_t>(num_workers) * kReplicatedRowsMax * RowBytes(type, cols));
}

MutableInputView ProductInput::Shared(int32_t rows) const {
  DCHECK(rows <= max_rows_, "{} rows wanted, {} allocated", rows, max_rows_);
  return {type_, shared_, rows, cols_, ld_};
}

MutableInputView ProductInput::Private(const device::Worker& worker, int32_t rows) const {
  DCHECK(rows <= kReplicatedRowsMax, "{} private rows wanted, {} allocated", rows, kReplicatedRowsMax);
  const auto first = static_cast<size_t>(worker.id()) * kReplicatedRowsMax;
  return {type_, private_ + first * RowBytes(type_, cols_), rows, cols_, ld_};
}

InputView ProductInput::Replicated(const device::Worker& worker, int32_t rows) const {
  const MutableInputView view = IsReplicated(rows) ? Private(worker, rows) : Shared(rows);
  return {view.type, view.data, view.rows, view.cols, view.ld};
}

InputView ProductInput::SharedView(int32_t rows) const {
  const MutableInputView view = Shared(rows);
  return {view.type, view.data, view.rows, view.cols, view.ld};
}

}  // namespace avocet::ops
