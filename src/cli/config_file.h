// The YAML file of --config as flags, in the order of the file. Syntax and size are checked here, names and values by the parser: a key
// is treated as the flag of that name. The file is the operator's own, but a mistake in it must be a message, never a crash.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace avocet::cli {

struct ConfigEntry {
  enum class Kind : uint8_t { kTrue, kFalse, kText, kList, kMapping };
  std::string key;  // as written
  Kind kind = Kind::kText;
  std::vector<std::string> values;  // kText: one; kList: its items; kMapping: one, as JSON
};

// `path` must end in .yaml or .yml. A key without a value (null) is left out.
Result<std::vector<ConfigEntry>> LoadConfigFile(const std::string& path);
Result<std::vector<ConfigEntry>> ParseConfigText(const std::string& text, const std::string& name);

}  // namespace avocet::cli
