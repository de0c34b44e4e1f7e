// Bugs. A failed CHECK prints the values and the invariant id (docs/ARCHITECTURE.md) and ends the process: the supervisor restarts it.
// Never reachable from user input: that is a Result (error.h). DCHECK is compiled out of release builds.
#pragma once

#include <string>

#include <fmt/format.h>

namespace avocet::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& detail);
}  // namespace avocet::internal

// CHECK(free + used == total, "PAGE-1: {} free + {} used, {} pages", free, used, total);
#define CHECK(condition, ...)                                                                    \
  do {                                                                                           \
    if (!(condition)) [[unlikely]] {                                                             \
      ::avocet::internal::CheckFailed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
    }                                                                                            \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition, ...)                \
  do {                                        \
    if (false) CHECK(condition, __VA_ARGS__); \
  } while (false)
#else
#define DCHECK(condition, ...) CHECK(condition, __VA_ARGS__)
#endif
