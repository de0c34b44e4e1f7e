#include "server/completion_stream.h"

#include <iterator>
#include <utility>

namespace avocet::server {

std::string_view FinishName(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop: return "stop";
    case engine::FinishReason::kLength: return "length";
    case engine::FinishReason::kAbort: return "abort";
    case engine::FinishReason::kError: return "error";
  }
  return "error";
}

void ChoiceDelta::Append(ChoiceDelta&& later) {
  text += later.text;
  tokens.insert(tokens.end(), std::make_move_iterator(later.tokens.begin()), std::make_move_iterator(later.tokens.end()));
  if (later.finish.has_value()) finish = std::move(later.finish);
}

CompletionStream::CompletionStream(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TextRules& rules)
    : rules_(rules), matcher_(rules.stops, rules.stop_text) {
  if (tokenizer != nullptr) decoder_.emplace(std::move(tokenizer), rules.special);
}

bool CompletionStream::PushText(const std::string& text, ChoiceDelta& delta) {
  // Stop strings do not look into the part that min_tokens protects.
  if (num_tokens_ <= rules_.min_tokens) {
    delta.text += text;
    return false;
  }
  if (!matcher_.Push(text, delta.text)) return false;
  delta.finish = Finish{.reason = engine::FinishReason::kStop, .stop_reason = std::string(matcher_.found())};
  is_finished_ = true;
  return true;
}

ChoiceDelta CompletionStream::Push(engine::RequestEvent& event) {
  ChoiceDelta delta;
  if (is_finished_) return delta;
  // The token that ended the answer is not part of its text unless asked for.
  const bool has_hidden_end = event.finish == engine::FinishReason::kStop && rules_.stop_text == StopText::kDrop;
  for (size_t i = 0; i < event.tokens.size(); ++i) {
    ++num_tokens_;
    const int32_t id = event.tokens[i].id;
    delta.tokens.push_back(std::move(event.tokens[i]));
    if (has_hidden_end && i + 1 == event.tokens.size()) break;
    // Tokens after a stop string are as if they had not been sampled.
    if (decoder_.has_value() && PushText(decoder_->Push(id), delta)) return delta;
  }
  if (!event.finish.has_value()) return delta;
  if (decoder_.has_value() && PushText(decoder_->Flush(), delta)) return delta;
  matcher_.Flush(delta.text);
  is_finished_ = true;
  delta.finish = Finish{.reason = *event.finish, .stop_reason = {}};
  if (event.stop_token.has_value()) delta.finish->stop_reason = *event.stop_token;
  return delta;
}

}  // namespace avocet::server
