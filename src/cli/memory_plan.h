// How memory is divided before anything is loaded: weights, activations, one recurrent state per running sequence, K/V pages with the
// rest. Arithmetic only; what does not fit is refused here with the numbers, seconds after the start and not minutes.
//
//   available now (within the container's limit)
//   |-- budget = --gpu-memory-utilization of it -----------------------------------------------|
//   | weights | activations | states: max_num_seqs slots | K/V pages: the rest, at most seqs x len |
//                           |-- --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE -----------|
//
// Caches are reserved, not touched: a page costs memory when it is first written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace avocet::cli {

// What the model takes, whatever is asked for.
struct MemoryNeeds {
  size_t weights_bytes = 0;
  size_t page_bytes = 0;   // of page_tokens positions, over all attention layers
  size_t slot_bytes = 0;   // of one sequence, over all delta-net layers
  int32_t num_drafts = 0;  // per sequence and step
  int32_t model_max_len = 0;
  // Of a step with so many rows and logit rows, and a context of so many positions.
  std::function<size_t(int32_t rows, int32_t logit_rows, int32_t context)> workspace_bytes;
};

// What the operator asks for.
struct MemoryWishes {
  size_t available_bytes = 0;
  double utilization = 0.9;
  std::optional<size_t> cache_bytes = {};
  std::optional<int32_t> num_pages = {};
  int32_t page_tokens = 64;
  int64_t max_model_len = 0;  // 0: the model's; -1: the longest that fits
  bool allow_longer_than_model = false;
  std::optional<int32_t> max_num_seqs = {};
  std::optional<int32_t> max_num_batched_tokens = {};
};

struct MemoryPlan {
  size_t available_bytes = 0;
  size_t budget_bytes = 0;
  size_t weights_bytes = 0;
  size_t workspace_bytes = 0;
  size_t slot_bytes = 0;
  size_t page_bytes = 0;
  int32_t num_slots = 0;
  int32_t num_pages = 0;
  int32_t page_tokens = 0;
  int32_t max_model_len = 0;
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_logit_rows = 0;
  std::vector<std::string> notes;  // what was lowered and why, one line each

  size_t states_bytes() const { return static_cast<size_t>(num_slots) * slot_bytes; }
  size_t pages_bytes() const { return static_cast<size_t>(num_pages) * page_bytes; }
  int64_t cache_tokens() const { return int64_t{num_pages} * page_tokens; }
  // How many sequences of the longest length can run at once.
  double MaxConcurrency() const;
};

inline constexpr int32_t kDefaultPageTokens = 64;
inline constexpr int32_t kDefaultMaxSeqs = 256;
inline constexpr int32_t kDefaultBatchedTokens = 2048;

Result<MemoryPlan> PlanMemory(const MemoryNeeds& needs, const MemoryWishes& wishes);

// The plan as lines of the start-up report, with the lines that users of vllm serve look for.
std::vector<std::string> DescribePlan(const MemoryPlan& plan);

}  // namespace avocet::cli
