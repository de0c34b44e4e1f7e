// Bodies of requests to structs (serving.md 2.6, 2.7, 2.10, 2.13). JSON ends here, except for what the chat template is to see.
// Every message names the field. Stateless; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/api_error.h"
#include "server/json_input.h"
#include "server/sampling_fields.h"
#include "server/server_options.h"

namespace avocet::server {

// Text, or token ids.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::string model;
  SamplingFields sampling;
  std::vector<PromptInput> prompts;
  std::optional<int32_t> logprobs;  // alternatives per token
  bool has_echo = false;
};

// What the chat template needs; /tokenize has it too.
struct ChatInput {
  Json messages;  // content: string, or a list of text parts
  Json tools;     // null: none
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  Json kwargs = Json::object();              // over the server's defaults
  std::optional<std::string> chat_template;  // the request's own, only if trusted
};

enum class ToolChoiceKind : uint8_t { kNone, kAuto, kRequired, kNamed };
struct ToolChoice {
  ToolChoiceKind kind = ToolChoiceKind::kNone;
  std::string name;  // of the function, with kNamed
};

struct ChatRequest {
  std::string model;
  SamplingFields sampling;
  ChatInput input;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  bool include_reasoning = true;
  std::optional<int32_t> logprobs;  // alternatives per token
  bool has_echo = false;
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatInput> input;
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};

ApiResult<CompletionRequest> ReadCompletionRequest(const Json& body, const ServerOptions& options);
ApiResult<ChatRequest> ReadChatRequest(const Json& body, const ServerOptions& options);
ApiResult<TokenizeRequest> ReadTokenizeRequest(const Json& body, const ServerOptions& options);
ApiResult<DetokenizeRequest> ReadDetokenizeRequest(const Json& body, const ServerOptions& options);

// An unknown name is a 404; empty means the model that is served.
ApiResult<void> CheckModelName(const std::string& model, const ServerOptions& options);

}  // namespace avocet::server
