#include "cli/signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/log.h"

namespace avocet::cli {

Result<std::unique_ptr<SignalWatch>> SignalWatch::Start() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a client that went away is an error code of the write
  const int signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  if (signal_fd < 0 || stop_fd < 0) return Fail(Errc::kIo, "cannot watch for signals: {}", std::strerror(errno));
  return std::unique_ptr<SignalWatch>(new SignalWatch(signal_fd, stop_fd));
}

SignalWatch::SignalWatch(int signal_fd, int stop_fd) : signal_fd_(signal_fd), stop_fd_(stop_fd), thread_([this] { Run(); }) {}

SignalWatch::~SignalWatch() {
  const uint64_t one = 1;
  if (write(stop_fd_, &one, sizeof(one)) == sizeof(one)) thread_.join();
  close(signal_fd_);
  close(stop_fd_);
}

void SignalWatch::StartServing() {
  const std::lock_guard lock(mutex_);
  is_serving_ = true;
}

int SignalWatch::Wait() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return first_ != 0; });
  return first_;
}

void SignalWatch::Run() {
  for (;;) {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if ((fds[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info;
    if ((fds[0].revents & POLLIN) != 0 && read(signal_fd_, &info, sizeof(info)) == sizeof(info)) Handle(static_cast<int>(info.ssi_signo));
  }
}

void SignalWatch::Handle(int number) {
  const std::lock_guard lock(mutex_);
  if (!is_serving_ || first_ != 0) {
    LogInfo("{}: ending at once", number == SIGINT ? "SIGINT" : "SIGTERM");
    _exit(128 + number);  // no destructors: threads are in the middle of a step
  }
  first_ = number;
  arrived_.notify_all();
}

}  // namespace avocet::cli
