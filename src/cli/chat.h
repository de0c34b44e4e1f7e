// avocet chat: a conversation in the terminal with the engine in this process. At a terminal it prompts, dims the model's thoughts and
// listens to Ctrl-C; from a pipe it reads a message per line and prints the answers.
#pragma once

#include "cli/command_line.h"
#include "cli/environment.h"

namespace avocet::cli {

// The exit code. Errors of the start are logged in one line.
int Chat(const CommandLine& line, const Environment& environment);

}  // namespace avocet::cli
