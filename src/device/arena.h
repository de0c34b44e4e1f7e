// Large memory with one purpose each: weights (sealed after load), caches, workspace. Anonymous pages, huge pages where offered
// (madvise), zero-filled, 2 MiB aligned; carved by a bump pointer and freed as a whole.
// Owner: the thread that builds the object graph; pieces are handed to the workers.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/error.h"

namespace avocet::device {

class Arena {
 public:
  // Reserves `bytes` (rounded up to 2 MiB). The error names `purpose`, the bytes and what is available.
  static Result<Arena> Create(std::string purpose, size_t bytes);
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  // The next `bytes`, aligned to `alignment` (a power of two, at most 2 MiB). CHECKs that they fit: sizes are planned beforehand.
  std::byte* Allocate(size_t bytes, size_t alignment = 64);
  template <typename T>
  std::span<T> AllocateSpan(size_t count) {
    return {reinterpret_cast<T*>(Allocate(count * sizeof(T))), count};
  }

  // MEM-2: makes the pages read-only; a stray write dies at the place of the bug.
  void Seal();

  std::byte* data() const { return data_; }
  size_t capacity_bytes() const { return capacity_bytes_; }
  size_t used_bytes() const { return used_bytes_; }
  const std::string& purpose() const { return purpose_; }

 private:
  std::string purpose_;
  std::byte* data_ = nullptr;
  size_t capacity_bytes_ = 0;
  size_t used_bytes_ = 0;
};

}  // namespace avocet::device
