#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace avocet::internal {

void CheckFailed(const char* file, int line, const char* condition, const std::string& detail) {
  std::fprintf(stderr, "CHECK failed: %s:%d: %s: %s\n", file, line, condition, detail.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace avocet::internal
