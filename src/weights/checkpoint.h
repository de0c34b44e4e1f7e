// A model folder as a table of tensors: name -> (dtype, shape, bytes), over memory-mapped safetensors files, single or sharded with
// an index. The files are hostile until checked: header size, JSON depth, dtypes, shapes, overlapping or out-of-range byte ranges,
// truncated shards and links out of the folder are refused before anything large is allocated.
// Source of the format: huggingface/safetensors README ("Format"). Immutable after Open; reads page in lazily.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "weights/safetensors.h"

namespace avocet::weights {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // in the mapping; for bulk data see Checkpoint::Read
  int32_t file = 0;                  // index into Checkpoint::files()

  int64_t NumElements() const;
  std::string Describe() const;  // "BF16 [1024, 64]"
};

class Checkpoint {
 public:
  // Which files: those that the index (*.safetensors.index.json) names; without an index model.safetensors, or else all *.safetensors.
  static Result<Checkpoint> Open(const std::string& model_dir);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const TensorInfo* Find(std::string_view name) const;
  // Copies bytes of the tensor from `offset` on into memory; thread-safe. Fails when the file was cut since Open or the disk fails.
  Result<void> Read(const TensorInfo& tensor, size_t offset, std::span<std::byte> out) const;
  std::span<const TensorInfo> tensors() const;         // sorted by name
  std::span<const std::string> files() const;          // base names
  size_t total_bytes() const;                          // of tensor data
  std::string PathOf(const TensorInfo& tensor) const;  // of its file, for messages
  const std::string& model_dir() const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace avocet::weights
