// The engine's events for a caller in the same process: chat and bench wait here. The engine thread only appends under a short lock
// (WAIT-1); one thread takes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace avocet::cli {

class EventQueue final : public engine::EventSink {
 public:
  void OnEvents(std::span<engine::RequestEvent> events) override;

  // What has come since the last call; waits at most `patience` for the first event.
  std::vector<engine::RequestEvent> Take(std::chrono::milliseconds patience);

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<engine::RequestEvent> events_;
};

}  // namespace avocet::cli
