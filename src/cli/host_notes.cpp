#include "cli/host_notes.h"

#include <fstream>

#include <fmt/format.h>

#include "base/printable.h"

namespace avocet::cli {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool HasSwap(const std::string& root) {
  std::ifstream file(root + "/proc/swaps");
  std::string header;
  std::string first;
  std::getline(file, header);
  return static_cast<bool>(std::getline(file, first));
}

}  // namespace

std::vector<std::string> HostNotes(int num_numa_nodes, const std::string& root) {
  std::vector<std::string> notes;
  const std::string governor = FirstLine(root + "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (!governor.empty() && governor != "performance") {
    notes.push_back(fmt::format("CPU governor is {}; performance keeps clocks up between steps", Printable(governor, 40)));
  }
  const std::string huge_pages = FirstLine(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  if (huge_pages.find("[never]") != std::string::npos) {
    notes.emplace_back("transparent huge pages are off (never); madvise or always saves page faults and address translation");
  }
  const std::string swappiness = FirstLine(root + "/proc/sys/vm/swappiness");
  if (HasSwap(root) && !swappiness.empty() && swappiness != "0") {
    notes.push_back(fmt::format("swap is on and vm.swappiness is {}; weights may be swapped out when idle", Printable(swappiness, 40)));
  }
  if (num_numa_nodes > 1 && FirstLine(root + "/proc/sys/kernel/numa_balancing") == "1") {
    notes.emplace_back("kernel.numa_balancing is on; it moves pages under pinned workers");
  }
  return notes;
}

}  // namespace avocet::cli
