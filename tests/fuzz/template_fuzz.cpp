// A chat template from memory, run over a conversation: whatever the text, an output within the limit or one line of refusal, soon.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/limits.h"
#include "tokenizer/chat_template.h"

namespace {

const avocet::tokenizer::ChatRender& Conversation() {
  using avocet::tokenizer::Json;
  static const avocet::tokenizer::ChatRender conversation{
      .messages = Json::parse(R"([
          {"role": "system", "content": "Be brief."},
          {"role": "user", "content": [{"type": "text", "text": "Grüße"}, {"type": "image_url", "image_url": {"url": "x"}}]},
          {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
              {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": [true, null, 1.5]}}}]},
          {"role": "tool", "tool_call_id": "1", "content": "42"},
          {"role": "user", "content": "Thanks <&'\" \n"}])"),
      .tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}])"),
      .add_generation_prompt = true,
      .continue_final_message = false,
      .kwargs = Json{{"enable_thinking", true}, {"n", 3}},
      .eos_token = "<|im_end|>",
      .pad_token = "<|endoftext|>",
      .bos_token = {},
  };
  return conversation;
}

void CheckMessage(std::string_view message) {
  if (message.empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace avocet;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = tokenizer::ChatTemplate::Parse(text, "chat_template.jinja");
  if (!parsed) {
    CheckMessage(parsed.error().message);
    return 0;
  }
  (void)parsed->wants_content_parts();
  const auto rendered = tokenizer::RenderChat(*parsed, Conversation());
  if (rendered && rendered->size() > limits::kTemplateOutputBytesMax) std::abort();
  return 0;
}
