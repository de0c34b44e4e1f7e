// A command line as Options: arguments.h brings it into one form, CLI11 converts and checks the values against the flag table.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/options.h"

namespace avocet::cli {

struct CommandLine {
  Command command = Command::kServe;
  Options options;
  Arguments arguments;  // what was given, for the start-up report; help and version are answered by the caller
};

// args: after the words of the command. kInvalidArgument: wrong use (exit code 2); other codes: a start that cannot be (exit code 1).
Result<CommandLine> ParseCommandLine(Command command, std::span<const std::string> args);

// What was given and differs from the default, as "name=value", in the order given.
std::vector<std::string> NonDefaultArguments(const Arguments& arguments);
// One line for each flag that was given and has no effect: name, value and reason.
std::vector<std::string> ArgumentsWithoutEffect(const Arguments& arguments);

}  // namespace avocet::cli
