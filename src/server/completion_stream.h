// One choice of an answer: the engine's events to text. Ids become text without broken characters, stop strings end it, and what may
// be the beginning of one is held back. The joined deltas are the same however the tokens were spread over events.
// Owner: the io thread of the connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "server/stop_matcher.h"
#include "tokenizer/text_decoder.h"

namespace avocet::server {

struct Finish {
  engine::FinishReason reason = engine::FinishReason::kStop;
  std::variant<std::monostate, std::string, int32_t> stop_reason;  // the stop string or stop id that matched
  bool is_tool_calls = false;                                      // a kStop after which the client is to call tools
};

// "stop", "length", "abort", "error"
std::string_view FinishName(engine::FinishReason reason);

// What one event added to a choice; joined with Append, the whole choice.
struct ChoiceDelta {
  std::string text;
  std::vector<engine::OutputToken> tokens;
  std::optional<Finish> finish;

  void Append(ChoiceDelta&& later);
};

struct TextRules {
  StopSet stops{{}};
  StopText stop_text = StopText::kDrop;
  tokenizer::SpecialTokens special = tokenizer::SpecialTokens::kSkip;
  int32_t min_tokens = 0;  // stop strings count from the token after these
};

class CompletionStream {
 public:
  // tokenizer: null gives no text. rules: borrowed.
  CompletionStream(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TextRules& rules);

  // Takes the tokens out of the event. After the finish there is nothing more.
  ChoiceDelta Push(engine::RequestEvent& event);

  bool is_finished() const { return is_finished_; }
  int32_t num_tokens() const { return num_tokens_; }

 private:
  // True: a stop string ended the choice.
  bool PushText(const std::string& text, ChoiceDelta& delta);

  const TextRules& rules_;
  std::optional<tokenizer::TextDecoder> decoder_;
  StopMatcher matcher_;
  int32_t num_tokens_ = 0;
  bool is_finished_ = false;
};

}  // namespace avocet::server
