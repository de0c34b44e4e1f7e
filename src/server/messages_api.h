// The Anthropic form of a conversation, /v1/messages, as the chat request that asks for the same (serving.md 2.11). Stateless.
#pragma once

#include "server/api_error.h"
#include "server/json_input.h"

namespace avocet::server {

// The error names fields as the client wrote them, where this form differs from the chat form.
enum class MessagesUse : uint8_t { kGenerate, kCount };  // counting does without max_tokens
ApiResult<Json> ChatBodyOfMessages(const Json& body, MessagesUse use);

}  // namespace avocet::server
