#include "device/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace avocet::device {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kBytesMax = size_t{1} << 46;  // 64 TiB: beyond any machine, far from overflow

}  // namespace

Result<Arena> Arena::Create(std::string purpose, size_t bytes) {
  if (bytes > kBytesMax) return Fail(Errc::kResourceExhausted, "{}: {} bytes are more than any machine has", purpose, bytes);
  Arena arena;
  arena.purpose_ = std::move(purpose);
  if (bytes == 0) return arena;
  const size_t capacity = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  // Reserve one huge page more and give back what stands before and after the aligned part.
  void* raw = mmap(nullptr, capacity + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return Fail(Errc::kResourceExhausted, "{}: cannot reserve {:.2f} GiB: {}", arena.purpose_, static_cast<double>(capacity) / 0x1p30,
                std::strerror(errno));
  }
  auto* base = static_cast<std::byte*>(raw);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  if (before > 0) munmap(base, before);
  if (before < kHugePage) munmap(base + before + capacity, kHugePage - before);
  arena.data_ = base + before;
  arena.capacity_bytes_ = capacity;
  madvise(arena.data_, capacity, MADV_HUGEPAGE);  // a hint: ordinary pages serve as well
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, capacity_bytes_);
}

Arena::Arena(Arena&& other) noexcept
    : purpose_(std::move(other.purpose_)),
      data_(std::exchange(other.data_, nullptr)),
      capacity_bytes_(std::exchange(other.capacity_bytes_, 0)),
      used_bytes_(std::exchange(other.used_bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(purpose_, other.purpose_);
  std::swap(data_, other.data_);
  std::swap(capacity_bytes_, other.capacity_bytes_);
  std::swap(used_bytes_, other.used_bytes_);
  return *this;
}

std::byte* Arena::Allocate(size_t bytes, size_t alignment) {
  const size_t begin = (used_bytes_ + alignment - 1) / alignment * alignment;
  CHECK(begin <= capacity_bytes_ && bytes <= capacity_bytes_ - begin, "{}: {} bytes wanted at {}, the arena has {}", purpose_, bytes, begin,
        capacity_bytes_);
  used_bytes_ = begin + bytes;
  return data_ + begin;
}

void Arena::Seal() {
  if (data_ == nullptr) return;
  CHECK(mprotect(data_, capacity_bytes_, PROT_READ) == 0, "MEM-2: cannot seal {}: {}", purpose_, std::strerror(errno));
}

}  // namespace avocet::device
