// One regular file, mapped read-only; its size is what fstat said at Open. Pages come in when they are touched, and are given back by
// Release, so that resident memory does not hold a file twice.
// A file that shrinks after Open is caught where a range is populated first (Populate); touching it without would be a SIGBUS.
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

 private:
  std::span<const std::byte> bytes_;
};

enum class PopulateResult : uint8_t { kDone, kUnsupported, kUnreadable };

// Brings the pages of a range of a mapping into memory and into the page table with one call. kUnreadable: the file was cut or the disk
// failed. kUnsupported (Linux before 5.14): touching the range does the same, slower.
PopulateResult Populate(std::span<const std::byte> range);

// Starts reading the range from disk and returns at once.
void Prefetch(std::span<const std::byte> range);

// Gives back the whole pages inside the range; touching them again reads the file again.
void Release(std::span<const std::byte> range);

}  // namespace avocet::weights
