// Sampling parameters of requests that start in this process: flags over generation_config.json over built-in defaults.
#pragma once

#include "cli/assembly.h"
#include "engine/request.h"

namespace avocet::cli {

engine::SamplingParams SamplingFor(const Options& options, const Assembly& assembly);

}  // namespace avocet::cli
