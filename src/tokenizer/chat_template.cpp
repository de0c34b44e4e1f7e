#include "tokenizer/chat_template.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_eval.h"
#include "tokenizer/jinja_parser.h"

namespace avocet::tokenizer {

struct ChatTemplate::Impl {
  std::string name;
  jinja::Block block;
  bool wants_content_parts = false;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

bool ChatTemplate::wants_content_parts() const {
  return impl_->wants_content_parts;
}

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source, std::string name) {
  if (source.size() > limits::kTemplateBytesMax) {
    return Fail(Errc::kInvalidArgument, "chat template {} has {} bytes, the limit is {}", name, source.size(), limits::kTemplateBytesMax);
  }
  auto impl = std::make_unique<Impl>();
  impl->name = std::move(name);
  // A template that looks at parts of content names their types.
  impl->wants_content_parts = source.find("image") != std::string_view::npos || source.find("'text'") != std::string_view::npos;
  try {
    impl->block = jinja::Parse(source);
  } catch (const jinja::TemplateError& error) {
    return Fail(Errc::kInvalidArgument, "chat template {}: {}", impl->name, error.what());
  }
  return ChatTemplate(std::move(impl));
}

Result<std::string> ChatTemplate::Render(const Json& variables) const {
  try {
    auto globals = jinja::MakeGlobals();
    for (const auto& [key, value] : variables.items()) globals[key] = jinja::Value::FromJson(value);
    jinja::Evaluator evaluator(std::move(globals));
    return evaluator.Render(impl_->block);
  } catch (const jinja::TemplateError& error) {
    if (error.is_raised) return std::unexpected(Error{Errc::kInvalidArgument, error.what(), {}});
    return Fail(Errc::kInvalidArgument, "chat template {}: {}", impl_->name, error.what());
  }
}

namespace {

// As Hugging Face prepares messages: null values are absent, reasoning has one name, tool arguments are objects.
Json PrepareMessage(const Json& message) {
  if (!message.is_object()) return message;
  Json prepared = Json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) prepared[key] = value;
  }
  for (const char* other : {"thinking", "reasoning"}) {
    if (!prepared.contains("reasoning_content") && prepared.contains(other)) prepared["reasoning_content"] = prepared[other];
  }
  if (!prepared.contains("tool_calls") || !prepared["tool_calls"].is_array()) return prepared;
  for (Json& call : prepared["tool_calls"]) {
    Json* function = call.is_object() && call.contains("function") ? &call["function"] : &call;
    if (!function->is_object() || !function->contains("arguments") || !(*function)["arguments"].is_string()) continue;
    Json parsed = Json::parse((*function)["arguments"].get<std::string>(), nullptr, false);
    if (parsed.is_object()) (*function)["arguments"] = std::move(parsed);
  }
  return prepared;
}

// The text of the last message as it stands in the prompt.
std::string FinalText(const Json& message) {
  if (!message.contains("content")) return {};
  const Json& content = message["content"];
  if (content.is_string()) return content.get<std::string>();
  if (content.is_array()) {
    for (auto part = content.rbegin(); part != content.rend(); ++part) {
      if (part->is_object() && part->contains("text") && (*part)["text"].is_string()) return (*part)["text"].get<std::string>();
    }
  }
  return {};
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

Result<std::string> RenderChat(const ChatTemplate& chat_template, const ChatRender& chat) {
  if (!chat.messages.is_array()) return FailParam("messages", "messages must be a list");
  if (chat.messages.empty()) return FailParam("messages", "messages must have at least one message");
  Json variables = chat.kwargs.is_object() ? chat.kwargs : Json::object();
  Json messages = Json::array();
  for (const Json& message : chat.messages) messages.push_back(PrepareMessage(message));
  const std::string final_text = chat.continue_final_message ? FinalText(messages.back()) : std::string();
  variables["messages"] = std::move(messages);
  if (!chat.tools.is_null()) variables["tools"] = chat.tools;
  variables["add_generation_prompt"] = chat.add_generation_prompt;
  if (!chat.eos_token.empty()) variables["eos_token"] = chat.eos_token;
  if (!chat.pad_token.empty()) variables["pad_token"] = chat.pad_token;
  if (!chat.bos_token.empty()) variables["bos_token"] = chat.bos_token;
  AVOCET_TRY(std::string text, chat_template.Render(variables));
  if (!chat.continue_final_message) return text;
  // The prompt ends where the last message's content ends.
  std::string_view last = final_text;
  size_t at = text.rfind(last);
  if (at == std::string::npos) {
    last = Trimmed(final_text);
    at = text.rfind(last);
  }
  if (at == std::string::npos) {
    return FailParam("continue_final_message", "the chat template does not show the last message's content, so it cannot be continued");
  }
  return text.substr(0, at + last.size());
}

}  // namespace avocet::tokenizer
