// What this machine's memory reaches right now, with the workers that will run the model: the roofs that reports compare with. Takes
// tens of milliseconds. Not on the main thread: running on the pool pins the calling thread.
#pragma once

#include <cstddef>
#include <span>

#include "device/worker_pool.h"

namespace avocet::cli {

// Bytes read plus bytes written per second, in GB/s, of a copy that is larger than the caches.
double MeasureCopyRate(device::WorkerPool& pool);

// GB/s of reading `bytes` once by all workers, the best of a few rounds.
double MeasureReadRate(std::span<const std::byte> bytes, device::WorkerPool& pool);

}  // namespace avocet::cli
