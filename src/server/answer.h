// What chat and completions do differently once text comes back: the JSON of a stream's events and of a whole answer (serving.md 2.8
// to 2.10). No sockets, no engine: deltas in, bytes out. Owner: the io thread of the connection (a whole answer may be written by a
// helper thread once it is complete).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/completion_stream.h"
#include "server/json_input.h"
#include "server/prepared_request.h"
#include "server/response_store.h"

namespace avocet::server {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  std::optional<int64_t> reasoning_tokens;  // with a reasoning parser
};

enum class UsageDetails : uint8_t { kOmit, kShow };  // --enable-prompt-tokens-details

enum class ReasoningNames : uint8_t { kNew, kBoth };  // `reasoning`, and its former name `reasoning_content`

// kOpenai: {"error":{...}}. kAnthropic: {"type":"error","error":{...}}.
enum class ErrorStyle : uint8_t { kOpenai, kAnthropic };
Json MessagesErrorJson(const ApiError& error);
std::string ErrorBodyFor(ErrorStyle style, const ApiError& error);

struct AnswerHead {
  std::string id;
  int64_t created = 0;  // Unix seconds
  std::string model;
  std::string fingerprint;  // of the server; empty: null
  UsageDetails details = UsageDetails::kOmit;
};

// One choice as the writer sees it.
struct ChoiceNews {
  int32_t index = 0;
  const PreparedPrompt* prompt = nullptr;
  std::vector<std::optional<engine::TokenLogprobs>> prompt_logprobs;
  ChoiceDelta delta;  // streamed: what is new; whole: all of it
  OutputPiece piece;  // of a chat answer: the text of the delta, split
};

class Answer {
 public:
  virtual ~Answer() = default;

  // Streamed: appends the events that `news` gives rise to, possibly none. `usage` so far, for continuous usage; null: not asked for.
  virtual void AppendEvents(const ChoiceNews& news, const Usage* usage, std::string& out) = 0;
  // Whole: the body. Deterministic in its arguments.
  virtual std::string Body(std::span<const ChoiceNews> choices, const Usage& usage) = 0;

  // Streamed: what ends the stream.
  enum class UsageEvent : uint8_t { kOmit, kSend };
  virtual void AppendEnd(const Usage& usage, UsageEvent wanted, std::string& out);
  // Streamed: an error after the beginning, and the end.
  virtual void AppendError(const ApiError& error, std::string& out) const;
  // The body of an error before the beginning.
  std::string ErrorText(const ApiError& error) const { return ErrorBodyFor(style_, error); }

 protected:
  Answer(AnswerHead head, std::string_view object, std::string_view chunk_object, ErrorStyle style = ErrorStyle::kOpenai);

  // {"id":..,"object":..,"created":..,"model":..}, to which an answer adds.
  Json Body() const;
  Json UsageJson(const Usage& usage) const;
  const AnswerHead& head() const { return head_; }
  Json Fingerprint() const { return head_.fingerprint.empty() ? Json(nullptr) : Json(head_.fingerprint); }
  // data: {"id":..,"object":..,"created":..,"model":..  : the beginning of every event, unclosed.
  const std::string& event_start() const { return event_start_; }

 private:
  AnswerHead head_;
  std::string object_;
  std::string event_start_;
  ErrorStyle style_;
};

// request: borrowed; it outlives the answer.
std::unique_ptr<Answer> MakeChatAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer,
                                       ReasoningNames names);
std::unique_ptr<Answer> MakeCompletionAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer);

std::unique_ptr<Answer> MakeMessagesAnswer(AnswerHead head);
// store: borrowed; null: responses are not kept.
std::unique_ptr<Answer> MakeResponsesAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer,
                                            ResponseStore* store);

// The last event of a stream, and the event that reports an error in one.
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";
std::string ErrorEvent(const ApiError& error);

// Pieces that both kinds share.
Json FinishJson(const std::optional<Finish>& finish);
Json StopReasonJson(const std::optional<Finish>& finish);
Json TokenIdsJson(std::span<const engine::OutputToken> tokens);

}  // namespace avocet::server
