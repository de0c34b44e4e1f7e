#include "cli/event_queue.h"

#include <utility>

namespace avocet::cli {

void EventQueue::OnEvents(std::span<engine::RequestEvent> events) {
  {
    const std::lock_guard lock(mutex_);
    for (engine::RequestEvent& event : events) events_.push_back(std::move(event));
  }
  arrived_.notify_one();
}

std::vector<engine::RequestEvent> EventQueue::Take(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, patience, [this] { return !events_.empty(); });
  return std::exchange(events_, {});
}

}  // namespace avocet::cli
