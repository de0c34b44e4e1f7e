// Integers as people write them on command lines: 4096, 4k (4000), 4K (4096), 25.6k (25600). A lower-case suffix is decimal and may have
// a fraction; an upper-case one is binary and may not. Pure functions, exact arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace avocet::cli {

// The value, or an error that says what is wrong with `text` (without the flag's name: the caller knows it).
Result<int64_t> ParseHumanInt(std::string_view text);

// "1.50 GiB", "12.0 MiB", "512 B".
std::string FormatBytes(size_t bytes);
double Gib(size_t bytes);
// 1234567 -> "1,234,567".
std::string FormatCount(int64_t value);

}  // namespace avocet::cli
