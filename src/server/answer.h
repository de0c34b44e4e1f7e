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

namespace avocet::server {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  std::optional<int64_t> reasoning_tokens;  // with a reasoning parser
};

enum class UsageDetails : uint8_t { kOmit, kShow };  // --enable-prompt-tokens-details

enum class ReasoningNames : uint8_t { kNew, kBoth };  // `reasoning`, and its former name `reasoning_content`

struct AnswerHead {
  std::string id;
  int64_t created = 0;  // Unix seconds
  std::string model;
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

  // The event with the usage and no choices.
  void AppendUsageEvent(const Usage& usage, std::string& out) const;

 protected:
  Answer(AnswerHead head, std::string_view object, std::string_view chunk_object);

  // {"id":..,"object":..,"created":..,"model":..}, to which an answer adds.
  Json Body() const;
  Json UsageJson(const Usage& usage) const;
  // data: {"id":..,"object":..,"created":..,"model":..  : the beginning of every event, unclosed.
  const std::string& event_start() const { return event_start_; }

 private:
  AnswerHead head_;
  std::string object_;
  std::string event_start_;
};

// request: borrowed; it outlives the answer.
std::unique_ptr<Answer> MakeChatAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer,
                                       ReasoningNames names);
std::unique_ptr<Answer> MakeCompletionAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer);

// The last event of a stream, and the event that reports an error in one.
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";
std::string ErrorEvent(const ApiError& error);

// Pieces that both kinds share.
Json FinishJson(const std::optional<Finish>& finish);
Json StopReasonJson(const std::optional<Finish>& finish);
Json TokenIdsJson(std::span<const engine::OutputToken> tokens);

}  // namespace avocet::server
