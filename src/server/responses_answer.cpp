// Answers of /v1/responses: serving.md 2.12. Items follow each other: thoughts, text, calls.
#include <utility>

#include "server/answer.h"
#include "server/random_id.h"

namespace avocet::server {

namespace {

class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer, ResponseStore* store)
      : Answer(std::move(head), "response", "response"),
        request_(request),
        logprob_format_(tokenizer, request.token_names),
        store_(store) {}

  void AppendEvents(const ChoiceNews& news, const Usage* usage, std::string& out) override;
  void AppendEnd(const Usage& usage, UsageEvent wanted, std::string& out) override;
  void AppendError(const ApiError& error, std::string& out) const override;
  std::string Body(std::span<const ChoiceNews> choices, const Usage& usage) override;

 private:
  enum class Kind : uint8_t { kReasoning, kMessage, kCall };
  struct Item {
    Kind kind = Kind::kMessage;
    std::string id = {};
    std::string text = {};  // thoughts, text, or arguments
    std::string name = {}, call_id = {};
    Json logprobs = Json::array();
  };
  enum class Done : uint8_t { kNo, kYes };

  Json ItemJson(const Item& item, Done done) const;
  Json PartJson(const Item& item, Done done) const;
  Json ResponseJson(std::string_view status, const Usage* usage) const;
  std::string_view Status() const;
  void Keep(const std::string& body) const;
  Json LogprobsJson(std::span<const engine::OutputToken> tokens) const;

  void Event(std::string type, Json data, std::string& out);
  Item& Begin(Kind kind, Item item, std::string& out);
  void Extend(const std::string& text, const Json& logprobs, std::string& out);
  void End(std::string& out);
  void Take(const ChoiceNews& news, std::string& out);

  const PreparedRequest& request_;
  LogprobFormat logprob_format_;
  ResponseStore* store_;
  std::vector<Item> items_;
  bool is_started_ = false;
  bool is_open_ = false;  // the last item
  int64_t sequence_number_ = 0;
  std::optional<Finish> finish_;
};

Json ResponsesAnswer::LogprobsJson(std::span<const engine::OutputToken> tokens) const {
  if (!request_.logprobs.has_value()) return Json::array();
  return logprob_format_.Chat(tokens, *request_.logprobs);
}

Json ResponsesAnswer::PartJson(const Item& item, Done done) const {
  const std::string text = done == Done::kYes ? item.text : std::string();
  if (item.kind == Kind::kReasoning) return Json::object({{"type", "reasoning_text"}, {"text", text}});
  return Json::object({{"type", "output_text"},
                       {"text", text},
                       {"annotations", Json::array()},
                       {"logprobs", done == Done::kYes ? item.logprobs : Json::array()}});
}

Json ResponsesAnswer::ItemJson(const Item& item, Done done) const {
  const char* status = done == Done::kYes ? "completed" : "in_progress";
  const Json parts = done == Done::kYes ? Json::array({PartJson(item, done)}) : Json::array();
  switch (item.kind) {
    case Kind::kReasoning:
      return Json::object({{"id", item.id}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", parts}, {"status", status}});
    case Kind::kMessage:
      return Json::object({{"id", item.id}, {"type", "message"}, {"role", "assistant"}, {"status", status}, {"content", parts}});
    case Kind::kCall:
      return Json::object({{"id", item.id},
                           {"type", "function_call"},
                           {"call_id", item.call_id},
                           {"name", item.name},
                           {"arguments", done == Done::kYes ? item.text : ""},
                           {"status", status}});
  }
  return nullptr;
}

std::string_view ResponsesAnswer::Status() const {
  if (!finish_.has_value()) return "in_progress";
  if (finish_->reason == engine::FinishReason::kAbort) return "cancelled";
  return finish_->reason == engine::FinishReason::kLength ? "incomplete" : "completed";
}

Json ResponsesAnswer::ResponseJson(std::string_view status, const Usage* usage) const {
  Json json = Json::object({{"id", head().id}, {"object", "response"}, {"created_at", head().created}, {"status", status}});
  json["model"] = head().model;
  json["error"] = nullptr;
  json["incomplete_details"] = status == "incomplete" ? Json::object({{"reason", "max_output_tokens"}}) : Json(nullptr);
  json["background"] = false;
  json["service_tier"] = "auto";
  for (const auto& [name, value] : request_.echo.items()) json[name] = value;
  // What was not said is what the model's defaults made of it.
  if (json["temperature"].is_null()) json["temperature"] = request_.sampling.temperature;
  if (json["top_p"].is_null()) json["top_p"] = request_.sampling.top_p;
  json["output"] = Json::array();
  if (status != "in_progress") {
    for (const Item& item : items_) json["output"].push_back(ItemJson(item, Done::kYes));
  }
  json["usage"] = nullptr;
  if (usage != nullptr) {
    json["usage"] = Json::object({{"input_tokens", usage->prompt_tokens},
                                  {"input_tokens_details", Json::object({{"cached_tokens", usage->cached_tokens}})},
                                  {"output_tokens", usage->completion_tokens},
                                  {"output_tokens_details", Json::object({{"reasoning_tokens", usage->reasoning_tokens.value_or(0)}})},
                                  {"total_tokens", usage->prompt_tokens + usage->completion_tokens}});
  }
  return json;
}

// With the conversation that a later request may go on with.
void ResponsesAnswer::Keep(const std::string& body) const {
  if (store_ == nullptr || !request_.is_stored) return;
  Json messages = request_.conversation;
  Json answer = Json::object({{"role", "assistant"}, {"content", ""}});
  std::string content;
  for (const Item& item : items_) {
    if (item.kind == Kind::kMessage) content += item.text;
    if (item.kind == Kind::kReasoning) answer["reasoning"] = item.text;
    if (item.kind != Kind::kCall) continue;
    if (!answer.contains("tool_calls")) answer["tool_calls"] = Json::array();
    answer["tool_calls"].push_back(Json::object(
        {{"id", item.call_id}, {"type", "function"}, {"function", Json::object({{"name", item.name}, {"arguments", item.text}})}}));
  }
  answer["content"] = std::move(content);
  messages.push_back(std::move(answer));
  store_->Put(head().id, {body, std::move(messages)});
}

void ResponsesAnswer::Event(std::string type, Json data, std::string& out) {
  Json event = Json::object({{"type", type}, {"sequence_number", sequence_number_++}});
  event.update(data);
  out += fmt::format("event: {}\ndata: {}\n\n", type, DumpJson(event));
}

ResponsesAnswer::Item& ResponsesAnswer::Begin(Kind kind, Item item, std::string& out) {
  End(out);
  item.kind = kind;
  item.id = (kind == Kind::kReasoning ? "rs_" : kind == Kind::kMessage ? "msg_" : "fc_") + RandomHex();
  items_.push_back(std::move(item));
  is_open_ = true;
  const Item& begun = items_.back();
  const auto index = static_cast<int64_t>(items_.size() - 1);
  Event("response.output_item.added", Json::object({{"output_index", index}, {"item", ItemJson(begun, Done::kNo)}}), out);
  if (kind != Kind::kCall) {
    Event("response.content_part.added",
          Json::object({{"item_id", begun.id}, {"output_index", index}, {"content_index", 0}, {"part", PartJson(begun, Done::kNo)}}), out);
  }
  return items_.back();
}

void ResponsesAnswer::Extend(const std::string& text, const Json& logprobs, std::string& out) {
  Item& item = items_.back();
  item.text += text;
  const auto index = static_cast<int64_t>(items_.size() - 1);
  Json data = Json::object({{"item_id", item.id}, {"output_index", index}});
  if (item.kind == Kind::kCall) {
    data["delta"] = text;
    Event("response.function_call_arguments.delta", std::move(data), out);
    return;
  }
  data["content_index"] = 0;
  data["delta"] = text;
  if (item.kind == Kind::kMessage) {
    data["logprobs"] = logprobs;
    for (const Json& entry : logprobs) item.logprobs.push_back(entry);
  }
  Event(item.kind == Kind::kMessage ? "response.output_text.delta" : "response.reasoning_text.delta", std::move(data), out);
}

void ResponsesAnswer::End(std::string& out) {
  if (!std::exchange(is_open_, false)) return;
  const Item& item = items_.back();
  const auto index = static_cast<int64_t>(items_.size() - 1);
  Json data = Json::object({{"item_id", item.id}, {"output_index", index}});
  if (item.kind == Kind::kCall) {
    data["name"] = item.name;
    data["arguments"] = item.text;
    Event("response.function_call_arguments.done", std::move(data), out);
  } else {
    data["content_index"] = 0;
    Json part = data;
    data["text"] = item.text;
    if (item.kind == Kind::kMessage) data["logprobs"] = item.logprobs;
    Event(item.kind == Kind::kMessage ? "response.output_text.done" : "response.reasoning_text.done", std::move(data), out);
    part["part"] = PartJson(item, Done::kYes);
    Event("response.content_part.done", std::move(part), out);
  }
  Event("response.output_item.done", Json::object({{"output_index", index}, {"item", ItemJson(item, Done::kYes)}}), out);
}

void ResponsesAnswer::Take(const ChoiceNews& news, std::string& out) {
  const OutputPiece& piece = news.piece;
  const auto in = [this](Kind kind) { return is_open_ && items_.back().kind == kind; };
  if (!piece.reasoning.empty()) {
    if (!in(Kind::kReasoning)) Begin(Kind::kReasoning, {}, out);
    Extend(piece.reasoning, Json::array(), out);
  }
  if (!piece.content.empty()) {
    if (!in(Kind::kMessage)) Begin(Kind::kMessage, {}, out);
    Extend(piece.content, LogprobsJson(news.delta.tokens), out);
  }
  for (const ToolCallPiece& call : piece.tool_calls) {
    if (!call.name.empty()) Begin(Kind::kCall, {.name = call.name, .call_id = call.id}, out);
    if (!call.arguments.empty()) Extend(call.arguments, Json::array(), out);
  }
  if (news.delta.finish.has_value()) finish_ = news.delta.finish;
}

void ResponsesAnswer::AppendEvents(const ChoiceNews& news, const Usage* /*usage*/, std::string& out) {
  if (!std::exchange(is_started_, true)) {
    Event("response.created", Json::object({{"response", ResponseJson("in_progress", nullptr)}}), out);
    Event("response.in_progress", Json::object({{"response", ResponseJson("in_progress", nullptr)}}), out);
  }
  Take(news, out);
}

void ResponsesAnswer::AppendEnd(const Usage& usage, UsageEvent /*wanted*/, std::string& out) {
  End(out);
  const std::string_view status = Status();
  const Json response = ResponseJson(status, &usage);
  Keep(DumpJson(response));
  Event(status == "incomplete" ? "response.incomplete" : "response.completed", Json::object({{"response", response}}), out);
}

void ResponsesAnswer::AppendError(const ApiError& error, std::string& out) const {
  const Json event = Json::object({{"type", "error"},
                                   {"sequence_number", sequence_number_},
                                   {"code", ErrorType(error.status)},
                                   {"message", error.message},
                                   {"param", nullptr}});
  out += fmt::format("event: error\ndata: {}\n\n", DumpJson(event));
}

std::string ResponsesAnswer::Body(std::span<const ChoiceNews> choices, const Usage& usage) {
  std::string events;  // of which the whole answer needs none
  Take(choices.front(), events);
  std::string body = DumpJson(ResponseJson(Status(), &usage));
  Keep(body);
  return body;
}

}  // namespace

std::unique_ptr<Answer> MakeResponsesAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer,
                                            ResponseStore* store) {
  return std::make_unique<ResponsesAnswer>(std::move(head), request, tokenizer, store);
}

}  // namespace avocet::server
