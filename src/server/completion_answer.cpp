// Answers of /v1/completions: serving.md 2.10.
#include <utility>

#include "server/answer.h"

namespace avocet::server {

namespace {

class CompletionAnswer final : public Answer {
 public:
  CompletionAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer)
      : Answer(std::move(head), "text_completion", "text_completion"), request_(request), logprob_format_(tokenizer, request.token_names) {
    for (size_t i = 0; i < request.num_sequences(); ++i) {
      states_.push_back({.is_started = false, .logprobs = CompletionLogprobs(logprob_format_, request.logprobs.value_or(0))});
    }
  }

  void AppendEvents(const ChoiceNews& news, const Usage* usage, std::string& out) override;
  std::string Body(std::span<const ChoiceNews> choices, const Usage& usage) override;

 private:
  struct State {
    bool is_started;  // its first event is out
    CompletionLogprobs logprobs;
  };

  Json LogprobsJson(const ChoiceNews& news, State& state) const;
  Json ChoiceJson(const ChoiceNews& choice, State& state) const;

  const PreparedRequest& request_;
  LogprobFormat logprob_format_;
  std::vector<State> states_;  // per choice
};

Json CompletionAnswer::LogprobsJson(const ChoiceNews& news, State& state) const {
  if (!request_.logprobs.has_value()) return nullptr;
  if (!state.is_started && request_.has_echo) {
    const std::vector<int32_t>& ids = news.prompt->ids;
    for (size_t i = 0; i < ids.size(); ++i) {
      state.logprobs.Add(ids[i], i < news.prompt_logprobs.size() ? news.prompt_logprobs[i] : std::nullopt);
    }
  }
  for (const engine::OutputToken& token : news.delta.tokens) state.logprobs.Add(token.id, token.logprobs);
  return state.logprobs.Take();
}

void CompletionAnswer::AppendEvents(const ChoiceNews& news, const Usage* usage, std::string& out) {
  State& state = states_[static_cast<size_t>(news.index)];
  const bool has_echo = !state.is_started && request_.has_echo;
  const bool shows_tokens = !news.delta.tokens.empty() && (request_.logprobs.has_value() || request_.fields.return_token_ids);
  if (news.delta.text.empty() && !news.delta.finish.has_value() && !shows_tokens && !has_echo) return;
  const std::string text = has_echo ? news.prompt->text + news.delta.text : news.delta.text;
  out += event_start() + fmt::format(",\"choices\":[{{\"index\":{},\"text\":{},\"logprobs\":{},\"finish_reason\":{},\"stop_reason\":{}",
                                     news.index, DumpJson(text), DumpJson(LogprobsJson(news, state)),
                                     DumpJson(FinishJson(news.delta.finish)), DumpJson(StopReasonJson(news.delta.finish)));
  if (request_.fields.return_token_ids) {
    if (!state.is_started) out += ",\"prompt_token_ids\":" + DumpJson(news.prompt->ids);
    out += ",\"token_ids\":" + DumpJson(TokenIdsJson(news.delta.tokens));
  }
  out += "}]";
  if (usage != nullptr) out += ",\"usage\":" + DumpJson(UsageJson(*usage));
  out += "}\n\n";
  state.is_started = true;
}

Json CompletionAnswer::ChoiceJson(const ChoiceNews& choice, State& state) const {
  const ChoiceDelta& all = choice.delta;
  Json json = Json::object();
  json["index"] = choice.index;
  json["text"] = request_.has_echo ? choice.prompt->text + all.text : all.text;
  json["logprobs"] = LogprobsJson(choice, state);
  json["finish_reason"] = FinishJson(all.finish);
  json["stop_reason"] = StopReasonJson(all.finish);
  json["token_ids"] = request_.fields.return_token_ids ? TokenIdsJson(all.tokens) : Json(nullptr);
  json["prompt_logprobs"] = nullptr;
  if (const auto num_top = request_.fields.prompt_logprobs) {
    json["prompt_logprobs"] = logprob_format_.Prompt(choice.prompt_logprobs, *num_top);
  }
  json["prompt_token_ids"] = request_.fields.return_token_ids ? Json(choice.prompt->ids) : Json(nullptr);
  return json;
}

std::string CompletionAnswer::Body(std::span<const ChoiceNews> choices, const Usage& usage) {
  Json body = Answer::Body();
  Json list = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) list.push_back(ChoiceJson(choices[i], states_[i]));
  body["choices"] = std::move(list);
  body["service_tier"] = nullptr;
  body["system_fingerprint"] = Fingerprint();
  body["usage"] = UsageJson(usage);
  body["kv_transfer_params"] = nullptr;
  return DumpJson(body);
}

}  // namespace

std::unique_ptr<Answer> MakeCompletionAnswer(AnswerHead head, const PreparedRequest& request, const tokenizer::Tokenizer* tokenizer) {
  return std::make_unique<CompletionAnswer>(std::move(head), request, tokenizer);
}

}  // namespace avocet::server
