#include "device/topology.h"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "base/limits.h"
#include "device/cpu_features.h"

namespace avocet::device {
namespace {

std::optional<std::string> ReadFirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

template <typename T>
std::optional<T> ParseWhole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The folders of this process's cgroup and its parents, innermost first; limits of all of them apply.
struct CgroupFolders {
  std::vector<std::string> v2;   // unified hierarchy
  std::vector<std::string> cpu;  // v1 controllers
  std::vector<std::string> memory;
};

std::vector<std::string> WithParents(const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  for (;;) {
    folders.push_back(mount + path);
    if (path.empty() || path == "/") break;
    path = path.substr(0, path.rfind('/'));
  }
  return folders;
}

CgroupFolders FindCgroups(const std::string& root) {
  CgroupFolders folders;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/a/b" or "4:cpu,cpuacct:/a/b"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    const std::string base = root + "/sys/fs/cgroup";
    if (controllers == ",,") folders.v2 = WithParents(base, path);
    if (controllers.find(",cpu,") != std::string::npos) folders.cpu = WithParents(base + "/cpu", path);
    if (controllers.find(",memory,") != std::string::npos) folders.memory = WithParents(base + "/memory", path);
  }
  return folders;
}

// Cores that the tightest CPU quota leaves; 0 = no quota.
double QuotaCores(const CgroupFolders& folders) {
  double quota = 0;
  const auto tighten = [&quota](double max, double period) {
    if (max > 0 && period > 0 && (quota == 0 || max / period < quota)) quota = max / period;
  };
  for (const std::string& folder : folders.v2) {
    std::istringstream line(ReadFirstLine(folder + "/cpu.max").value_or("max"));
    std::string max;
    double period = 0;
    if (line >> max >> period && max != "max") tighten(ParseWhole<double>(max).value_or(0), period);
  }
  for (const std::string& folder : folders.cpu) {
    const auto max = ParseWhole<double>(ReadFirstLine(folder + "/cpu.cfs_quota_us").value_or(""));
    const auto period = ParseWhole<double>(ReadFirstLine(folder + "/cpu.cfs_period_us").value_or(""));
    if (max && period) tighten(*max, *period);
  }
  return quota;
}

// A line "inactive_file 123" of a cgroup's memory.stat: cache that the kernel gives back under pressure.
size_t ReclaimableBytes(const std::string& stat_path, std::string_view key) {
  std::ifstream file(stat_path);
  std::string name;
  size_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

void ApplyMemoryLimit(Topology& topology, const std::string& folder, const char* limit_file, const char* usage_file,
                      std::string_view reclaimable) {
  const auto limit = ParseWhole<uint64_t>(ReadFirstLine(folder + limit_file).value_or(""));
  if (!limit || *limit >= topology.memory_bytes) return;  // "max", or v1's huge number
  const auto usage = ParseWhole<uint64_t>(ReadFirstLine(folder + usage_file).value_or("0")).value_or(0);
  const uint64_t used = usage - std::min<uint64_t>(usage, ReclaimableBytes(folder + "/memory.stat", reclaimable));
  topology.memory_limit_bytes = std::min<size_t>(topology.memory_limit_bytes, *limit);
  topology.memory_available_bytes = std::min<size_t>(topology.memory_available_bytes, *limit - std::min(used, *limit));
}

void DetectMemory(Topology& topology, const std::string& root, const CgroupFolders& folders) {
  std::ifstream file(root + "/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemTotal:") topology.memory_bytes = kib << 10;
    if (key == "MemAvailable:") topology.memory_available_bytes = kib << 10;
    std::getline(file, unit);
  }
  topology.memory_limit_bytes = topology.memory_bytes;
  for (const std::string& folder : folders.v2) ApplyMemoryLimit(topology, folder, "/memory.max", "/memory.current", "inactive_file");
  for (const std::string& folder : folders.memory) {
    ApplyMemoryLimit(topology, folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
  }
}

using HwlocTopology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

// One entry per core that the affinity mask touches, at its first usable hardware thread.
void AddCores(Topology& topology, hwloc_topology_t hwloc, const cpu_set_t& mask) {
  const int num_cores = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE);
  for (int i = 0; i < num_cores; ++i) {
    hwloc_obj_t core = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
      if (cpu >= CPU_SETSIZE || !CPU_ISSET(static_cast<size_t>(cpu), &mask)) continue;
      const int node = core->nodeset != nullptr ? hwloc_bitmap_first(core->nodeset) : 0;
      topology.cores.push_back({cpu, std::max(node, 0)});
      break;
    }
  }
}

// "0-3,8" of one rank.
Result<std::vector<int32_t>> ParseCpuList(std::string_view list) {
  std::vector<int32_t> cpus;
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t dash = std::min(item.find('-'), item.size());
    const auto first = ParseWhole<int32_t>(item.substr(0, dash));
    const auto last = dash < item.size() ? ParseWhole<int32_t>(item.substr(dash + 1)) : first;
    if (!first || !last || *first < 0 || *last < *first || *last >= CPU_SETSIZE) {
      return Fail(Errc::kInvalidArgument,
                  "VLLM_CPU_OMP_THREADS_BIND: \"{}\" is no CPU or range; it takes auto, nobind or a list such as 0-3,8-11", item);
    }
    for (int32_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  if (cpus.empty())
    return Fail(Errc::kInvalidArgument, "VLLM_CPU_OMP_THREADS_BIND names no CPU; it takes auto, nobind or a list such as 0-3,8-11");
  return cpus;
}

int32_t DefaultThreads(const Topology& topology) {
  auto threads = static_cast<int32_t>(topology.cores.size());
  if (topology.quota_cores > 0) threads = std::min(threads, std::max(1, static_cast<int32_t>(std::floor(topology.quota_cores))));
  return threads > 4 ? threads - 1 : threads;
}

}  // namespace

Result<Topology> DetectTopology(const std::string& root) {
  Topology topology;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return Fail(Errc::kIo, "cannot read this process's CPU affinity mask");
  topology.num_logical_cpus = CPU_COUNT(&mask);

  // Where /sys is missing hwloc says so on stderr; the fallback below does without it.
  setenv("HWLOC_HIDE_ERRORS", "2", 0);
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Fail(Errc::kIo, "hwloc cannot be initialised");
  const HwlocTopology hwloc(raw, &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) return Fail(Errc::kIo, "hwloc cannot read the machine's topology");
  topology.num_numa_nodes = std::max(1, hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE));
  AddCores(topology, raw, mask);
  if (topology.cores.empty()) {  // a virtual machine may hide its cores: every logical CPU counts as one
    for (int32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<size_t>(cpu), &mask)) topology.cores.push_back({cpu, 0});
    }
  }
  topology.cpu_model = DetectCpu().model_name;
  const CgroupFolders folders = FindCgroups(root);
  topology.quota_cores = QuotaCores(folders);
  DetectMemory(topology, root, folders);
  return topology;
}

Result<std::vector<int32_t>> ChooseWorkerCpus(const Topology& topology, int32_t num_threads, std::string_view bind) {
  if (num_threads > limits::kWorkersMax) {
    return FailParam("num_threads", "--num-threads {} is more than the {} that are possible", num_threads, limits::kWorkersMax);
  }
  if (!bind.empty() && bind != "auto" && bind != "nobind") {
    AVOCET_TRY(std::vector<int32_t> cpus, ParseCpuList(bind.substr(0, bind.find('|'))));
    if (num_threads > 0 && static_cast<size_t>(num_threads) < cpus.size()) cpus.resize(static_cast<size_t>(num_threads));
    while (static_cast<size_t>(std::max(num_threads, 1)) > cpus.size()) cpus.push_back(-1);
    return cpus;
  }
  const int32_t threads = num_threads > 0 ? num_threads : DefaultThreads(topology);
  std::vector<int32_t> cpus(static_cast<size_t>(threads), -1);
  // More threads than cores are left to the kernel: pinning two workers to one core would stall every barrier.
  if (bind != "nobind" && static_cast<size_t>(threads) <= topology.cores.size()) {
    for (size_t i = 0; i < cpus.size(); ++i) cpus[i] = topology.cores[i].cpu;
  }
  return cpus;
}

}  // namespace avocet::device
