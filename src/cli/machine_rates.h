// What this machine's memory reaches right now, with the workers that will run the model: the roofs that reports compare with. Takes
// tens of milliseconds. Not on the main thread: running on the pool pins the calling thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "device/worker_pool.h"

namespace avocet::cli {

// What bounds a load from the page cache: reading (the beginning of) a checkpoint file into fresh memory, page faults included. Bytes read
// plus bytes written, in GB/s, the best of a few rounds; 0 when the file cannot be read.
double MeasureFileCopyRate(const std::string& path, device::WorkerPool& pool);

// GB/s of reading `bytes` once by all workers, the median of a few rounds.
double MeasureReadRate(std::span<const std::byte> bytes, device::WorkerPool& pool);

}  // namespace avocet::cli
