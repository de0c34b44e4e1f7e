#include "ops/product_input.h"

#include <array>
#include <cstring>

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

constexpr size_t kScalesStride = 16;  // a cache line for every worker

size_t WholeLines(size_t floats) {
  return (floats + 15) / 16 * 16;
}

}  // namespace

int32_t Int8ValueAt(const InputView& view, int32_t row, int32_t col) {
  const std::byte* x = view.row(row);
  if (view.type == InputType::kInt8) return std::to_integer<int32_t>(x[col]) - 128;
  constexpr std::array<int32_t, 4> kPlace = {0, 2, 1, 3};
  int16_t value;
  std::memcpy(&value, x + static_cast<size_t>(col / 4 * 4 + kPlace[static_cast<size_t>(col % 4)]) * 2, 2);
  return value - 128;
}

size_t ProductInput::BytesNeeded(InputType type, int32_t max_rows, int32_t cols, int32_t num_workers) {
  const auto workers = static_cast<size_t>(num_workers);
  const size_t rows = static_cast<size_t>(max_rows) + workers * kReplicatedRowsMax;
  const size_t floats = !IsInt8(type) ? 0
                                      : WholeLines(static_cast<size_t>(max_rows)) + workers * kScalesStride +
                                            workers * static_cast<size_t>(RowElements(type, cols));
  return rows * RowBytes(type, cols) + floats * sizeof(float);
}

ProductInput::ProductInput(device::Arena& arena, InputType type, int32_t max_rows, int32_t cols, int32_t num_workers)
    : type_(type), max_rows_(max_rows), cols_(cols), ld_(RowElements(type, cols)), num_workers_(num_workers) {
  shared_ = arena.Allocate(static_cast<size_t>(max_rows) * RowBytes(type, cols));
  const auto workers = static_cast<size_t>(num_workers);
  private_ = arena.Allocate(workers * kReplicatedRowsMax * RowBytes(type, cols));
  if (!IsInt8(type)) return;
  shared_scales_ = arena.AllocateSpan<float>(WholeLines(static_cast<size_t>(max_rows))).data();
  private_scales_ = arena.AllocateSpan<float>(workers * kScalesStride).data();
  row_scratch_ = arena.AllocateSpan<float>(workers * static_cast<size_t>(ld_)).data();
}

MutableInputView ProductInput::Shared(int32_t rows) const {
  DCHECK(rows <= max_rows_, "{} rows wanted, {} allocated", rows, max_rows_);
  return {type_, shared_, rows, cols_, ld_, shared_scales_};
}

MutableInputView ProductInput::Private(const device::Worker& worker, int32_t rows) const {
  DCHECK(rows <= kReplicatedRowsMax, "{} private rows wanted, {} allocated", rows, kReplicatedRowsMax);
  const auto first = static_cast<size_t>(worker.id()) * kReplicatedRowsMax;
  float* scales = IsInt8(type_) ? private_scales_ + static_cast<size_t>(worker.id()) * kScalesStride : nullptr;
  return {type_, private_ + first * RowBytes(type_, cols_), rows, cols_, ld_, scales};
}

InputView ProductInput::Replicated(const device::Worker& worker, int32_t rows) const {
  const MutableInputView view = IsReplicated(rows) ? Private(worker, rows) : Shared(rows);
  return {view.type, view.data, view.rows, view.cols, view.ld, view.scales};
}

InputView ProductInput::SharedView(int32_t rows) const {
  const MutableInputView view = Shared(rows);
  return {view.type, view.data, view.rows, view.cols, view.ld, view.scales};
}

std::span<float> ProductInput::RowScratch(const device::Worker& worker) const {
  DCHECK(IsInt8(type_), "only int8 operands have a row of f32");
  return {row_scratch_ + static_cast<size_t>(worker.id()) * static_cast<size_t>(ld_), static_cast<size_t>(cols_)};
}

}  // namespace avocet::ops
