// One API request while the engine works on it: its choices, its answer, its connection. Made and destroyed by ActiveRequests.
// Owner: its io thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/active_requests.h"

namespace avocet::server {

class Generation {
 public:
  Generation(ActiveRequests& owner, uint64_t serial, std::unique_ptr<PreparedRequest> request, std::string request_id,
             engine::Clock::time_point arrival, std::shared_ptr<HttpExchange> exchange);

  uint64_t serial() const { return serial_; }

  // Submits every sequence. False: it was refused and the answer is out.
  bool Submit();
  // True: the generation has ended and may be removed.
  bool OnEvent(size_t choice, engine::RequestEvent& event, engine::Clock::time_point now);
  // The peer has gone: the engine stops, nobody is answered.
  void Abandon();
  // The engine ends what runs; its events finish the answer.
  void CancelEngine();

 private:
  struct Choice {
    Choice(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TextRules& rules) : stream(std::move(tokenizer), rules) {}

    engine::RequestId id = 0;
    bool is_live = false;  // submitted, and the engine has not ended it
    CompletionStream stream;
    std::optional<OutputParser> parser;  // of a chat answer
    int64_t reasoning_tokens = 0;
    ChoiceNews news;  // streamed: not sent yet; whole: everything so far
    engine::Clock::time_point last_output;
    bool has_first_output = false;
    bool has_sent = false;
    int32_t cached_tokens = 0;
  };

  void MakeAnswer();
  engine::Request MakeRequest(size_t choice) const;
  void ObserveTokens(Choice& choice, size_t num_tokens, engine::Clock::time_point now);
  void ObserveEnd(const Choice& choice, engine::FinishReason reason, const engine::RequestTimes& times,
                  engine::Clock::time_point now) const;
  void EndSequence(Choice& choice);  // forgets its id
  // Splits the text of a chat answer, and settles why it ended.
  OutputPiece SplitText(Choice& choice, ChoiceDelta& delta) const;
  void CountReasoning(Choice& choice, std::span<const engine::OutputToken> tokens) const;
  void SendNews(Choice& choice);
  void Complete();
  void Fail(const ApiError& error);
  void RespondWhole();
  Usage CurrentUsage() const;
  const PreparedPrompt& PromptOf(size_t choice) const { return request_->prompts[choice / static_cast<size_t>(request_->fields.n)]; }
  void LogEnd() const;

  ActiveRequests& owner_;
  const ServerParts& parts_;
  uint64_t serial_;
  std::unique_ptr<PreparedRequest> request_;
  std::string response_id_;
  engine::Clock::time_point arrival_;
  std::shared_ptr<HttpExchange> exchange_;
  std::unique_ptr<Answer> answer_;
  std::vector<std::unique_ptr<Choice>> choices_;
  std::optional<int32_t> think_end_;  // the token that ends the thoughts
  size_t num_finished_ = 0;
  bool has_begun_stream_ = false;
  std::string logged_output_;  // with --enable-log-outputs
};

}  // namespace avocet::server
