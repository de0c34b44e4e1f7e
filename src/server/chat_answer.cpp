// Answers of /v1/chat/completions: serving.md 2.8 and 2.9.
#include <utility>

#include "server/answer.h"

namespace avocet::server {

namespace {

class ChatAnswer final : public Answer {
 public:
  ChatAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer)
      : Answer(std::move(head), "chat.completion", "chat.completion.chunk"),
        request_(request),
        logprob_format_(tokenizer, request.token_names),
        has_role_(request.num_sequences(), false) {}

  void AppendEvents(const ChoiceNews& news, const Usage* usage, std::string& out) override;
  std::string Body(std::span<const ChoiceNews> choices, const Usage& usage) override;

 private:
  // One event. delta: its JSON; the rest only where it applies.
  void AppendEvent(const ChoiceNews& news, const Json& delta, const Usage* usage, std::string& out) const;
  void AppendRole(const ChoiceNews& news, const Usage* usage, std::string& out) const;
  Json LogprobsJson(const ChoiceDelta& delta) const;
  Json ChoiceJson(const ChoiceNews& choice) const;

  const PreparedRequest& request_;
  LogprobFormat logprob_format_;
  std::vector<bool> has_role_;  // per choice: its first event is out
};

Json ChatAnswer::LogprobsJson(const ChoiceDelta& delta) const {
  if (!request_.logprobs.has_value() || delta.tokens.empty()) return nullptr;
  return Json::object({{"content", logprob_format_.Chat(delta.tokens, *request_.logprobs)}});
}

void ChatAnswer::AppendRole(const ChoiceNews& news, const Usage* usage, std::string& out) const {
  const Json delta = Json::object({{"role", request_.role}, {"content", ""}});
  out += event_start() +
         fmt::format(",\"choices\":[{{\"index\":{},\"delta\":{},\"logprobs\":null,\"finish_reason\":null}}]", news.index, DumpJson(delta));
  if (request_.fields.return_token_ids) out += ",\"prompt_token_ids\":" + DumpJson(news.prompt->ids);
  if (usage != nullptr) out += ",\"usage\":" + DumpJson(UsageJson(*usage));
  out += "}\n\n";
  if (!request_.has_echo || news.prompt->text.empty()) return;
  ChoiceNews echo{.index = news.index, .prompt = news.prompt, .prompt_logprobs = {}, .delta = {}};
  AppendEvent(echo, Json::object({{"content", news.prompt->text}}), usage, out);
}

void ChatAnswer::AppendEvent(const ChoiceNews& news, const Json& delta, const Usage* usage, std::string& out) const {
  const ChoiceDelta& added = news.delta;
  out += event_start() + fmt::format(",\"choices\":[{{\"index\":{},\"delta\":{},\"logprobs\":{},\"finish_reason\":{}", news.index,
                                     DumpJson(delta), DumpJson(LogprobsJson(added)), DumpJson(FinishJson(added.finish)));
  if (added.finish.has_value()) out += ",\"stop_reason\":" + DumpJson(StopReasonJson(added.finish));
  if (request_.fields.return_token_ids) out += ",\"token_ids\":" + DumpJson(TokenIdsJson(added.tokens));
  out += "}]";
  if (usage != nullptr) out += ",\"usage\":" + DumpJson(UsageJson(*usage));
  out += "}\n\n";
}

void ChatAnswer::AppendEvents(const ChoiceNews& news, const Usage* usage, std::string& out) {
  if (const auto index = static_cast<size_t>(news.index); !has_role_[index]) {
    has_role_[index] = true;
    AppendRole(news, usage, out);
  }
  // A step that brings nothing to show makes no event.
  const bool shows_tokens = !news.delta.tokens.empty() && (request_.logprobs.has_value() || request_.fields.return_token_ids);
  if (news.delta.text.empty() && !news.delta.finish.has_value() && !shows_tokens) return;
  AppendEvent(news, Json::object({{"content", news.delta.text}}), usage, out);
}

Json ChatAnswer::ChoiceJson(const ChoiceNews& choice) const {
  const ChoiceDelta& all = choice.delta;
  std::string content = request_.has_echo ? choice.prompt->text + all.text : all.text;
  Json message = Json::object();
  message["role"] = request_.role;
  message["content"] = content.empty() ? Json(nullptr) : Json(std::move(content));
  message["refusal"] = nullptr;
  message["annotations"] = nullptr;
  message["audio"] = nullptr;
  message["function_call"] = nullptr;
  message["reasoning"] = nullptr;
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
  body["system_fingerprint"] = nullptr;
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

std::unique_ptr<Answer> MakeChatAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer) {
  return std::make_unique<ChatAnswer>(std::move(head), request, tokenizer);
}

}  // namespace avocet::server
