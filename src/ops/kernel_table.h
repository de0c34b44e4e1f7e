// Kernels are unchecked functions for one thread and one tile, in one table per instruction set, chosen once from cpuid. `ref` is a
// complete table, plain and written differently: it is the truth. Argument structs are plain data; shapes were checked by the op.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/cpu_features.h"

namespace avocet::ops {

struct KernelTable;  // defined below by the kernel author

}  // namespace avocet::ops
