// Logprobs as the API writes them: chat, completions and prompts each have their own form (serving.md 2.8, 2.10). Stateless.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/request.h"
#include "server/json_input.h"
#include "tokenizer/tokenizer.h"

namespace avocet::server {

enum class TokenNames : uint8_t { kText, kIds };  // kIds: token_id:N

class LogprobFormat {
 public:
  // tokenizer: borrowed; null with token ids only.
  LogprobFormat(const tokenizer::Tokenizer* tokenizer, TokenNames names) : tokenizer_(tokenizer), names_(names) {}

  // [{token, logprob, bytes, top_logprobs}], with the `num_top` best.
  Json Chat(std::span<const engine::OutputToken> tokens, int32_t num_top) const;

  // {"<id>": {logprob, rank, decoded_token}} per position, null for the first: the token itself and the `num_top` best.
  Json Prompt(std::span<const std::optional<engine::TokenLogprobs>> positions, int32_t num_top) const;

  std::string Name(int32_t id) const;
  std::string Text(int32_t id) const;

 private:
  Json ChatEntry(int32_t id, float logprob) const;

  const tokenizer::Tokenizer* tokenizer_;
  TokenNames names_;
};

// The four parallel lists of completions; kept over the chunks of a stream because the offsets run on.
class CompletionLogprobs {
 public:
  CompletionLogprobs(const LogprobFormat& format, int32_t num_top) : format_(format), num_top_(num_top) {}

  void Add(int32_t id, const std::optional<engine::TokenLogprobs>& logprobs);
  // What was added since the last call.
  Json Take();

 private:
  LogprobFormat format_;
  int32_t num_top_;
  int64_t offset_ = 0;  // characters of the tokens so far
  Json text_offset_ = Json::array();
  Json token_logprobs_ = Json::array();
  Json tokens_ = Json::array();
  Json top_logprobs_ = Json::array();
};

}  // namespace avocet::server
