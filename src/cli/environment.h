// Environment variables: one table of what is read and what recipes set that needs no reading here (serving.md 1.6). Flags come before
// variables. Read once by the main thread at start.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/options.h"

namespace avocet::cli {

struct EnvVariable {
  std::string_view name;  // a trailing '*' stands for any ending
  bool acts = false;
  std::string_view help;  // what it does, or why nothing is to be done
};

std::span<const EnvVariable> EnvTable();

using Environment = std::vector<std::pair<std::string, std::string>>;
Environment CurrentEnvironment();

struct EnvReport {
  std::vector<std::string> acting;          // "VLLM_CPU_KVCACHE_SPACE=4"
  std::vector<std::string> without_effect;  // "OMP_NUM_THREADS=1: why"
};

// Fills the members of Options that the variables speak for; a malformed value is an error that names the variable.
Result<EnvReport> ApplyEnvironment(const Environment& environment, Options* options);

}  // namespace avocet::cli
