// Answers of /v1/messages: serving.md 2.11. One choice; content blocks follow each other, each of one kind.
#include <utility>

#include "server/answer.h"
#include "server/random_id.h"

namespace avocet::server {

namespace {

enum class Block : uint8_t { kNone, kThinking, kText, kToolUse };

class MessagesAnswer final : public Answer {
 public:
  explicit MessagesAnswer(AnswerHead head) : Answer(std::move(head), "message", "message", ErrorStyle::kAnthropic) {}

  void AppendEvents(const ChoiceNews& news, const Usage* usage, std::string& out) override;
  void AppendEnd(const Usage& usage, UsageEvent wanted, std::string& out) override;
  void AppendError(const ApiError& error, std::string& out) const override { Event("error", MessagesErrorJson(error), out); }
  std::string Body(std::span<const ChoiceNews> choices, const Usage& usage) override;

 private:
  static void Event(std::string_view name, const Json& data, std::string& out) {
    out += fmt::format("event: {}\ndata: {}\n\n", name, DumpJson(data));
  }
  static Json UsageOf(const Usage& usage) {
    return Json::object({{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                         {"output_tokens", usage.completion_tokens},
                         {"cache_read_input_tokens", usage.cached_tokens},
                         {"cache_creation_input_tokens", 0}});
  }
  void Start(const ChoiceNews& news, std::string& out);
  void Open(Block block, Json content, std::string& out);
  void Close(std::string& out);
  void Delta(const char* type, const char* field, const std::string& text, std::string& out);
  static Json StopReason(const std::optional<Finish>& finish);
  static Json StopSequence(const std::optional<Finish>& finish);

  bool is_started_ = false;
  Block block_ = Block::kNone;
  int32_t index_ = -1;  // of the open block
  std::optional<Finish> finish_;
};

Json MessagesAnswer::StopReason(const std::optional<Finish>& finish) {
  if (!finish.has_value()) return nullptr;
  if (finish->is_tool_calls) return "tool_use";
  if (finish->reason == engine::FinishReason::kLength) return "max_tokens";
  return std::holds_alternative<std::string>(finish->stop_reason) ? "stop_sequence" : "end_turn";
}

Json MessagesAnswer::StopSequence(const std::optional<Finish>& finish) {
  const auto* text = finish.has_value() ? std::get_if<std::string>(&finish->stop_reason) : nullptr;
  return text == nullptr ? Json(nullptr) : Json(*text);
}

void MessagesAnswer::Start(const ChoiceNews& news, std::string& out) {
  is_started_ = true;
  Json message = Json::object({{"id", head().id},
                               {"type", "message"},
                               {"role", "assistant"},
                               {"content", Json::array()},
                               {"model", head().model},
                               {"stop_reason", nullptr},
                               {"stop_sequence", nullptr}});
  message["usage"] = UsageOf({.prompt_tokens = static_cast<int64_t>(news.prompt->ids.size()), .reasoning_tokens = {}});
  Event("message_start", Json::object({{"type", "message_start"}, {"message", std::move(message)}}), out);
}

void MessagesAnswer::Close(std::string& out) {
  if (block_ == Block::kNone) return;
  if (block_ == Block::kThinking) Delta("signature_delta", "signature", RandomHex(), out);
  Event("content_block_stop", Json::object({{"type", "content_block_stop"}, {"index", index_}}), out);
  block_ = Block::kNone;
}

void MessagesAnswer::Open(Block block, Json content, std::string& out) {
  Close(out);
  block_ = block;
  ++index_;
  Event("content_block_start", Json::object({{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(content)}}),
        out);
}

void MessagesAnswer::Delta(const char* type, const char* field, const std::string& text, std::string& out) {
  Event("content_block_delta",
        Json::object({{"type", "content_block_delta"}, {"index", index_}, {"delta", Json::object({{"type", type}, {field, text}})}}), out);
}

void MessagesAnswer::AppendEvents(const ChoiceNews& news, const Usage* /*usage*/, std::string& out) {
  if (!is_started_) Start(news, out);
  const OutputPiece& piece = news.piece;
  if (!piece.reasoning.empty()) {
    if (block_ != Block::kThinking) Open(Block::kThinking, Json::object({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}), out);
    Delta("thinking_delta", "thinking", piece.reasoning, out);
  }
  if (!piece.content.empty()) {
    if (block_ != Block::kText) Open(Block::kText, Json::object({{"type", "text"}, {"text", ""}}), out);
    Delta("text_delta", "text", piece.content, out);
  }
  for (const ToolCallPiece& call : piece.tool_calls) {
    if (!call.name.empty()) {
      Open(Block::kToolUse, Json::object({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}}), out);
    }
    if (!call.arguments.empty()) Delta("input_json_delta", "partial_json", call.arguments, out);
  }
  if (news.delta.finish.has_value()) finish_ = news.delta.finish;
}

void MessagesAnswer::AppendEnd(const Usage& usage, UsageEvent /*wanted*/, std::string& out) {
  Close(out);
  Json delta = Json::object({{"stop_reason", StopReason(finish_)}, {"stop_sequence", StopSequence(finish_)}});
  Event("message_delta", Json::object({{"type", "message_delta"}, {"delta", std::move(delta)}, {"usage", UsageOf(usage)}}), out);
  Event("message_stop", Json::object({{"type", "message_stop"}}), out);
}

std::string MessagesAnswer::Body(std::span<const ChoiceNews> choices, const Usage& usage) {
  const ChoiceNews& choice = choices.front();
  Json content = Json::array();
  if (!choice.piece.reasoning.empty()) {
    content.push_back(Json::object({{"type", "thinking"}, {"thinking", choice.piece.reasoning}, {"signature", RandomHex()}}));
  }
  if (!choice.piece.content.empty()) content.push_back(Json::object({{"type", "text"}, {"text", choice.piece.content}}));
  for (const ToolCallPiece& call : choice.piece.tool_calls) {
    Result<Json> input = ParseJson(call.arguments, "arguments");
    content.push_back(Json::object(
        {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", input.has_value() ? *std::move(input) : Json::object()}}));
  }
  return DumpJson(Json::object({{"id", head().id},
                                {"type", "message"},
                                {"role", "assistant"},
                                {"content", std::move(content)},
                                {"model", head().model},
                                {"stop_reason", StopReason(choice.delta.finish)},
                                {"stop_sequence", StopSequence(choice.delta.finish)},
                                {"usage", UsageOf(usage)}}));
}

}  // namespace

Json MessagesErrorJson(const ApiError& error) {
  const std::string_view type = error.status == 401   ? "authentication_error"
                                : error.status == 404 ? "not_found_error"
                                : error.status == 413 ? "request_too_large"
                                : error.status == 503 ? "overloaded_error"
                                : error.status >= 500 ? "api_error"
                                                      : "invalid_request_error";
  return Json::object({{"type", "error"}, {"error", Json::object({{"type", type}, {"message", error.message}})}});
}

std::unique_ptr<Answer> MakeMessagesAnswer(AnswerHead head) {
  return std::make_unique<MessagesAnswer>(std::move(head));
}

}  // namespace avocet::server
