// How far loading is: a bar on a terminal, a line every few seconds elsewhere. Called by the loading thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace avocet::cli {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(size_t done_bytes, size_t total_bytes);

 private:
  std::string what_;
  bool is_terminal_ = false;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_line_;
};

}  // namespace avocet::cli
