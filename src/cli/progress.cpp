#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "cli/human_number.h"

namespace avocet::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLinePeriod = std::chrono::seconds(5);
constexpr size_t kBarWidth = 30;

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)), is_terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()), last_line_(start_) {}

Progress::~Progress() {
  if (is_drawn_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::Update(size_t done_bytes, size_t total_bytes) {
  const double share = total_bytes == 0 ? 1 : static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
  const Clock::time_point now = Clock::now();
  const double seconds = std::max(std::chrono::duration<double>(now - start_).count(), 1e-3);
  const double rate = static_cast<double>(done_bytes) / 1e9 / seconds;
  if (is_terminal_) {
    const auto filled = std::min(kBarWidth, static_cast<size_t>(share * kBarWidth));
    fmt::print(stderr, "\r{} [{}{}] {:3.0f}% of {}, {:.1f} GB/s\x1b[K", what_, std::string(filled, '#'),
               std::string(kBarWidth - filled, '.'), share * 100, FormatBytes(total_bytes), rate);
    std::fflush(stderr);
    is_drawn_ = true;
  } else if (now - last_line_ >= kLinePeriod) {
    last_line_ = now;
    LogInfo("{}: {:.0f}% of {}, {:.1f} GB/s", what_, share * 100, FormatBytes(total_bytes), rate);
  }
}

}  // namespace avocet::cli
