// The forms that reasoning and tool calls have in generated text, as the server is told at start. Constants only.
#pragma once

#include <cstdint>

namespace avocet::server {

// kThinkTags: thoughts</think>answer (--reasoning-parser qwen3).
enum class ReasoningFormat : uint8_t { kNone, kThinkTags };
// kFunctionTags: <tool_call><function=NAME><parameter=KEY>VALUE...  (--tool-call-parser qwen3_coder, qwen3_xml).
// kJsonTags: <tool_call>{"name": ..., "arguments": {...}}</tool_call>  (--tool-call-parser hermes).
enum class ToolFormat : uint8_t { kNone, kFunctionTags, kJsonTags };

}  // namespace avocet::server
