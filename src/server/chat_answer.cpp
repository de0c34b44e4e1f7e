// Answers of /v1/chat/completions: serving.md 2.8 and 2.9.
#include <utility>

#include "server/answer.h"

namespace avocet::server {

namespace {

class ChatAnswer final : public Answer {
 public:
  ChatAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer, ReasoningNames names)
      : Answer(std::move(head), "chat.completion", "chat.completion.chunk"),
        request_(request),
        logprob_format_(tokenizer, request.token_names),
        names_(names),
        has_role_(request.num_sequences(), false) {}

  void AppendEvents(const ChoiceNews& news, const Usage* usage, std::string& out) override;
  std::string Body(std::span<const ChoiceNews> choices, const Usage& usage) override;

 private:
  // One event. delta: its JSON; tokens and finish only where they apply.
  void AppendEvent(int32_t index, const Json& delta, const ChoiceDelta& added, const Usage* usage, std::string& out) const;
  void AppendRole(const ChoiceNews& news, const Usage* usage, std::string& out) const;
  // What a delta shows, in one event each; a call is announced before its arguments come.
  std::vector<Json> DeltasOf(const OutputPiece& piece) const;
  void AddReasoning(const std::string& reasoning, Json& message) const;
  Json LogprobsJson(const ChoiceDelta& delta) const;
  Json ChoiceJson(const ChoiceNews& choice) const;

  const PreparedRequest& request_;
  LogprobFormat logprob_format_;
  ReasoningNames names_;
  std::vector<bool> has_role_;  // per choice: its first event is out
};

Json ChatAnswer::LogprobsJson(const ChoiceDelta& delta) const {
  if (!request_.logprobs.has_value() || delta.tokens.empty()) return nullptr;
  return Json::object({{"content", logprob_format_.Chat(delta.tokens, *request_.logprobs)}});
}

void ChatAnswer::AddReasoning(const std::string& reasoning, Json& message) const {
  message["reasoning"] = reasoning;
  if (names_ == ReasoningNames::kBoth) message["reasoning_content"] = reasoning;
}

void ChatAnswer::AppendRole(const ChoiceNews& news, const Usage* usage, std::string& out) const {
  const Json delta = Json::object({{"role", request_.role}, {"content", ""}});
  out += event_start() +
         fmt::format(",\"choices\":[{{\"index\":{},\"delta\":{},\"logprobs\":null,\"finish_reason\":null}}]", news.index, DumpJson(delta));
  if (request_.fields.return_token_ids) out += ",\"prompt_token_ids\":" + DumpJson(news.prompt->ids);
  if (usage != nullptr) out += ",\"usage\":" + DumpJson(UsageJson(*usage));
  out += "}\n\n";
  if (!request_.has_echo || news.prompt->text.empty()) return;
  AppendEvent(news.index, Json::object({{"content", news.prompt->text}}), {}, usage, out);
}

void ChatAnswer::AppendEvent(int32_t index, const Json& delta, const ChoiceDelta& added, const Usage* usage, std::string& out) const {
  out += event_start() + fmt::format(",\"choices\":[{{\"index\":{},\"delta\":{},\"logprobs\":{},\"finish_reason\":{}", index,
                                     DumpJson(delta), DumpJson(LogprobsJson(added)), DumpJson(FinishJson(added.finish)));
  if (added.finish.has_value()) out += ",\"stop_reason\":" + DumpJson(StopReasonJson(added.finish));
  if (request_.fields.return_token_ids) out += ",\"token_ids\":" + DumpJson(TokenIdsJson(added.tokens));
  out += "}]";
  if (usage != nullptr) out += ",\"usage\":" + DumpJson(UsageJson(*usage));
  out += "}\n\n";
}

std::vector<Json> ChatAnswer::DeltasOf(const OutputPiece& piece) const {
  std::vector<Json> deltas;
  Json text = Json::object();
  if (!piece.reasoning.empty()) AddReasoning(piece.reasoning, text);
  if (!piece.content.empty()) text["content"] = piece.content;
  if (!text.empty()) deltas.push_back(std::move(text));
  const auto add_call = [&deltas](Json call) {
    Json delta = Json::object();
    delta["tool_calls"] = Json::array({std::move(call)});
    deltas.push_back(std::move(delta));
  };
  for (const ToolCallPiece& call : piece.tool_calls) {
    if (!call.name.empty()) {
      add_call(Json::object({{"index", call.index},
                             {"id", call.id},
                             {"type", "function"},
                             {"function", Json::object({{"name", call.name}, {"arguments", ""}})}}));
    }
    if (!call.arguments.empty()) {
      add_call(Json::object({{"index", call.index}, {"function", Json::object({{"arguments", call.arguments}})}}));
    }
  }
  return deltas;
}

void ChatAnswer::AppendEvents(const ChoiceNews& news, const Usage* usage, std::string& out) {
  if (const auto index = static_cast<size_t>(news.index); !has_role_[index]) {
    has_role_[index] = true;
    AppendRole(news, usage, out);
  }
  std::vector<Json> deltas = DeltasOf(news.piece);
  // A step that brings nothing to show makes no event.
  const bool shows_tokens = !news.delta.tokens.empty() && (request_.logprobs.has_value() || request_.fields.return_token_ids);
  if (deltas.empty() && !news.delta.finish.has_value() && !shows_tokens) return;
  const bool is_split = request_.output.reasoning != ReasoningFormat::kNone || request_.output.tools != ToolFormat::kNone;
  if (deltas.empty()) deltas.push_back(is_split ? Json::object() : Json::object({{"content", ""}}));
  // The tokens come with the first event, the finish with the last.
  ChoiceDelta added{.text = {}, .tokens = news.delta.tokens, .finish = {}};
  for (size_t i = 0; i < deltas.size(); ++i) {
    if (i + 1 == deltas.size()) added.finish = news.delta.finish;
    AppendEvent(news.index, deltas[i], added, usage, out);
    added.tokens.clear();
  }
}

Json ToolCallsJson(std::span<const ToolCallPiece> calls) {
  Json list = Json::array();
  for (const ToolCallPiece& call : calls) {
    list.push_back(Json::object(
        {{"id", call.id}, {"type", "function"}, {"function", Json::object({{"name", call.name}, {"arguments", call.arguments}})}}));
  }
  return list;
}

Json ChatAnswer::ChoiceJson(const ChoiceNews& choice) const {
  const ChoiceDelta& all = choice.delta;
  const OutputPiece& piece = choice.piece;
  std::string content = request_.has_echo ? choice.prompt->text + piece.content : piece.content;
  Json message = Json::object();
  message["role"] = request_.role;
  message["content"] = content.empty() ? Json(nullptr) : Json(std::move(content));
  message["refusal"] = nullptr;
  message["annotations"] = nullptr;
  message["audio"] = nullptr;
  message["function_call"] = nullptr;
  message["reasoning"] = nullptr;
  if (!piece.tool_calls.empty()) message["tool_calls"] = ToolCallsJson(piece.tool_calls);
  if (!piece.reasoning.empty()) AddReasoning(piece.reasoning, message);
  Json json = Json::object();
  json["index"] = choice.index;
  json["message"] = std::move(message);
  json["logprobs"] = LogprobsJson(all);
  json["finish_reason"] = FinishJson(all.finish);
  json["stop_reason"] = StopReasonJson(all.finish);
  json["token_ids"] = request_.fields.return_token_ids ? TokenIdsJson(all.tokens) : Json(nullptr);
  return json;
}

std::string ChatAnswer::Body(std::span<const ChoiceNews> choices, const Usage& usage) {
  Json body = Answer::Body();
  Json list = Json::array();
  for (const ChoiceNews& choice : choices) list.push_back(ChoiceJson(choice));
  body["choices"] = std::move(list);
  body["service_tier"] = nullptr;
  body["system_fingerprint"] = Fingerprint();
  body["usage"] = UsageJson(usage);
  body["prompt_logprobs"] = nullptr;
  if (const auto num_top = request_.fields.prompt_logprobs) {
    body["prompt_logprobs"] = logprob_format_.Prompt(choices.front().prompt_logprobs, *num_top);
  }
  body["prompt_token_ids"] = nullptr;
  if (request_.fields.return_token_ids) body["prompt_token_ids"] = choices.front().prompt->ids;
  body["kv_transfer_params"] = nullptr;
  return DumpJson(body);
}

}  // namespace

std::unique_ptr<Answer> MakeChatAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer,
                                       ReasoningNames names) {
  return std::make_unique<ChatAnswer>(std::move(head), request, tokenizer, names);
}

}  // namespace avocet::server
