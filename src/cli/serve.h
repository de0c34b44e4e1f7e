// avocet serve: the object graph, built bottom to top and joined in reverse.
#pragma once

#include "cli/command_line.h"
#include "cli/environment.h"

namespace avocet::cli {

// The exit code. Errors of the start are logged in one line.
int Serve(const CommandLine& line, const EnvReport& environment_report, const Environment& environment);

}  // namespace avocet::cli
