// avocet inspect: what a model is and what it would take here, from its small files alone. Weights are not read.
#pragma once

#include "cli/command_line.h"
#include "cli/environment.h"

namespace avocet::cli {

// The exit code. The page goes to standard output; errors are logged in one line.
int Inspect(const CommandLine& line, const Environment& environment);

}  // namespace avocet::cli
