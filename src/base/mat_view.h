// MatView: the only matrix type, a borrowed row-major view. Also the strong ids that cross folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace avocet {

// Ids are types, so that a page cannot be used as a slot. -1 means none.
enum class PageId : int32_t { kNone = -1 };  // a page of K/V, the same number in every attention layer
enum class SlotId : int32_t { kNone = -1 };  // a recurrent-state slot, the same number in every delta-net layer

constexpr int32_t Index(PageId id) {
  return static_cast<int32_t>(id);
}
constexpr int32_t Index(SlotId id) {
  return static_cast<int32_t>(id);
}

// rows x cols elements, rows `ld` elements apart. Borrows; the owner outlives it.
template <typename T>
struct MatView {
  T* data = nullptr;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t ld = 0;  // elements between the starts of two rows, >= cols

  MatView() = default;
  MatView(T* data_in, int32_t rows_in, int32_t cols_in, int32_t ld_in) : data(data_in), rows(rows_in), cols(cols_in), ld(ld_in) {}
  MatView(T* data_in, int32_t rows_in, int32_t cols_in) : MatView(data_in, rows_in, cols_in, cols_in) {}
  // A writable view is readable.
  operator MatView<const T>() const  // NOLINT(google-explicit-constructor)
    requires(!std::is_const_v<T>)
  {
    return {data, rows, cols, ld};
  }

  T* row(int32_t r) const { return data + static_cast<ptrdiff_t>(r) * ld; }
  std::span<T> row_span(int32_t r) const { return {row(r), static_cast<size_t>(cols)}; }
  MatView Rows(int32_t first, int32_t count) const { return {row(first), count, cols, ld}; }
  MatView Cols(int32_t first, int32_t count) const { return {data + first, rows, count, ld}; }
};

}  // namespace avocet
