#include "server/openapi.h"

#include <algorithm>
#include <array>
#include <utility>

namespace avocet::server {

namespace {

using enum FieldType;

constexpr auto kShared = std::to_array<ApiField>({
    {"model", kText, "A served name; the model if absent."},
    {"n", kInteger, "Answers per prompt."},
    {"temperature", kNumber, "0: the likeliest token. The model's default if absent."},
    {"top_p", kNumber, "Sample among the likeliest tokens with this share of the probability."},
    {"top_k", kInteger, "Sample among this many tokens; 0 or -1: all."},
    {"min_p", kNumber, "Leave out tokens below this share of the likeliest one."},
    {"presence_penalty", kNumber, "-2 to 2, for tokens that the answer has."},
    {"frequency_penalty", kNumber, "-2 to 2, per time that the answer has a token."},
    {"repetition_penalty", kNumber, "Above 0, for tokens of prompt and answer."},
    {"logit_bias", kObject, "Token id to a number from -100 to 100."},
    {"allowed_token_ids", kList, "Only these tokens."},
    {"bad_words", kTextList, "Words that must not appear."},
    {"seed", kInteger, "Repeats an answer."},
    {"stop", kAny, "A text or a list of texts that end the answer."},
    {"stop_token_ids", kList, "Tokens that end the answer."},
    {"include_stop_str_in_output", kBool, "Keep the stop text."},
    {"ignore_eos", kBool, "Go on after the end of the text."},
    {"max_tokens", kInteger, "Most tokens of an answer."},
    {"min_tokens", kInteger, "Fewest tokens of an answer."},
    {"prompt_logprobs", kInteger, "Alternatives per token of the prompt."},
    {"skip_special_tokens", kBool, "Leave special tokens out of the text."},
    {"truncate_prompt_tokens", kInteger, "Keep this many tokens of the prompt; -1: what fits."},
    {"truncation_side", kText, "The side that is cut off: left or right."},
    {"stream", kBool, "Send events as the answer grows."},
    {"stream_options", kObject, "include_usage, continuous_usage_stats."},
    {"stream_interval", kInteger, "Tokens per event."},
    {"response_format", kObject, "text, json_object, json_schema or structural_tag."},
    {"structured_outputs", kObject, "One of json, regex, choice, grammar, json_object, structural_tag."},
    {"thinking_token_budget", kInteger, "Most tokens of the thoughts."},
    {"return_token_ids", kBool, "Send token ids beside the text."},
    {"return_tokens_as_token_ids", kBool, "Show tokens in logprobs as token_id:N."},
    {"priority", kInteger, "Smaller is served first, with --scheduling-policy priority."},
    {"request_id", kText, "Part of the answer's id."},
});

constexpr auto kChat = std::to_array<ApiField>({
    {"messages", kList, "The conversation."},
    {"tools", kList, "Functions that the model may call."},
    {"tool_choice", kAny, "none, auto, required, or the function to call."},
    {"parallel_tool_calls", kBool, "false: one call at most."},
    {"logprobs", kBool, "Send log-probabilities."},
    {"top_logprobs", kInteger, "Alternatives per token."},
    {"max_completion_tokens", kInteger, "As max_tokens, and before it."},
    {"reasoning_effort", kText, "none: no thoughts."},
    {"include_reasoning", kBool, "false: leave the thoughts out of the answer."},
    {"chat_template_kwargs", kObject, "Variables for the template, such as enable_thinking."},
    {"chat_template", kText, "A template, with --trust-request-chat-template."},
    {"documents", kList, "For templates that use them."},
    {"add_generation_prompt", kBool, "End the prompt with the beginning of an answer."},
    {"continue_final_message", kBool, "Go on with the last message."},
    {"echo", kBool, "Repeat the last message in front of the answer."},
});

constexpr auto kCompletion = std::to_array<ApiField>({
    {"prompt", kAny, "A text, texts, token ids, or lists of token ids."},
    {"logprobs", kInteger, "Alternatives per token."},
    {"echo", kBool, "Repeat the prompt in front of the answer."},
    {"suffix", kText, "Not supported."},
});

Json TypeJson(FieldType type) {
  switch (type) {
    case kBool: return Json::object({{"type", "boolean"}});
    case kInteger: return Json::object({{"type", "integer"}});
    case kNumber: return Json::object({{"type", "number"}});
    case kText: return Json::object({{"type", "string"}});
    case kTextList: return Json::object({{"type", "array"}, {"items", Json::object({{"type", "string"}})}});
    case kObject: return Json::object({{"type", "object"}});
    case kList: return Json::object({{"type", "array"}, {"items", Json::object()}});
    case kAny: break;
  }
  return Json::object();
}

Json RequestSchema(std::span<const ApiField> own, std::string_view required) {
  Json properties = Json::object();
  for (const std::span<const ApiField> fields : {own, std::span<const ApiField>(kShared)}) {
    for (const ApiField& field : fields) {
      Json property = TypeJson(field.type);
      property["description"] = field.help;
      properties[std::string(field.name)] = std::move(property);
    }
  }
  return Json::object(
      {{"type", "object"}, {"properties", std::move(properties)}, {"required", Json::array({required})}, {"additionalProperties", true}});
}

Json ErrorSchema() {
  Json fields =
      Json::object({{"message", TypeJson(kText)}, {"type", TypeJson(kText)}, {"param", TypeJson(kText)}, {"code", TypeJson(kInteger)}});
  fields["param"]["nullable"] = true;
  Json error = Json::object({{"type", "object"}, {"properties", std::move(fields)}});
  return Json::object({{"type", "object"}, {"properties", Json::object({{"error", std::move(error)}})}});
}

Json Operation(const ApiRoute& route, std::string_view method) {
  std::string id(method);
  for (const char c : route.path) id += c == '/' || c == '{' || c == '}' ? '_' : c;
  const auto reference = [](std::string_view name) { return Json::object({{"$ref", "#/components/schemas/" + std::string(name)}}); };
  const auto content = [](Json schema) { return Json::object({{"application/json", Json::object({{"schema", std::move(schema)}})}}); };
  Json operation = Json::object({{"operationId", std::move(id)}});
  if (const size_t open = route.path.find('{'); open != std::string_view::npos) {
    const std::string name(route.path.substr(open + 1, route.path.find('}') - open - 1));
    operation["parameters"] =
        Json::array({Json::object({{"name", name}, {"in", "path"}, {"required", true}, {"schema", TypeJson(kText)}})});
  }
  if (method == "post" && !route.path.ends_with("/cancel") && route.path != "/ping") {
    const Json schema = route.path.starts_with("/v1/chat/completions") ? reference("ChatRequest")
                        : route.path.starts_with("/v1/completions")    ? reference("CompletionRequest")
                                                                       : TypeJson(kObject);
    operation["requestBody"] = Json::object({{"required", true}, {"content", content(schema)}});
  }
  operation["responses"] = Json::object({{"200", Json::object({{"description", "The answer."}})}});
  if (method == "post")
    operation["responses"]["400"] =
        Json::object({{"description", "What is wrong with the request."}, {"content", content(reference("Error"))}});
  return operation;
}

}  // namespace

std::span<const ApiField> SharedFields() {
  return kShared;
}
std::span<const ApiField> ChatFields() {
  return kChat;
}
std::span<const ApiField> CompletionFields() {
  return kCompletion;
}

Json OpenApiDocument(std::span<const ApiRoute> routes, std::string_view version) {
  Json paths = Json::object();
  for (const ApiRoute& route : routes) {
    Json operations = Json::object();
    if (route.methods.find("GET") != std::string_view::npos) operations["get"] = Operation(route, "get");
    if (route.methods.find("POST") != std::string_view::npos) operations["post"] = Operation(route, "post");
    paths[std::string(route.path)] = std::move(operations);
  }
  Json schemas = Json::object({{"ChatRequest", RequestSchema(kChat, "messages")},
                               {"CompletionRequest", RequestSchema(kCompletion, "prompt")},
                               {"Error", ErrorSchema()}});
  return Json::object({{"openapi", "3.1.0"},
                       {"info", Json::object({{"title", "Avocet"}, {"version", version}})},
                       {"paths", std::move(paths)},
                       {"components", Json::object({{"schemas", std::move(schemas)}})}});
}

}  // namespace avocet::server
