// The document says what the server does: every field in it is read, and refused when its type is wrong.
#include "server/openapi.h"

#include <gtest/gtest.h>

#include "server/openai.h"
#include "server/server_testing.h"

namespace avocet::server {
namespace {

// A value that no field of the type takes.
Json WrongValue(FieldType type) {
  return type == FieldType::kObject ? Json(5) : Json::object({{"wrong", true}});
}

void CheckFields(const ServerOptions& options, std::span<const ApiField> fields, const Json& base) {
  const bool is_chat = base.contains("messages");
  for (const ApiField& field : fields) {
    Json body = base;
    body[std::string(field.name)] = WrongValue(field.type);
    ApiError error{.status = 200, .type = {}, .message = {}, .param = {}};
    if (auto chat = ReadChatRequest(body, options); is_chat && !chat) error = chat.error();
    if (auto completion = ReadCompletionRequest(body, options); !is_chat && !completion) error = completion.error();
    EXPECT_EQ(error.status, 400) << field.name;
    EXPECT_TRUE(error.param.starts_with(field.name)) << field.name << ": " << error.param << ": " << error.message;
  }
}

TEST(OpenApi, EveryField_IsReadAndItsTypeChecked) {
  ServerOptions options = TestOptions();
  options.trust_request_chat_template = true;
  const Json chat = Json::parse(R"({"messages":[{"role":"user","content":"a"}]})");
  const Json completion = Json::parse(R"({"prompt":"a"})");
  CheckFields(options, SharedFields(), chat);
  CheckFields(options, SharedFields(), completion);
  CheckFields(options, ChatFields(), chat);
  CheckFields(options, CompletionFields(), completion);
}

}  // namespace
}  // namespace avocet::server
