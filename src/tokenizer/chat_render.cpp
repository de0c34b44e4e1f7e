// RenderChat: what Hugging Face's apply_chat_template does around the template (transformers 5.24).
#include <algorithm>
#include <array>
#include <utility>

#include "tokenizer/chat_template.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer {
namespace {

using jinja::DictBuilder;
using jinja::Value;

// A message's thoughts, by the names that clients use; templates read the first.
constexpr std::array<std::string_view, 3> kReasoningKeys = {"reasoning_content", "thinking", "reasoning"};

// Stands at the end of the last message while it is rendered: what the template puts behind it is cut off.
constexpr std::string_view kCutMark = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kCutMarkStripped = kCutMark.substr(0, kCutMark.size() - 1);

const Json* FindKey(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// arguments: text that is a JSON object, or nothing at all, becomes an object; other text stays.
void ParseArguments(Json& call) {
  const auto arguments = call.find("arguments");
  if (arguments == call.end()) return;
  if (arguments->is_null()) *arguments = Json::object();
  if (!arguments->is_string()) return;
  const std::string& text = arguments->get_ref<const std::string&>();
  Json parsed = jinja::StripLeft(text, std::nullopt).empty() ? Json::object() : Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object()) *arguments = std::move(parsed);
}

Json WithParsedArguments(const Json& tool_calls) {
  Json calls = tool_calls;
  if (!calls.is_array()) return calls;
  for (Json& call : calls) {
    if (!call.is_object()) continue;
    const auto function = call.find("function");
    if (function != call.end() && function->is_object()) ParseArguments(*function);
    ParseArguments(call);
  }
  return calls;
}

// Keys whose value is null are dropped; reasoning appears under the names that templates ask for.
Result<Value> MessageValue(const Json& message, size_t index) {
  if (!message.is_object()) return FailParam("messages", "message {} is not an object", index);
  jinja::Budget budget;
  DictBuilder dict;
  Value reasoning;
  for (const std::string_view key : kReasoningKeys) {
    const Json* const found = FindKey(message, key);
    if (found == nullptr) continue;
    AVOCET_TRY(reasoning, Value::FromJson(*found));
    AVOCET_TRY_VOID(dict.Set(Value::String("thinking"), reasoning, budget));
    break;
  }
  for (const auto& [key, item] : *message.get_ptr<const Json::object_t*>()) {
    if (item.is_null()) continue;
    AVOCET_TRY(Value value, key == "tool_calls" ? Value::FromJson(WithParsedArguments(item)) : Value::FromJson(item));
    AVOCET_TRY_VOID(dict.Set(Value::String(key), std::move(value), budget));
  }
  if (!reasoning.is_none()) {
    AVOCET_TRY_VOID(dict.Set(Value::String("reasoning_content"), reasoning, budget));
  }
  return dict.Build();
}

// The text that the answer continues: the content, or the last text of its parts. Marks its end.
Result<std::string> MarkEnd(Json& message) {
  const auto content = message.is_object() ? message.find("content") : message.end();
  if (!message.is_object() || content == message.end() || content->is_null()) {
    return FailParam("messages", "continue_final_message is set but the last message has no content to continue");
  }
  Json* text = content->is_string() ? &*content : nullptr;
  if (content->is_array()) {
    for (Json& part : *content) {
      if (part.is_object() && part.contains("text") && part["text"].is_string()) text = &part["text"];
    }
  }
  if (text == nullptr) return FailParam("messages", "continue_final_message is set but the last message has no text to continue");
  std::string& marked = text->get_ref<std::string&>();
  std::string plain = marked;
  marked += kCutMark;
  return plain;
}

Result<std::string> CutAtMark(std::string text, std::string_view final_text) {
  const std::string_view stripped = jinja::StripRight(jinja::StripLeft(final_text, std::nullopt), std::nullopt);
  const size_t mark = text.rfind(kCutMarkStripped);
  if (mark == std::string::npos || jinja::FindText(text, stripped) == std::string_view::npos) {
    return FailParam("messages", "continue_final_message is set but the chat template does not show the last message as it is");
  }
  const bool is_spacing_kept = std::string_view(text).substr(mark).starts_with(kCutMark);
  text.resize(mark);
  if (!is_spacing_kept) text.resize(jinja::StripRight(text, std::nullopt).size());
  return text;
}

Result<Value> MessagesValue(const Json& messages, const Json* last) {
  jinja::Budget budget;
  std::vector<Value> values;
  values.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    AVOCET_TRY(Value value, MessageValue(last != nullptr && i + 1 == messages.size() ? *last : messages[i], i));
    values.push_back(std::move(value));
  }
  return MakeList(std::move(values), budget);
}

}  // namespace

Result<std::string> RenderChat(const ChatTemplate& chat_template, const ChatRender& chat) {
  if (!chat.messages.is_array() || chat.messages.empty())
    return FailParam("messages", "the conversation is empty; give at least one message");
  if (chat.continue_final_message && chat.add_generation_prompt) {
    return FailParam("continue_final_message", "continue_final_message and add_generation_prompt cannot both be set");
  }
  for (const std::string_view reserved : {"messages", "tools"}) {
    if (chat.kwargs.contains(reserved)) return FailParam("chat_template_kwargs", "chat_template_kwargs cannot set '{}'", reserved);
  }
  Json last;
  std::string final_text;
  if (chat.continue_final_message) {
    last = chat.messages.back();
    AVOCET_TRY(final_text, MarkEnd(last));
  }
  AVOCET_TRY(Value messages, MessagesValue(chat.messages, chat.continue_final_message ? &last : nullptr));
  jinja::Variables variables;
  if (chat.kwargs.is_object()) {
    for (const auto& [name, value] : *chat.kwargs.get_ptr<const Json::object_t*>()) variables.Add(name, &value);
  }
  variables.Add("messages", std::move(messages));
  variables.Add("tools", &chat.tools);
  variables.Add("documents", Value());
  variables.Add("add_generation_prompt", Value::Bool(chat.add_generation_prompt));
  for (const auto& [name, token] :
       {std::pair("eos_token", &chat.eos_token), std::pair("pad_token", &chat.pad_token), std::pair("bos_token", &chat.bos_token)}) {
    if (!token->empty()) variables.Add(name, Value::String(*token));
  }
  AVOCET_TRY(std::string text, chat_template.RenderVariables(variables));
  if (!chat.continue_final_message) return text;
  return CutAtMark(std::move(text), final_text);
}

}  // namespace avocet::tokenizer
