// The arguments of a command, brought into one form by the rules of vllm serve (serving.md 1.1): --a_b is --a-b; --x and --no-x;
// JSON flags whole or in dotted pieces (--flag.key v, --flag.list+ v); -tp 2, -O3; MODEL by position or as --model; values of a YAML
// file (--config) under those of the command line. Every name is looked up in the flag table; values keep their text and are checked by
// ParseCommandLine (command_line.h). Pure apart from reading the file.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/flag_table.h"

namespace avocet::cli {

enum class Source : uint8_t { kCommandLine, kConfigFile };

struct Argument {
  const FlagSpec* flag = nullptr;
  std::vector<std::string> values;  // one, except for lists; true or false for a bool; one JSON text for a JSON flag
  Source source = Source::kCommandLine;
};

struct Arguments {
  std::vector<Argument> arguments;  // at most one per flag
  std::vector<std::string> warnings;
  std::optional<std::string> help_topic;  // --help; empty: the overview
  bool version = false;
};

// kInvalidArgument: wrong use (exit code 2); other codes: the file of --config cannot be read (exit code 1).
Result<Arguments> ParseArguments(Command command, std::span<const std::string> args);

}  // namespace avocet::cli
