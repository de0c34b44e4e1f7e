#include "server/answer.h"

#include <utility>

namespace avocet::server {

Answer::Answer(AnswerHead head, std::string_view object, std::string_view chunk_object, ErrorStyle style)
    : head_(std::move(head)), object_(object), style_(style) {
  Json chunk = Body();
  chunk["object"] = chunk_object;
  event_start_ = "data: " + DumpJson(chunk);
  event_start_.pop_back();  // the brace; events go on from here
}

Json Answer::Body() const {
  Json body = Json::object();
  body["id"] = head_.id;
  body["object"] = object_;
  body["created"] = head_.created;
  body["model"] = head_.model;
  return body;
}

Json Answer::UsageJson(const Usage& usage) const {
  Json json = Json::object();
  json["prompt_tokens"] = usage.prompt_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["prompt_tokens_details"] = nullptr;
  if (head_.details == UsageDetails::kShow) json["prompt_tokens_details"] = Json::object({{"cached_tokens", usage.cached_tokens}});
  if (usage.reasoning_tokens.has_value()) {
    json["completion_tokens_details"] = Json::object({{"reasoning_tokens", *usage.reasoning_tokens}});
  }
  return json;
}

std::string ErrorBodyFor(ErrorStyle style, const ApiError& error) {
  return style == ErrorStyle::kAnthropic ? DumpJson(MessagesErrorJson(error)) : ErrorBody(error);
}

void Answer::AppendError(const ApiError& error, std::string& out) const {
  out += ErrorEvent(error);
  out += kDoneEvent;
}

void Answer::AppendEnd(const Usage& usage, UsageEvent wanted, std::string& out) {
  if (wanted == UsageEvent::kSend) out += event_start_ + ",\"choices\":[],\"usage\":" + DumpJson(UsageJson(usage)) + "}\n\n";
  out += kDoneEvent;
}

std::string ErrorEvent(const ApiError& error) {
  return "data: " + ErrorBody(error) + "\n\n";
}

Json FinishJson(const std::optional<Finish>& finish) {
  if (!finish.has_value()) return nullptr;
  return finish->is_tool_calls ? Json("tool_calls") : Json(FinishName(finish->reason));
}

Json StopReasonJson(const std::optional<Finish>& finish) {
  if (!finish.has_value()) return nullptr;
  if (const auto* text = std::get_if<std::string>(&finish->stop_reason)) return *text;
  if (const auto* id = std::get_if<int32_t>(&finish->stop_reason)) return *id;
  return nullptr;
}

Json TokenIdsJson(std::span<const engine::OutputToken> tokens) {
  Json ids = Json::array();
  for (const engine::OutputToken& token : tokens) ids.push_back(token.id);
  return ids;
}

}  // namespace avocet::server
