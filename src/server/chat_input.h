// The part of a chat request that the template sees: messages, tools, template control (serving.md 2.7), checked so that whatever
// passes can be rendered or is refused by the template itself. Stateless; any thread.
#pragma once

#include "server/openai.h"

namespace avocet::server {

ApiResult<ChatInput> ReadChatInput(FieldReader& reader, const ServerOptions& options);

// The tool rules of serving.md 2.5.
ApiResult<ToolChoice> ReadToolChoice(FieldReader& reader, const ChatInput& input, const ServerOptions& options);

}  // namespace avocet::server
