// What this CPU can execute (cpuid and the operating system's XCR0) and which kernel family follows from it.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "device/isa.h"

namespace avocet::device {

std::string_view IsaName(Isa isa);  // "ref", "avx2", "avx512", "avx512_bf16": the values of AVOCET_ISA

struct CpuFeatures {
  std::string model_name;
  bool avx2_fma = false;  // AVX2, FMA, F16C and the OS saves ymm
  bool avx512 = false;    // F, BW, DQ, VL, CD and the OS saves zmm
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool avx_vnni = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;

  bool Supports(Isa isa) const;
};

CpuFeatures DetectCpu();

// The best family this CPU supports, lowered by AVOCET_ISA if that is set. Fails when the variable names no family, or one this
// CPU lacks; fails without AVX2 unless AVOCET_ISA=ref asks for the reference kernels.
Result<Isa> ChooseIsa(const CpuFeatures& cpu);

}  // namespace avocet::device
