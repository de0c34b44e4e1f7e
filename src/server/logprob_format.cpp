#include "server/logprob_format.h"

#include <algorithm>
#include <utility>

namespace avocet::server {

namespace {

constexpr float kLogprobMin = -9999.0f;  // JSON has no minus infinity

double Finite(float logprob) {
  return logprob >= kLogprobMin ? logprob : kLogprobMin;  // NaN too
}

int64_t NumCharacters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
}

}  // namespace

std::string LogprobFormat::Text(int32_t id) const {
  if (tokenizer_ == nullptr) return {};
  return tokenizer_->Decode(std::span(&id, 1), tokenizer::SpecialTokens::kKeep);
}

std::string LogprobFormat::Name(int32_t id) const {
  return names_ == TokenNames::kIds || tokenizer_ == nullptr ? fmt::format("token_id:{}", id) : Text(id);
}

Json LogprobFormat::ChatEntry(int32_t id, float logprob) const {
  Json entry = Json::object();
  entry["token"] = Name(id);
  entry["logprob"] = Finite(logprob);
  Json bytes = Json::array();
  // The token's own bytes, so that a character split over tokens can be put together.
  if (tokenizer_ != nullptr) {
    for (const char c : tokenizer_->TokenBytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  }
  entry["bytes"] = std::move(bytes);
  return entry;
}

Json LogprobFormat::Chat(std::span<const engine::OutputToken> tokens, int32_t num_top) const {
  Json entries = Json::array();
  for (const engine::OutputToken& token : tokens) {
    const bool has_logprobs = token.logprobs.has_value() && !token.logprobs->top.empty();
    Json entry = ChatEntry(token.id, has_logprobs ? token.logprobs->top.front().logprob : kLogprobMin);
    Json best = Json::array();
    if (has_logprobs) {
      const size_t num_shown = std::min(token.logprobs->top.size() - 1, static_cast<size_t>(num_top));
      for (size_t i = 1; i <= num_shown; ++i) best.push_back(ChatEntry(token.logprobs->top[i].token, token.logprobs->top[i].logprob));
    }
    entry["top_logprobs"] = std::move(best);
    entries.push_back(std::move(entry));
  }
  return entries;
}

Json LogprobFormat::Prompt(std::span<const std::optional<engine::TokenLogprobs>> positions, int32_t num_top) const {
  Json list = Json::array();
  for (const auto& position : positions) {
    if (!position.has_value()) {
      list.push_back(nullptr);
      continue;
    }
    Json::object_t by_id;
    const size_t num_shown = std::min(position->top.size(), static_cast<size_t>(num_top) + 1);
    for (size_t i = 0; i < num_shown; ++i) {
      const engine::TopLogprob& top = position->top[i];
      if (i > 0 && top.token == position->top.front().token) continue;  // the token itself comes first, once
      Json entry = Json::object();
      entry["logprob"] = Finite(top.logprob);
      entry["rank"] = top.rank;
      entry["decoded_token"] = Name(top.token);
      by_id.emplace_back(std::to_string(top.token), std::move(entry));
    }
    list.push_back(std::move(by_id));
  }
  return list;
}

void CompletionLogprobs::Add(int32_t id, const std::optional<engine::TokenLogprobs>& logprobs) {
  std::string name = format_.Name(id);
  text_offset_.push_back(offset_);
  offset_ += NumCharacters(name);
  if (!logprobs.has_value() || logprobs->top.empty()) {
    token_logprobs_.push_back(nullptr);
    top_logprobs_.push_back(nullptr);
  } else {
    token_logprobs_.push_back(Finite(logprobs->top.front().logprob));
    const size_t num_shown = std::min(logprobs->top.size(), static_cast<size_t>(num_top_) + 1);
    Json best = Json::object();
    // Two tokens may have the same text (parts of characters): the likelier one stays.
    for (size_t i = 0; i < num_shown; ++i) best.emplace(format_.Name(logprobs->top[i].token), Finite(logprobs->top[i].logprob));
    top_logprobs_.push_back(std::move(best));
  }
  tokens_.push_back(std::move(name));
}

Json CompletionLogprobs::Take() {
  Json lists = Json::object();
  lists["text_offset"] = std::exchange(text_offset_, Json::array());
  lists["token_logprobs"] = std::exchange(token_logprobs_, Json::array());
  lists["tokens"] = std::exchange(tokens_, Json::array());
  lists["top_logprobs"] = std::exchange(top_logprobs_, Json::array());
  return lists;
}

}  // namespace avocet::server
