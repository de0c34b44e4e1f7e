#include "cli/machine_rates.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "device/arena.h"
#include "weights/mapped_file.h"

namespace avocet::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kCopyRounds = 3;
constexpr int32_t kReadRounds = 3;
constexpr size_t kCopyBytes = size_t{64} << 20;  // tens of milliseconds, and not much memory at once

double SecondsOf(device::WorkerPool& pool, FunctionRef<void(device::Worker&)> work) {
  const Clock::time_point start = Clock::now();
  pool.Run(work);
  return std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
}

// The worker's share of [0, count) for counts beyond 32 bits.
std::pair<size_t, size_t> ShareOf(const device::Worker& worker, size_t count) {
  const auto id = static_cast<size_t>(worker.id());
  const auto workers = static_cast<size_t>(worker.count());
  return {count * id / workers, count * (id + 1) / workers};
}

// Independent sums, so that the loads and not the additions set the pace; several streams with a hint ahead, because one stream leaves
// a core's prefetchers idle at page borders (26 against 22 GB/s on two cores of a Zen 4, 1 GiB).
uint64_t Sum(std::span<const std::byte> bytes) {
  constexpr size_t kLanes = 16;
  constexpr size_t kStep = kLanes * sizeof(uint64_t);
  constexpr size_t kStreams = 4;
  constexpr size_t kAhead = 2048;
  std::array<uint64_t, kLanes> sums{};
  const size_t stream_bytes = bytes.size() / kStreams / kStep * kStep;
  for (size_t at = 0; at < stream_bytes; at += kStep) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* from = bytes.data() + stream * stream_bytes + at;
      __builtin_prefetch(from + kAhead);
      __builtin_prefetch(from + kAhead + 64);
      std::array<uint64_t, kLanes> words;
      std::memcpy(words.data(), from, kStep);
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += words[lane];
    }
  }
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

}  // namespace

double MeasureFileCopyRate(const std::string& path, device::WorkerPool& pool) {
  const Result<weights::MappedFile> file = weights::MappedFile::Open(path);
  if (!file) return 0;
  const size_t bytes = std::min(file->bytes().size(), kCopyBytes);
  std::atomic<bool> is_read{bytes > 0};
  double best = 0;
  for (int32_t round = 0; round < kCopyRounds; ++round) {
    Result<device::Arena> arena = device::Arena::Create("copy rate", bytes);
    if (!arena || !is_read) return 0;
    const std::span<std::byte> to(arena->Allocate(bytes), bytes);
    const double seconds = SecondsOf(pool, [&](device::Worker& worker) {
      const auto [begin, end] = ShareOf(worker, bytes);
      if (!file->Read(begin, to.subspan(begin, end - begin))) is_read = false;
    });
    best = std::max(best, 2 * static_cast<double>(bytes) / 1e9 / seconds);
  }
  return is_read ? best : 0;
}

double MeasureReadRate(std::span<const std::byte> bytes, device::WorkerPool& pool) {
  std::atomic<uint64_t> sink{0};
  std::array<double, kReadRounds> rates{};
  for (double& rate : rates) {
    const double seconds = SecondsOf(pool, [&](device::Worker& worker) {
      const auto [begin, end] = ShareOf(worker, bytes.size());
      sink.fetch_add(Sum(bytes.subspan(begin, end - begin)), std::memory_order_relaxed);
    });
    rate = static_cast<double>(bytes.size()) / 1e9 / seconds;
  }
  std::ranges::sort(rates);
  return rates[kReadRounds / 2];
}

}  // namespace avocet::cli
