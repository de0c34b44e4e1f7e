// Lines from standard input that a signal may interrupt: Ctrl-C at the prompt drops the line begun and asks anew.
#pragma once

#include <cstdint>
#include <string>

namespace avocet::cli {

class LineReader {
 public:
  enum class Outcome : uint8_t { kLine, kInterrupted, kEnd };
  explicit LineReader(int fd) : fd_(fd) {}

  // Without the newline. A last line without one counts. Lines are cut at kLineBytesMax.
  Outcome Next(std::string* line);

 private:
  static constexpr size_t kLineBytesMax = size_t{16} << 20;
  int fd_;
  bool is_at_end_ = false;
  std::string held_;
};

}  // namespace avocet::cli
