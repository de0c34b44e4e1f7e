// The checkpoint's own chat_template.jinja, run by a small Jinja interpreter that behaves as Hugging Face's sandbox does:
// trim_blocks, lstrip_blocks, loop controls, raise_exception, strftime_now, namespace, tojson = json.dumps(ensure_ascii=False).
// A template is code that a stranger wrote: steps, depth and output are limited (base/limits.h), and it can reach nothing but its
// variables. Immutable after Parse; any thread may render at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace avocet::tokenizer {

namespace jinja {
class Variables;  // jinja_variables.h
}

// Key order matters to tojson and to loops over mappings.
using Json = nlohmann::ordered_json;

class ChatTemplate {
 public:
  // name: for messages, e.g. "chat_template.jinja". The error gives line and reason.
  static Result<ChatTemplate> Parse(std::string_view source, std::string name);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // variables: an object; each key is a template variable (messages, tools, add_generation_prompt, enable_thinking, ...).
  // A key that is absent is undefined. raise_exception(text) gives kInvalidArgument with exactly that text.
  Result<std::string> Render(const Json& variables) const;
  // The same for variables some of which are values already.
  Result<std::string> RenderVariables(const jinja::Variables& variables) const;

  // True when message content must reach the template as a list of parts, judged by whether the template loops over it.
  bool wants_content_parts() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Renders a conversation as Hugging Face's apply_chat_template does: refuses an empty one, drops message keys whose value is null,
// copies `thinking` or `reasoning` to `reasoning_content`, parses string tool-call arguments to objects.
struct ChatRender {
  Json messages;  // array
  Json tools;     // array, or null when the request has none
  bool add_generation_prompt = true;
  bool continue_final_message = false;          // the text ends where the last message's content ends; excludes add_generation_prompt
  Json kwargs = Json::object();                 // chat_template_kwargs: more variables; they win over all but messages and tools
  std::string eos_token, pad_token, bos_token;  // empty = undefined
};
Result<std::string> RenderChat(const ChatTemplate& chat_template, const ChatRender& chat);

}  // namespace avocet::tokenizer
