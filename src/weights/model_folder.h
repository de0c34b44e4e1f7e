// The files of a model folder, by name. A model is a download: a name in its index, or a link among its files, must not lead out of it.
// Links are followed when they end inside the folder, or, for a snapshot of the Hugging Face cache, in its store of contents:
//
//   models--org--name/snapshots/<revision>/model.safetensors -> ../../blobs/<hash>
//
// Immutable after Open.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace avocet::weights {

class ModelFolder {
 public:
  static Result<ModelFolder> Open(const std::string& model_dir);

  // The real path of an existing file. kNotFound when it is absent, kInvalidArgument when it leads out of the folder.
  Result<std::string> Resolve(std::string_view name) const;

  // Names directly inside the folder that end with `suffix`, sorted.
  Result<std::vector<std::string>> List(std::string_view suffix) const;

  const std::string& path() const { return path_; }  // as the user gave it, for messages

 private:
  std::string path_;
  std::string root_;   // path_ without links
  std::string blobs_;  // empty unless root_ is a snapshot of the cache
};

// The bytes of a small text file of the folder; `bytes_max` comes from base/limits.h.
Result<std::string> ReadModelFile(const ModelFolder& folder, std::string_view name, size_t bytes_max);

}  // namespace avocet::weights
