// One token stream being produced. Owned and written by the engine thread only; during a step the workers write the sampling result of
// the rows they were given.
//
//   tokens   | prompt .................... | generated ........ |
//            0        num_computed                      num_known()
//                     | num_planned |                                 rows of the running step
//
// SEQ-1: 0 <= num_computed <= num_computed + num_planned <= num_known. Everything else about progress is derived from these three.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/mat_view.h"
#include "engine/request.h"

namespace avocet::engine {

struct Sequence {
  Request request;
  int64_t order = 0;  // of arrival at the engine: smaller is older

  std::vector<int32_t> tokens;  // prompt, then what was generated
  int32_t num_computed = 0;     // positions that pages and slot reflect
  int32_t num_planned = 0;      // rows in the running step, drafts aside
  // Speculative decoding. A draft is a guess of the tokens after the last known one; verified with the next step, then gone.
  std::vector<int32_t> drafts;
  int32_t num_pending = 0;      // accepted drafts that the slot has still to be advanced over: it stands at num_computed - num_pending
  int32_t num_draft_layer = 0;  // positions whose K/V the draft layer has; behind num_computed for good once it was left out

  // Held through the CacheManager only.
  std::vector<PageId> pages;
  SlotId slot = SlotId::kNone;

  // For penalties, ascending by id: distinct prompt ids (kept only when repetition_penalty asks), generated ids with their counts.
  std::vector<int32_t> prompt_ids;
  std::vector<std::pair<int32_t, int32_t>> generated_counts;
  uint64_t seed = 0;

  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;  // of positions scored so far; entry 0 is empty; handed over once
  RequestTimes times;
  bool has_reported_prompt_logprobs = false;

  int32_t num_prompt() const { return static_cast<int32_t>(request.prompt.size()); }
  int32_t num_known() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_generated() const { return num_known() - num_prompt(); }
  int32_t num_missing() const { return num_known() - num_computed; }
  bool wants_prompt_logprobs() const { return request.prompt_logprobs >= 0; }
  bool is_running() const { return slot != SlotId::kNone; }
};

}  // namespace avocet::engine
