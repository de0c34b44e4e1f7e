// What the machine reaches right now, measured beside the code under test: memory moves by 30 % and more with its neighbours, so every
// figure is a ratio to a roof of the same repetition (docs: performance goals as ratios). Each program prints JSON lines with what,
// value, unit, roof, ratio, goal (if one is stated), isa, workers.
#pragma once

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/function_ref.h"
#include "device/arena.h"
#include "device/cpu_features.h"
#include "device/topology.h"
#include "device/worker_pool.h"
#include "ops/kernel_choice.h"

namespace avocet::bench {

// A single worker runs on the calling thread: its own CPU time then leaves out what other processes took of the core.
inline double Now(int32_t num_workers) {
  timespec time{};
  clock_gettime(num_workers == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double SecondsOf(const device::WorkerPool& pool, FunctionRef<void()> fn) {
  const double start = Now(pool.num_workers());
  fn();
  return std::max(Now(pool.num_workers()) - start, 1e-9);
}

// The workers that `avocet serve` would use (--workers N), its kernel family (AVOCET_ISA lowers it). --only TEXT leaves out the lines
// whose name lacks the text.
struct Machine {
  std::string only;
  device::CpuFeatures cpu;
  device::Isa isa{};
  std::unique_ptr<device::WorkerPool> pool;
  const ops::KernelTable* kernels = nullptr;
};

inline Machine MakeMachine(int argc, char** argv) {
  Machine machine;
  int32_t workers = 0;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--workers") workers = std::atoi(argv[i + 1]);
    if (std::string(argv[i]) == "--only") machine.only = argv[i + 1];
  }
  machine.cpu = device::DetectCpu();
  const auto isa = device::ChooseIsa(machine.cpu);
  CHECK(isa.has_value(), "{}", isa.error().message);
  machine.isa = *isa;
  machine.kernels = &ops::KernelsFor(machine.isa);
  const auto topology = device::DetectTopology();
  CHECK(topology.has_value(), "{}", topology.error().message);
  const auto cpus = device::ChooseWorkerCpus(*topology, workers, "");
  CHECK(cpus.has_value(), "{}", cpus.error().message);
  device::WorkerPoolOptions options;
  options.cpus = *cpus;
  auto pool = device::WorkerPool::Create(options);
  CHECK(pool.has_value(), "{}", pool.error().message);
  machine.pool = *std::move(pool);
  return machine;
}

// Memory of its own, touched, larger than any cache.
class Memory {
 public:
  explicit Memory(size_t bytes) {
    auto arena = device::Arena::Create("bench", bytes);
    CHECK(arena.has_value(), "{}", arena.error().message);
    arena_ = *std::move(arena);
    data_ = {arena_.Allocate(bytes), bytes};
    // Small values in both bf16 and f32: 0x3c.. is about 0.01.
    uint64_t state = 1;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const uint32_t word = static_cast<uint32_t>(state >> 33) & 0x807f807fu;
      const uint32_t value = word | 0x3c003c00u;
      __builtin_memcpy(data_.data() + i, &value, 4);
    }
  }
  std::span<std::byte> bytes() const { return data_; }

 private:
  device::Arena arena_;
  std::span<std::byte> data_;
};

namespace internal {

constexpr size_t kStreams = 4;

__attribute__((target("avx2"))) inline uint64_t ReadStreams(const std::byte* data, size_t bytes) {
  const size_t stream = bytes / kStreams / 128 * 128;
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (size_t at = 0; at < stream; at += 64) {
    for (size_t s = 0; s < kStreams; ++s) {
      const std::byte* p = data + s * stream + at;
      _mm_prefetch(reinterpret_cast<const char*>(p + 1024), _MM_HINT_T0);
      const auto* words = reinterpret_cast<const __m256i*>(p);
      if (s % 2 == 0) {
        a = _mm256_xor_si256(a, _mm256_loadu_si256(words));
        b = _mm256_xor_si256(b, _mm256_loadu_si256(words + 1));
      } else {
        c = _mm256_xor_si256(c, _mm256_loadu_si256(words));
        d = _mm256_xor_si256(d, _mm256_loadu_si256(words + 1));
      }
    }
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0));
}

__attribute__((target("avx2,fma"))) inline void UpdateInPlace(float* data, size_t count) {
  const __m256 scale = _mm256_set1_ps(0.999f);
  for (size_t i = 0; i + 16 <= count; i += 16) {
    _mm256_storeu_ps(data + i, _mm256_mul_ps(_mm256_loadu_ps(data + i), scale));
    _mm256_storeu_ps(data + i + 8, _mm256_mul_ps(_mm256_loadu_ps(data + i + 8), scale));
  }
}

// Sixteen chains: twice what two units of latency 4 need. The registers are named: g++ would keep an array on the stack.
#define AVOCET_SIXTEEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define AVOCET_TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

__attribute__((target("avx2,fma"))) inline double FlopsOfAvx2(int64_t rounds) {
  const __m256 x = _mm256_set1_ps(0.5f);
#define AVOCET_DECLARE(i) __m256 a##i = x;
#define AVOCET_STEP(i) a##i = _mm256_fmadd_ps(a##i, x, x);
#define AVOCET_KEEP(i) __asm__ volatile("" : "+x"(a##i));
  AVOCET_TWELVE(AVOCET_DECLARE)
  for (int64_t r = 0; r < rounds; ++r) {
    AVOCET_TWELVE(AVOCET_STEP)
    AVOCET_TWELVE(AVOCET_KEEP)
  }
#undef AVOCET_DECLARE
#undef AVOCET_STEP
#undef AVOCET_KEEP
  return static_cast<double>(rounds) * 12 * 8 * 2;
}

__attribute__((target("avx512f"))) inline double FlopsOfAvx512(int64_t rounds) {
  const __m512 x = _mm512_set1_ps(0.5f);
#define AVOCET_DECLARE(i) __m512 a##i = x;
#define AVOCET_STEP(i) a##i = _mm512_fmadd_ps(a##i, x, x);
#define AVOCET_KEEP(i) __asm__ volatile("" : "+v"(a##i));
  AVOCET_SIXTEEN(AVOCET_DECLARE)
  for (int64_t r = 0; r < rounds; ++r) {
    AVOCET_SIXTEEN(AVOCET_STEP)
    AVOCET_SIXTEEN(AVOCET_KEEP)
  }
#undef AVOCET_STEP
  return static_cast<double>(rounds) * 16 * 16 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) inline double FlopsOfBf16(int64_t rounds) {
  const __m512 x = _mm512_set1_ps(0.5f);
  const __m512i half = _mm512_set1_epi32(0x3f003f00);
#define AVOCET_STEP(i) a##i = _mm512_dpbf16_ps(a##i, (__m512bh)half, (__m512bh)half);
  AVOCET_SIXTEEN(AVOCET_DECLARE)
  for (int64_t r = 0; r < rounds; ++r) {
    AVOCET_SIXTEEN(AVOCET_STEP)
    AVOCET_SIXTEEN(AVOCET_KEEP)
  }
#undef AVOCET_STEP
  return static_cast<double>(rounds) * 16 * 32 * 2;
}

// int8: vpdpbusd, and without it pairs of int16 (multiply and add are two instructions there).
__attribute__((target("avx512f,avx512vnni"))) inline double OpsOfVnni(int64_t rounds) {
  const __m512i one = _mm512_set1_epi8(1);
  const __m512 x = _mm512_castsi512_ps(one);
#define AVOCET_STEP(i) a##i = _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(a##i), one, one));
  AVOCET_SIXTEEN(AVOCET_DECLARE)
  for (int64_t r = 0; r < rounds; ++r) {
    AVOCET_SIXTEEN(AVOCET_STEP)
    AVOCET_SIXTEEN(AVOCET_KEEP)
  }
#undef AVOCET_DECLARE
#undef AVOCET_STEP
#undef AVOCET_KEEP
  return static_cast<double>(rounds) * 16 * 64 * 2;
}

__attribute__((target("avx512bw"))) inline double OpsOfWidePairs(int64_t rounds) {
  const __m512i x = _mm512_set1_epi16(1);
  __m512i w = x;
#define AVOCET_DECLARE(i) __m512i a##i = x;
#define AVOCET_STEP(i)                                    \
  a##i = _mm512_add_epi32(a##i, _mm512_madd_epi16(w, x)); \
  __asm__ volatile("" : "+v"(a##i), "+v"(w));
  AVOCET_SIXTEEN(AVOCET_DECLARE)
  for (int64_t r = 0; r < rounds; ++r) {
    AVOCET_SIXTEEN(AVOCET_STEP)
  }
#undef AVOCET_DECLARE
#undef AVOCET_STEP
  return static_cast<double>(rounds) * 16 * 32 * 2;
}

__attribute__((target("avx2"))) inline double OpsOfPairs(int64_t rounds) {
  const __m256i x = _mm256_set1_epi16(1);
  __m256i w = x;
#define AVOCET_DECLARE(i) __m256i a##i = x;
#define AVOCET_STEP(i)                                    \
  a##i = _mm256_add_epi32(a##i, _mm256_madd_epi16(w, x)); \
  __asm__ volatile("" : "+x"(a##i), "+x"(w));
  AVOCET_TWELVE(AVOCET_DECLARE)
  for (int64_t r = 0; r < rounds; ++r) {
    AVOCET_TWELVE(AVOCET_STEP)
  }
#undef AVOCET_DECLARE
#undef AVOCET_STEP
  return static_cast<double>(rounds) * 12 * 16 * 2;
}
#undef AVOCET_SIXTEEN
#undef AVOCET_TWELVE

}  // namespace internal

// Bytes per second of all workers reading `bytes` once, four streams each.
inline double ReadRate(device::WorkerPool& pool, std::span<const std::byte> bytes) {
  std::vector<uint64_t> sinks(static_cast<size_t>(pool.num_workers()) * 16);
  const double seconds = SecondsOf(pool, [&] {
    pool.Run([&](device::Worker& worker) {
      const size_t share = bytes.size() / static_cast<size_t>(worker.count()) / 64 * 64;
      const auto id = static_cast<size_t>(worker.id());
      sinks[id * 16] = internal::ReadStreams(bytes.data() + id * share, share);
    });
  });
  volatile uint64_t sink = sinks[0];
  static_cast<void>(sink);
  return static_cast<double>(bytes.size()) / seconds;
}

// Bytes read plus written per second of all workers scaling `bytes` of f32 in place.
inline double UpdateRate(device::WorkerPool& pool, std::span<std::byte> bytes) {
  const double seconds = SecondsOf(pool, [&] {
    pool.Run([&](device::Worker& worker) {
      const size_t share = bytes.size() / static_cast<size_t>(worker.count()) / 64 * 64;
      internal::UpdateInPlace(reinterpret_cast<float*>(bytes.data() + static_cast<size_t>(worker.id()) * share), share / 4);
    });
  });
  return 2 * static_cast<double>(bytes.size()) / seconds;
}

// Multiply-add operations (counted as two) per second of all workers in registers; `type` is the product's input type.
inline double FlopRate(const Machine& machine, ops::InputType type) {
  constexpr int64_t kRounds = 200'000;  // about a millisecond
  std::vector<double> flops(static_cast<size_t>(machine.pool->num_workers()) * 8);
  const double seconds = SecondsOf(*machine.pool, [&] {
    machine.pool->Run([&](device::Worker& worker) {
      double& mine = flops[static_cast<size_t>(worker.id()) * 8];
      if (type == ops::InputType::kInt8) {
        mine = internal::OpsOfVnni(kRounds);
      } else if (type == ops::InputType::kInt8Pairs) {
        mine = machine.isa >= device::Isa::kAvx512 ? internal::OpsOfWidePairs(kRounds) : internal::OpsOfPairs(kRounds);
      } else if (type == ops::InputType::kBf16) {
        mine = internal::FlopsOfBf16(kRounds);
      } else if (machine.isa >= device::Isa::kAvx512) {
        mine = internal::FlopsOfAvx512(kRounds);
      } else {
        mine = internal::FlopsOfAvx2(kRounds);
      }
    });
  });
  double total = 0;
  for (const double value : flops) total += value;
  return total / seconds;
}

struct Line {
  std::string what;
  std::string unit;
  double goal = 0;  // 0: none stated
};

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Alternates roof() and ours(), both in units per second; prints medians and the median of the ratios. Repetitions whose roof is below
// 60 % of the best one are dropped: a neighbour was at work.
inline void Compare(const Machine& machine, const Line& line, FunctionRef<double()> roof, FunctionRef<double()> ours, double scale,
                    int repetitions = 9) {
  if (line.what.find(machine.only) == std::string::npos) return;
  std::vector<double> roofs, values;
  ours();
  for (int i = 0; i < repetitions; ++i) {
    const double before = roof();
    values.push_back(ours());
    roofs.push_back((before + roof()) / 2);
  }
  const double best = *std::max_element(roofs.begin(), roofs.end());
  std::vector<double> kept_roofs, kept_values, ratios;
  for (size_t i = 0; i < roofs.size(); ++i) {
    if (roofs[i] < 0.6 * best) continue;
    kept_roofs.push_back(roofs[i]);
    kept_values.push_back(values[i]);
    ratios.push_back(values[i] / roofs[i]);
  }
  const std::string goal = line.goal > 0 ? fmt::format(",\"goal\":{}", line.goal) : "";
  fmt::print(
      "{{\"what\":\"{}\",\"value\":{:.4g},\"unit\":\"{}\",\"roof\":{:.4g},\"ratio\":{:.3f}{},\"kept\":{},\"isa\":\"{}\",\"workers\":{}}}\n",
      line.what, Median(kept_values) * scale, line.unit, Median(kept_roofs) * scale, Median(ratios), goal, ratios.size(),
      machine.kernels->name, machine.pool->num_workers());
  std::fflush(stdout);
}

}  // namespace avocet::bench
