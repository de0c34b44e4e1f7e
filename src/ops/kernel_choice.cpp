#include "ops/kernel_choice.h"

#include <array>

#include <fmt/format.h>

#include "base/check.h"

namespace avocet::ops {
namespace {

constexpr std::array kFamilies = {device::Isa::kAvx512Bf16, device::Isa::kAvx512, device::Isa::kAvx2, device::Isa::kRef};

}  // namespace

const KernelTable& KernelsFor(device::Isa isa) {
  switch (isa) {
    case device::Isa::kRef: return kRefKernels;
#if defined(__x86_64__)
    case device::Isa::kAvx2: return kAvx2Kernels;
    case device::Isa::kAvx512: return kAvx512Kernels;
    case device::Isa::kAvx512Bf16: return kAvx512Bf16Kernels;
#else
    default: break;
#endif
  }
  CHECK(false, "kernel family {} is not in this build", device::IsaName(isa));
  return kRefKernels;
}

std::vector<std::string> ExplainChoice(const device::CpuFeatures& cpu, device::Isa chosen) {
  std::vector<std::string> lines;
  if (cpu.amx_bf16) lines.emplace_back("amx: this CPU has it, no kernels are offered yet");
  for (device::Isa isa : kFamilies) {
    if (isa == chosen) {
      lines.push_back(fmt::format("{}: chosen", device::IsaName(isa)));
      break;
    }
    lines.push_back(fmt::format("{}: {}", device::IsaName(isa), cpu.Supports(isa) ? "lowered by AVOCET_ISA" : "this CPU lacks it"));
  }
  return lines;
}

std::vector<device::Isa> AvailableIsas(const device::CpuFeatures& cpu) {
  std::vector<device::Isa> isas;
  for (auto it = kFamilies.rbegin(); it != kFamilies.rend(); ++it) {
    if (cpu.Supports(*it)) isas.push_back(*it);
  }
  return isas;
}

}  // namespace avocet::ops
