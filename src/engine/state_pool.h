// Slot ids of recurrent state. STATE-1: a live slot belongs to one sequence; a slot is reused only after its release, and a new
// sequence starts at position 0, where the model clears it.
// Owner: the engine thread, through the CacheManager.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mat_view.h"

namespace avocet::engine {

class StatePool {
 public:
  explicit StatePool(int32_t num_slots);

  int32_t num_slots() const { return static_cast<int32_t>(is_live_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

  SlotId Allocate();  // the caller has checked num_free()
  void Release(SlotId slot);
  void CheckConservation() const;

 private:
  std::vector<SlotId> free_;
  std::vector<uint8_t> is_live_;  // [num_slots]
};

}  // namespace avocet::engine
