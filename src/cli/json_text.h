// JSON as it stands on a command line: parsed with a bound on nesting (writing a value out again is recursive), keys in written order.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace avocet::cli {

using Json = nlohmann::ordered_json;

// The error says what is wrong, without the name of the flag.
Result<Json> ParseJson(std::string_view text);

// A dotted piece: JSON if it is, else a human-readable integer (80g), else text.
Json ParseLooseValue(std::string_view text);

// Copies `update` over `target`, nested objects key by key; lists are appended where `append_lists`. Returns the dotted keys that were
// there before and have been replaced.
enum class Lists : uint8_t { kReplace, kAppend };
std::vector<std::string> MergeJson(const Json& update, Lists lists, Json* target);

}  // namespace avocet::cli
