#include "weights/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14; Debian 12's headers may be older than its kernel
#endif

namespace avocet::weights {
namespace {

class FileDescriptor {
 public:
  // Non-blocking, so that a pipe cannot hang the start.
  explicit FileDescriptor(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

enum class PageRounding : uint8_t { kOutward, kInward };

// The pages that a range touches, or that lie inside it. A mapping starts on a page, so outward never leaves it.
std::span<std::byte> Pages(std::span<const std::byte> range, PageRounding rounding) {
  static const uintptr_t page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t begin = reinterpret_cast<uintptr_t>(range.data());
  uintptr_t end = begin + range.size();
  if (rounding == PageRounding::kOutward) {
    begin = begin / page_bytes * page_bytes;
  } else {
    begin = (begin + page_bytes - 1) / page_bytes * page_bytes;
    end = end / page_bytes * page_bytes;
  }
  if (end <= begin) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const FileDescriptor fd(path);
  if (fd.get() < 0) return Fail(errno == ENOENT ? Errc::kNotFound : Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0) return Fail(Errc::kIo, "cannot stat {}: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return Fail(Errc::kIo, "{} is not a regular file", path);

  MappedFile file;
  const size_t num_bytes = static_cast<size_t>(status.st_size);
  if (num_bytes == 0) return file;
  void* data = mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return Fail(Errc::kIo, "cannot map {} ({} bytes): {}", path, num_bytes, std::strerror(errno));
  file.bytes_ = {static_cast<const std::byte*>(data), num_bytes};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

PopulateResult Populate(std::span<const std::byte> range) {
  const std::span<std::byte> pages = Pages(range, PageRounding::kOutward);
  if (pages.empty()) return PopulateResult::kDone;
  while (madvise(pages.data(), pages.size(), MADV_POPULATE_READ) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    // EFAULT stands for the SIGBUS that touching would have raised, EHWPOISON for a broken page.
    return errno == EFAULT || errno == EHWPOISON ? PopulateResult::kUnreadable : PopulateResult::kUnsupported;
  }
  return PopulateResult::kDone;
}

void Prefetch(std::span<const std::byte> range) {
  const std::span<std::byte> pages = Pages(range, PageRounding::kOutward);
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

void Release(std::span<const std::byte> range) {
  const std::span<std::byte> pages = Pages(range, PageRounding::kInward);
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

}  // namespace avocet::weights
