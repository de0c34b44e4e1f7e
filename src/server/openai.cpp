#include "server/openai.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/limits.h"
#include "base/printable.h"
#include "server/chat_input.h"

namespace avocet::server {

namespace {

ApiResult<void> CheckIsObject(const Json& body) {
  if (body.is_object()) return {};
  Problems problems;
  problems.Add(ProblemKind::kSchema, "", "the body: expected an object, got " + Preview(body));
  return std::unexpected(problems.ToError());
}

// The limit on the output: `names` in falling rank.
void ReadMaxTokens(FieldReader& reader, std::initializer_list<std::string_view> names, const ServerOptions& options,
                   SamplingFields& fields) {
  for (const std::string_view name : names) {
    const auto value = reader.Int(name, 0, std::numeric_limits<int64_t>::max());
    if (!value.has_value()) continue;
    if (!fields.max_tokens.has_value()) {
      fields.max_tokens = value;
      fields.max_tokens_name = name;
    }
    if (*value > options.max_model_len) {
      reader.NotAllowed(name,
                        fmt::format("{} is {}, the model's maximum context length is {} tokens", name, *value, options.max_model_len));
    }
  }
  if (fields.max_tokens.has_value() && fields.min_tokens > *fields.max_tokens) {
    reader.NotAllowed("min_tokens",
                      fmt::format("min_tokens {} is above {} {}", fields.min_tokens, fields.max_tokens_name, *fields.max_tokens));
  }
}

std::vector<PromptInput> ReadPromptList(FieldReader& reader, const Json& list, int32_t vocab_size) {
  std::vector<PromptInput> prompts;
  if (list.empty() || list.front().is_number()) {
    if (auto ids = TokenIdsOf(list, "prompt", vocab_size, reader.problems())) prompts.emplace_back(*std::move(ids));
    return prompts;
  }
  if (list.size() > static_cast<size_t>(limits::kCompletionPromptsMax)) {
    reader.NotAllowed("prompt", fmt::format("{} prompts, at most {}", list.size(), limits::kCompletionPromptsMax));
    return prompts;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& item = list[i];
    const std::string path = fmt::format("prompt.{}", i);
    if (item.is_string() && list.front().is_string()) {
      prompts.emplace_back(item.get<std::string>());
    } else if (item.is_array() && list.front().is_array()) {
      auto ids = TokenIdsOf(item, path, vocab_size, reader.problems());
      if (!ids.has_value()) return prompts;
      prompts.emplace_back(*std::move(ids));
    } else {
      reader.Expected(path, list.front().is_string() ? "a string" : "a list of token ids", item);
      return prompts;
    }
  }
  return prompts;
}

std::vector<PromptInput> ReadPrompts(FieldReader& reader, int32_t vocab_size) {
  std::vector<PromptInput> prompts;
  const Json* prompt = reader.Find("prompt");
  if (prompt == nullptr) {
    reader.Expected("prompt", "a string, a list of strings, token ids or a list of lists of token ids", Json(nullptr));
  } else if (prompt->is_string()) {
    prompts.emplace_back(prompt->get<std::string>());
  } else if (prompt->is_array()) {
    prompts = ReadPromptList(reader, *prompt, vocab_size);
  } else {
    reader.Expected("prompt", "a string, a list of strings, token ids or a list of lists of token ids", *prompt);
  }
  for (const PromptInput& input : prompts) {
    if (std::visit([](const auto& value) { return value.empty(); }, input)) {
      reader.NotAllowed("prompt", "a prompt is empty");
      break;
    }
  }
  return prompts;
}

std::optional<int32_t> ReadChatLogprobs(FieldReader& reader, const ServerOptions& options) {
  const bool has_logprobs = reader.Bool("logprobs").value_or(false);
  const std::optional<int32_t> num_top = ReadLogprobCount(reader, "top_logprobs", options);
  if (!has_logprobs && num_top.value_or(0) > 0) reader.NotAllowed("top_logprobs", "top_logprobs needs logprobs to be true");
  if (!has_logprobs) return std::nullopt;
  return num_top.value_or(0);
}

}  // namespace

ApiResult<void> CheckModelName(const std::string& model, const ServerOptions& options) {
  if (model.empty() || options.accept_any_model_name) return {};
  if (std::ranges::find(options.served_model_names, model) != options.served_model_names.end()) return {};
  return Refuse(404, "model", "the model `{}` does not exist; served: {}", Printable(model), fmt::join(options.served_model_names, ", "));
}

ApiResult<CompletionRequest> ReadCompletionRequest(const Json& body, const ServerOptions& options) {
  AVOCET_TRY_VOID(CheckIsObject(body));
  Problems problems;
  FieldReader reader(body, "", problems);
  CompletionRequest request;
  request.model = reader.String("model").value_or("");
  AVOCET_TRY_VOID(CheckModelName(request.model, options));
  AVOCET_TRY(request.sampling, ReadSamplingFields(reader, options));
  request.prompts = ReadPrompts(reader, options.vocab_size);
  request.has_echo = reader.Bool("echo").value_or(false);
  request.logprobs = ReadLogprobCount(reader, "logprobs", options);
  ReadMaxTokens(reader, {"max_tokens"}, options, request.sampling);
  if (request.sampling.max_tokens == 0 && !request.has_echo) {
    reader.NotAllowed("max_tokens", "max_tokens must be at least 1, got 0; 0 is only allowed with echo");
  }
  if (const auto suffix = reader.String("suffix"); suffix.has_value() && !suffix->empty()) {
    reader.NotAllowed("suffix", "text after the completion is not supported");
  }
  if (request.prompts.size() * static_cast<size_t>(request.sampling.n) > limits::kRequestSequencesMax) {
    reader.NotAllowed("n", fmt::format("{} prompts times n {} are more than {} sequences", request.prompts.size(), request.sampling.n,
                                       limits::kRequestSequencesMax));
  }
  if (!problems.empty()) return std::unexpected(problems.ToError());
  return request;
}

ApiResult<ChatRequest> ReadChatRequest(const Json& body, const ServerOptions& options) {
  AVOCET_TRY_VOID(CheckIsObject(body));
  Problems problems;
  FieldReader reader(body, "", problems);
  ChatRequest request;
  request.model = reader.String("model").value_or("");
  AVOCET_TRY_VOID(CheckModelName(request.model, options));
  AVOCET_TRY(request.sampling, ReadSamplingFields(reader, options));
  AVOCET_TRY(request.input, ReadChatInput(reader, options));
  AVOCET_TRY(request.tool_choice, ReadToolChoice(reader, request.input, options));
  request.parallel_tool_calls = reader.Bool("parallel_tool_calls").value_or(true);
  request.include_reasoning = reader.Bool("include_reasoning").value_or(true);
  request.has_echo = reader.Bool("echo").value_or(false);
  request.logprobs = ReadChatLogprobs(reader, options);
  ReadMaxTokens(reader, {"max_completion_tokens", "max_tokens"}, options, request.sampling);
  if (request.sampling.max_tokens == 0) {
    reader.NotAllowed(request.sampling.max_tokens_name, fmt::format("{} must be at least 1, got 0", request.sampling.max_tokens_name));
  }
  if (!problems.empty()) return std::unexpected(problems.ToError());
  return request;
}

ApiResult<TokenizeRequest> ReadTokenizeRequest(const Json& body, const ServerOptions& options) {
  AVOCET_TRY_VOID(CheckIsObject(body));
  Problems problems;
  FieldReader reader(body, "", problems);
  TokenizeRequest request;
  request.model = reader.String("model").value_or("");
  AVOCET_TRY_VOID(CheckModelName(request.model, options));
  request.return_token_strs = reader.Bool("return_token_strs").value_or(false);
  if (reader.Find("messages") != nullptr) {
    AVOCET_TRY(request.input, ReadChatInput(reader, options));
  } else if (auto prompt = reader.String("prompt")) {
    request.input = *std::move(prompt);
  } else if (reader.Find("prompt") == nullptr) {
    reader.Expected("prompt", "a string, or messages", Json(nullptr));
  }
  if (!problems.empty()) return std::unexpected(problems.ToError());
  return request;
}

ApiResult<DetokenizeRequest> ReadDetokenizeRequest(const Json& body, const ServerOptions& options) {
  AVOCET_TRY_VOID(CheckIsObject(body));
  Problems problems;
  FieldReader reader(body, "", problems);
  DetokenizeRequest request;
  request.model = reader.String("model").value_or("");
  AVOCET_TRY_VOID(CheckModelName(request.model, options));
  if (auto tokens = reader.TokenIds("tokens", options.vocab_size)) {
    request.tokens = *std::move(tokens);
  } else if (reader.Find("tokens") == nullptr) {
    reader.Expected("tokens", "a list of token ids", Json(nullptr));
  }
  if (!problems.empty()) return std::unexpected(problems.ToError());
  return request;
}

}  // namespace avocet::server
