#include "cli/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace avocet::cli {

LineReader::Outcome LineReader::Next(std::string* line) {
  for (;;) {
    const size_t newline = held_.find('\n');
    if (newline != std::string::npos || held_.size() >= kLineBytesMax || (is_at_end_ && !held_.empty())) {
      const size_t end = std::min({newline, held_.size(), kLineBytesMax});
      *line = held_.substr(0, end);
      held_.erase(0, newline == end ? end + 1 : end);
      if (line->ends_with('\r')) line->pop_back();
      return Outcome::kLine;
    }
    if (is_at_end_) return Outcome::kEnd;
    std::array<char, 4096> bytes;
    const ssize_t count = read(fd_, bytes.data(), bytes.size());
    if (count > 0) {
      held_.append(bytes.data(), static_cast<size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      held_.clear();
      return Outcome::kInterrupted;
    } else {
      is_at_end_ = true;
    }
  }
}

}  // namespace avocet::cli
