#include "weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace avocet::weights {

Result<MappedFile> MappedFile::Open(const std::string& path) {
  MappedFile file;
  // Non-blocking, so that a pipe cannot hang the start.
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) return Fail(errno == ENOENT ? Errc::kNotFound : Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  struct stat status = {};
  if (fstat(file.fd_, &status) != 0) return Fail(Errc::kIo, "cannot stat {}: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return Fail(Errc::kIo, "{} is not a regular file", path);

  const auto num_bytes = static_cast<size_t>(status.st_size);
  if (num_bytes == 0) return file;
  void* data = mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, file.fd_, 0);
  if (data == MAP_FAILED) return Fail(Errc::kIo, "cannot map {} ({} bytes): {}", path, num_bytes, std::strerror(errno));
  file.bytes_ = {static_cast<const std::byte*>(data), num_bytes};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})), fd_(std::exchange(other.fd_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) close(fd_);
}

Result<void> MappedFile::Read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Fail(Errc::kIo, "{}", std::strerror(errno));
    if (count == 0) return Fail(Errc::kIo, "the file ends at byte {}, it was longer when it was opened", offset);
    offset += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
  return {};
}

}  // namespace avocet::weights
