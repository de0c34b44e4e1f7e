// Where the model's folder is: as given, in a local hub cache by its id, or the bundled demo. Nothing is downloaded.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/environment.h"
#include "cli/options.h"

namespace avocet::cli {

struct ModelPath {
  std::string dir;
  std::string name;  // as the user wrote it: the default of --served-model-name
  std::string how;   // for the report: "" for a plain folder, else where it was found
  bool is_demo = false;
};

Result<ModelPath> FindModel(const Options& options, const Environment& environment);

}  // namespace avocet::cli
