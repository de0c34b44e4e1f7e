// One regular file of a model, mapped read-only; its size is what fstat said at Open. The mapping is for headers and small things: pages
// come in when they are touched. Bulk data goes through Read, which is faster than mapping pages only to unmap them, does not count as
// resident memory, and turns a file that shrank or a failing disk into an error where touching the mapping would be a SIGBUS.
// Thread-safe after Open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

namespace avocet::weights {

class MappedFile {
 public:
  // Refuses folders, pipes and devices. An empty file gives empty bytes.
  static Result<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  // Copies the bytes from `offset` on. The message says why not, without the file's name.
  Result<void> Read(uint64_t offset, std::span<std::byte> out) const;

 private:
  std::span<const std::byte> bytes_;
  int fd_ = -1;
};

}  // namespace avocet::weights
