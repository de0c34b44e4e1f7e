// The machine as this process may use it: cores from hwloc, cut by the affinity mask and the cgroup CPU quota.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace avocet::device {

struct Core {
  int32_t cpu = 0;  // logical CPU number of its first usable hardware thread
  int32_t numa_node = 0;
};

struct Topology {
  std::vector<Core> cores;       // one entry per physical core in the affinity mask, SMT siblings left out
  int32_t num_logical_cpus = 0;  // in the affinity mask
  int32_t num_numa_nodes = 1;
  double quota_cores = 0;             // cgroup v1/v2 CPU quota in cores; 0 = none
  size_t memory_bytes = 0;            // of the machine
  size_t memory_limit_bytes = 0;      // cgroup limit, or the machine's memory
  size_t memory_available_bytes = 0;  // what can still be allocated now without swapping, within the limit
  std::string cpu_model;
};

// root: where /proc and /sys are found; tests pass a folder of their own for the cgroup part.
Result<Topology> DetectTopology(const std::string& root = "");

// The CPUs of the compute workers. num_threads <= 0: as many cores as the process may really use (quota rounded down, at least
// one; one core is left for io when there are more than four). bind: the value of VLLM_CPU_OMP_THREADS_BIND ("", "auto",
// "nobind", "0-7", "0-3,8-11"; '|' separates ranks, rank 0 takes the first part). Entries of -1 mean not pinned.
Result<std::vector<int32_t>> ChooseWorkerCpus(const Topology& topology, int32_t num_threads, std::string_view bind);

}  // namespace avocet::device
