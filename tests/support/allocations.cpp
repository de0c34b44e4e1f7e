#include "support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AVOCET_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AVOCET_SANITIZED 1
#endif
#endif

namespace {
std::atomic<bool> g_counts = false;
std::atomic<int64_t> g_allocations = 0;
}  // namespace

#if !defined(AVOCET_SANITIZED)
// Not inlined: g++ takes the std::free below for a mismatch with a new that it sees through.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (g_counts.load(std::memory_order_relaxed)) g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
#endif

namespace avocet::test {

bool CanCountAllocations() {
#if defined(AVOCET_SANITIZED)
  return false;
#else
  return true;
#endif
}

AllocationCount::AllocationCount() {
  g_allocations = 0;
  g_counts = true;
}

AllocationCount::~AllocationCount() {
  g_counts = false;
}

int64_t AllocationCount::value() const {
  return g_allocations;
}

}  // namespace avocet::test
