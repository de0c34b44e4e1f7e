// MEM-1: counts the heap allocations of the whole process while an instance lives. One at a time.
#pragma once

#include <cstdint>

namespace avocet::test {

// False under sanitizers, which bring an allocator of their own; a test that counts is skipped there.
bool CanCountAllocations();

class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  int64_t value() const;
};

}  // namespace avocet::test
