// Names of the kernel families, apart from what detects them: the kernel units (ops/isa) may include nothing that brings code along.
#pragma once

namespace avocet::device {

// In ascending order of preference; a later one may use everything of an earlier one.
enum class Isa { kRef = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Bf16 = 3 };

}  // namespace avocet::device
