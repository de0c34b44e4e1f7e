// What a client asked for, in tokens: the engine speaks tokens, the server speaks text. Immutable once submitted.
// And what comes back: one stream of RequestEvents per request with exactly one terminal event (SEQ-2).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/token_constraint.h"

namespace avocet::engine {

using Clock = std::chrono::steady_clock;
using RequestId = uint64_t;  // chosen by the submitter, unique among live requests

// serving.md 2.6 has the defaults, ranges and the order of the logits pipeline.
struct SamplingParams {
  float temperature = 1.0f;  // below 1e-5: greedy; below 0.01: raised to 0.01
  float top_p = 1.0f;
  int32_t top_k = 0;  // 0 or -1: all
  float min_p = 0.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  std::optional<uint64_t> seed = std::nullopt;  // none: the engine derives one from its own seed and the request id
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  std::vector<int32_t> allowed_token_ids = {};       // empty: all
  std::vector<std::vector<int32_t>> bad_words = {};  // token sequences that must not be completed
  std::vector<int32_t> stop_token_ids = {};          // finish "stop" with the id as the reason
  std::vector<int32_t> eos_token_ids = {};           // finish "stop" without a reason; ignored with ignore_eos
  bool ignore_eos = false;
  int32_t min_tokens = 0;  // until then eos and stop ids are masked
  int32_t max_tokens = 16;
};

struct Request {
  RequestId id = 0;
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int32_t logprobs = -1;         // number of top alternatives reported per sampled token; -1: no logprobs at all
  int32_t prompt_logprobs = -1;  // likewise for prompt positions
  int64_t priority = 0;          // smaller is served first with the priority policy
  // Limits what may be said, beside the masks of `sampling`. A request is copied in places, its constraint never is.
  std::shared_ptr<TokenConstraint> constraint = nullptr;
  std::optional<Clock::time_point> deadline;
  Clock::time_point arrival;  // when the server accepted it
};

enum class FinishReason : uint8_t { kStop, kLength, kAbort, kError };

struct TopLogprob {
  int32_t token = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1 = most likely
};

// One sampled (or prompt) token. `top` holds the chosen token's own entry first, then the requested number of best ones.
struct TokenLogprobs {
  std::vector<TopLogprob> top;
};

struct OutputToken {
  int32_t id = 0;
  std::optional<TokenLogprobs> logprobs;
};

struct RequestTimes {
  Clock::time_point arrival, first_scheduled, first_token, last_token;
};

// A step's news for one request.
struct RequestEvent {
  RequestId id = 0;
  std::vector<OutputToken> tokens;
  // Filled once, with the first event that has them: entry 0 is empty (nothing precedes the first token).
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;
  // Terminal event only:
  std::optional<FinishReason> finish;
  std::optional<int32_t> stop_token;  // the stop id that matched, if it was one of stop_token_ids
  std::string error;                  // for kError: what went wrong, shown to the client
  int32_t num_cached_tokens = 0;      // of the prompt, taken from the prefix cache
  RequestTimes times;
};

}  // namespace avocet::engine
