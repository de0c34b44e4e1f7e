// The fields that chat and completions share (serving.md 2.6): read and range-checked, then resolved against the model's defaults.
// Everything the engine would have to trust is checked here. Stateless.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "server/field_reader.h"
#include "server/server_options.h"
#include "server/structure_fields.h"
#include "tokenizer/tokenizer.h"

namespace avocet::server {

enum class TruncationSide : uint8_t { kLeft, kRight };  // the side that is cut off

struct SamplingFields {
  int32_t n = 1;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  double presence_penalty = 0, frequency_penalty = 0;
  std::optional<int64_t> seed;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> allowed_token_ids;
  std::vector<std::string> bad_words;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  std::optional<int64_t> max_tokens;
  std::string max_tokens_name = "max_tokens";  // as the client wrote it
  int32_t min_tokens = 0;
  std::optional<int32_t> prompt_logprobs;  // the vocabulary size for -1
  bool skip_special_tokens = true;
  std::optional<int32_t> truncate_prompt_tokens;  // -1: to what fits
  TruncationSide truncation_side = TruncationSide::kLeft;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
  int64_t priority = 0;
  bool is_stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  int32_t stream_interval = 1;
  std::string request_id;
  std::optional<Structure> structure;
  std::optional<int32_t> thinking_token_budget;
};

// Reads what both kinds of request have. Fields that would change the result and are not offered are refused by name.
ApiResult<SamplingFields> ReadSamplingFields(FieldReader& reader, const ServerOptions& options);

// A count of alternatives from a field (`logprobs`, `top_logprobs`, `prompt_logprobs`): -1 becomes the vocabulary size.
std::optional<int32_t> ReadLogprobCount(FieldReader& reader, std::string_view name, const ServerOptions& options);

// For the engine; max_tokens is settled by the caller, who knows the prompt. tokenizer: null with token ids only.
engine::SamplingParams ResolveSampling(const SamplingFields& fields, const ServerOptions& options, const tokenizer::Tokenizer* tokenizer);

}  // namespace avocet::server
