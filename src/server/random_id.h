// Names for answers, tool calls and messages that nobody can guess. Any thread.
#pragma once

#include <string>

namespace avocet::server {

// 32 hexadecimal digits from the system's random source.
std::string RandomHex();

}  // namespace avocet::server
