// The pages of --help, made from the flag table: an overview that teaches, one page per group, one per flag, and everything.
#pragma once

#include <string>
#include <string_view>

#include "cli/options.h"

namespace avocet::cli {

// `avocet --help`: what the words are.
std::string ProgramHelp();

// `avocet serve --help[=topic]`. topic: empty (overview), "all", a group ("memory", "CacheConfig"), "environment", or (a part of) a flag.
std::string CommandHelp(Command command, std::string_view topic);

}  // namespace avocet::cli
