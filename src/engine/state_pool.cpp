#include "engine/state_pool.h"

#include <numeric>

#include "base/check.h"

namespace avocet::engine {

StatePool::StatePool(int32_t num_slots) : is_live_(static_cast<size_t>(num_slots), 0) {
  free_.reserve(static_cast<size_t>(num_slots));
  for (int32_t slot = num_slots - 1; slot >= 0; --slot) free_.push_back(SlotId{slot});
}

SlotId StatePool::Allocate() {
  CHECK(!free_.empty(), "STATE-1: no free slot of {}", num_slots());
  const SlotId slot = free_.back();
  free_.pop_back();
  uint8_t& live = is_live_[static_cast<size_t>(Index(slot))];
  CHECK(live == 0, "STATE-1: slot {} has two owners", Index(slot));
  live = 1;
  return slot;
}

void StatePool::Release(SlotId slot) {
  uint8_t& live = is_live_[static_cast<size_t>(Index(slot))];
  CHECK(live == 1, "STATE-1: slot {} is released without an owner", Index(slot));
  live = 0;
  free_.push_back(slot);
}

void StatePool::CheckConservation() const {
  const int32_t live = std::accumulate(is_live_.begin(), is_live_.end(), 0);
  CHECK(num_free() + live == num_slots(), "STATE-1: {} free + {} live, {} slots", num_free(), live, num_slots());
}

}  // namespace avocet::engine
