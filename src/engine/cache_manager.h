// The only door to pages and slots. A running sequence holds one slot and the pages that cover its computed and planned positions.
// Prefix reuse will enter here: Admit then returns a position that pages and a snapshot both cover; today it is always 0.
// Owner: the engine thread.
#pragma once

#include <cstdint>

#include "engine/page_pool.h"
#include "engine/sequence.h"
#include "engine/state_pool.h"
#include "model/step_runner.h"

namespace avocet::engine {

class CacheManager {
 public:
  explicit CacheManager(const model::RunnerShape& shape);

  int32_t free_pages() const { return pages_.num_free(); }
  int32_t free_slots() const { return slots_.num_free(); }
  int32_t num_pages() const { return pages_.num_pages(); }
  int32_t num_slots() const { return slots_.num_slots(); }
  int32_t page_tokens() const { return page_tokens_; }

  int32_t PagesFor(int32_t positions) const { return (positions + page_tokens_ - 1) / page_tokens_; }

  // A waiting sequence starts to run: it gets a slot and nothing is computed.
  void Admit(Sequence& sequence);
  // Pages up to `positions`; the scheduler has checked that they are free.
  void Extend(Sequence& sequence, int32_t positions);
  // Everything back; nothing is computed any more.
  void Release(Sequence& sequence);

  // PAGE-1, STATE-1: cheap enough to run whenever the engine is idle.
  void CheckConservation() const;
  bool IsIdle() const { return pages_.num_free() == pages_.num_pages() && slots_.num_free() == slots_.num_slots(); }

 private:
  PagePool pages_;
  StatePool slots_;
  int32_t page_tokens_;
};

}  // namespace avocet::engine
