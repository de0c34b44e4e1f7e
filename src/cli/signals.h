// SIGINT and SIGTERM for a server: before serving they end the process, while serving the first one is handed to the main thread,
// which drains, and a second one ends the process at once. One thread waits for them; they are blocked in all others.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace avocet::cli {

class SignalWatch {
 public:
  // Before any other thread starts, so that all of them inherit the blocked signals.
  static Result<std::unique_ptr<SignalWatch>> Start();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // From here on the first signal is for Wait().
  void StartServing();
  // Blocks until a signal came; its number.
  int Wait();

 private:
  SignalWatch(int signal_fd, int stop_fd);
  void Run();
  void Handle(int number);

  int signal_fd_;
  int stop_fd_;  // written by the destructor
  std::mutex mutex_;
  std::condition_variable arrived_;
  bool is_serving_ = false;
  int first_ = 0;
  std::thread thread_;
};

}  // namespace avocet::cli
