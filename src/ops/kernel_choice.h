// Which kernel family runs and why no better one: for the start-up report and `avocet inspect`.
#pragma once

#include <string>
#include <vector>

#include "device/cpu_features.h"
#include "ops/kernel_table.h"

namespace avocet::ops {

// One line per family, best first: "avx512_bf16: chosen" or "amx: not offered: ...".
std::vector<std::string> ExplainChoice(const device::CpuFeatures& cpu, device::Isa chosen);

// The families that this machine can run, plainest first.
std::vector<device::Isa> AvailableIsas(const device::CpuFeatures& cpu);

}  // namespace avocet::ops
