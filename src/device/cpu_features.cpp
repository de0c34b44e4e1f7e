#include "device/cpu_features.h"

#include <cpuid.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace avocet::device {
namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers Cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool Bit(uint32_t word, int bit) {
  return ((word >> bit) & 1u) != 0;
}

// Which register files the operating system saves on a context switch.
uint64_t EnabledStates() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

std::string BrandString() {
  std::array<char, 49> text{};
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers r = Cpuid(0x80000002u + i, 0);
    std::memcpy(text.data() + 16 * i, &r, 16);
  }
  std::string name(text.data());
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kRef: return "ref";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512_bf16";
  }
  return "?";
}

bool CpuFeatures::Supports(Isa isa) const {
  switch (isa) {
    case Isa::kRef: return true;
    case Isa::kAvx2: return avx2_fma;
    case Isa::kAvx512: return avx2_fma && avx512;
    case Isa::kAvx512Bf16: return avx2_fma && avx512 && avx512_bf16 && avx512_vnni;
  }
  return false;
}

// Bit positions: Intel SDM volume 2A, CPUID, and AMD APM volume 3, appendix E.
CpuFeatures DetectCpu() {
  CpuFeatures cpu;
  cpu.model_name = BrandString();
  const Registers basic = Cpuid(1, 0);
  if (!Bit(basic.ecx, 27)) return cpu;  // OSXSAVE: without it xgetbv does not exist
  const uint64_t states = EnabledStates();
  const bool saves_ymm = (states & 0x6) == 0x6;
  const bool saves_zmm = (states & 0xe6) == 0xe6;
  const bool saves_tiles = (states & 0x60000) == 0x60000;
  const Registers seven = Cpuid(7, 0);
  const Registers seven1 = Cpuid(7, 1);
  cpu.avx2_fma = saves_ymm && Bit(seven.ebx, 5) && Bit(basic.ecx, 12) && Bit(basic.ecx, 29) && Bit(seven.ebx, 8);
  cpu.avx512 = saves_zmm && Bit(seven.ebx, 16) && Bit(seven.ebx, 17) && Bit(seven.ebx, 28) && Bit(seven.ebx, 30) && Bit(seven.ebx, 31);
  cpu.avx512_vnni = saves_zmm && Bit(seven.ecx, 11);
  cpu.avx512_bf16 = saves_zmm && Bit(seven1.eax, 5);
  cpu.avx_vnni = saves_ymm && Bit(seven1.eax, 4);
  cpu.amx_bf16 = saves_tiles && Bit(seven.edx, 22);
  cpu.amx_int8 = saves_tiles && Bit(seven.edx, 25);
  return cpu;
}

Result<Isa> ChooseIsa(const CpuFeatures& cpu) {
  Isa best = Isa::kRef;
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (cpu.Supports(isa)) best = isa;
  }
  const char* wish = std::getenv("AVOCET_ISA");
  if (wish == nullptr || *wish == '\0') {
    if (best == Isa::kRef) {
      return Fail(Errc::kUnsupported,
                  "this CPU ({}) lacks AVX2, FMA or F16C, which the kernels need; AVOCET_ISA=ref runs the slow reference kernels",
                  cpu.model_name);
    }
    return best;
  }
  for (Isa isa : {Isa::kRef, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (IsaName(isa) != wish) continue;
    if (cpu.Supports(isa)) return isa;
    return Fail(Errc::kUnsupported, "AVOCET_ISA={} asks for more than this CPU ({}) has; the best here is {}", wish, cpu.model_name,
                IsaName(best));
  }
  return Fail(Errc::kInvalidArgument, "AVOCET_ISA={} names no kernel family; it takes ref, avx2, avx512 or avx512_bf16", wish);
}

}  // namespace avocet::device
