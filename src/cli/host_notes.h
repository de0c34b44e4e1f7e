// Settings of the host that cost speed: read and named at start, never changed.
#pragma once

#include <string>
#include <vector>

namespace avocet::cli {

// One line per setting worth a look; empty on a host that is set up well. root: where /proc and /sys are found, for tests.
std::vector<std::string> HostNotes(int num_numa_nodes, const std::string& root = "");

}  // namespace avocet::cli
