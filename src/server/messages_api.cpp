#include "server/messages_api.h"

#include <utility>

#include "base/printable.h"
#include "server/field_reader.h"

namespace avocet::server {

namespace {

Json TextPart(std::string text) {
  return Json::object({{"type", "text"}, {"text", std::move(text)}});
}

// The text of a string or of a list of text blocks.
std::string TextOf(const Json* content) {
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  if (!content->is_array()) return text;
  for (const Json& block : *content) {
    if (block.is_object() && block.contains("text") && block["text"].is_string()) text += block["text"].get_ref<const std::string&>();
  }
  return text;
}

ApiResult<Json> ImagePart(FieldReader& block, const std::string& path) {
  const Json* source = block.Object("source");
  if (source == nullptr) return Refuse(400, path + ".source", "{}: an image needs a source", path);
  FieldReader fields(*source, path + ".source", block.problems());
  const std::string type = fields.String("type").value_or("");
  std::string url = fields.String("url").value_or("");
  if (type == "base64") url = "data:" + fields.String("media_type").value_or("image/png") + ";base64," + fields.String("data").value_or("");
  if (url.empty()) return Refuse(400, path + ".source", "{}.source: neither a url nor base64 data", path);
  return Json::object({{"type", "image_url"}, {"image_url", Json::object({{"url", std::move(url)}})}});
}

// One message of this form as the messages of the chat form.
class MessageReader {
 public:
  MessageReader(std::string path, Problems& problems, Json& out) : path_(std::move(path)), problems_(problems), out_(out) {}

  ApiResult<void> Read(const Json& message) {
    if (!message.is_object()) return Refuse(400, path_, "{}: expected a message, got {}", path_, Preview(message));
    FieldReader fields(message, path_, problems_);
    const std::string role = fields.String("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") {
      return Refuse(400, path_ + ".role", "{}.role: \"{}\" is neither user nor assistant", path_, Printable(role));
    }
    const Json* content = fields.Find("content");
    if (content == nullptr || content->is_string()) {
      out_.push_back(Json::object({{"role", role}, {"content", TextOf(content)}}));
      return {};
    }
    if (!content->is_array()) return Refuse(400, path_ + ".content", "{}.content: expected text or a list of blocks", path_);
    for (size_t i = 0; i < content->size(); ++i) AVOCET_TRY_VOID(ReadBlock((*content)[i], fmt::format("{}.content.{}", path_, i)));
    Finish(role);
    return {};
  }

 private:
  ApiResult<void> ReadBlock(const Json& block, const std::string& path) {
    if (!block.is_object()) return Refuse(400, path, "{}: expected a block, got {}", path, Preview(block));
    FieldReader fields(block, path, problems_);
    const std::string type = fields.String("type").value_or("");
    if (type == "text") {
      parts_.push_back(TextPart(fields.String("text").value_or("")));
    } else if (type == "image") {
      AVOCET_TRY(Json part, ImagePart(fields, path));
      parts_.push_back(std::move(part));
    } else if (type == "tool_use") {
      const Json* input = fields.Object("input");
      calls_.push_back(Json::object({{"id", fields.String("id").value_or("")},
                                     {"type", "function"},
                                     {"function", Json::object({{"name", fields.String("name").value_or("")},
                                                                {"arguments", input == nullptr ? Json::object() : *input}})}}));
    } else if (type == "tool_result") {
      out_.push_back(Json::object(
          {{"role", "tool"}, {"tool_call_id", fields.String("tool_use_id").value_or("")}, {"content", TextOf(fields.Find("content"))}}));
    } else if (type == "thinking") {
      thoughts_ += fields.String("thinking").value_or("");
    } else if (type != "redacted_thinking" && type != "tool_reference") {
      return Refuse(400, path + ".type", "{}.type: \"{}\" is not a known type of block", path, Printable(type));
    }
    return {};
  }

  // Results of tools were added as they came; what else the message says follows them.
  void Finish(const std::string& role) {
    if (role == "user" && parts_.empty()) return;
    Json message = Json::object({{"role", role}, {"content", std::move(parts_)}});
    if (role == "assistant") {
      message["content"] = TextOf(&message["content"]);
      if (!thoughts_.empty()) message["reasoning"] = std::move(thoughts_);
      if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    }
    out_.push_back(std::move(message));
  }

  std::string path_;
  Problems& problems_;
  Json& out_;
  Json parts_ = Json::array();
  Json calls_ = Json::array();
  std::string thoughts_;
};

ApiResult<Json> ReadTools(FieldReader& body) {
  Json tools = Json::array();
  const auto read = [&tools](FieldReader& fields, const std::string& path) -> ApiResult<void> {
    const Json* schema = fields.Object("input_schema");
    const std::string type = fields.String("type").value_or("custom");
    if (schema == nullptr || type != "custom") {
      return Refuse(400, path, "{}: only tools with an input_schema, which the client runs itself, are offered", path);
    }
    Json function = Json::object({{"name", fields.String("name").value_or("")}});
    if (auto description = fields.String("description")) function["description"] = *std::move(description);
    function["parameters"] = *schema;
    tools.push_back(Json::object({{"type", "function"}, {"function", std::move(function)}}));
    return {};
  };
  AVOCET_TRY_VOID(EachObject(body, "tools", "a tool", read));
  return tools;
}

ApiResult<void> ReadToolChoice(FieldReader& body, Json& chat) {
  const Json* choice = body.Object("tool_choice");
  if (choice == nullptr) return {};
  FieldReader fields(*choice, "tool_choice", body.problems());
  const std::string type = fields.String("type").value_or("");
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] = Json::object({{"type", "function"}, {"function", Json::object({{"name", fields.String("name").value_or("")}})}});
  } else {
    return Refuse(400, "tool_choice.type", "tool_choice.type: \"{}\" is none of auto, any, tool and none", Printable(type));
  }
  if (fields.Bool("disable_parallel_tool_use").value_or(false)) chat["parallel_tool_calls"] = false;
  return {};
}

ApiResult<void> ReadThinking(FieldReader& body, Json& chat) {
  if (const Json* kwargs = body.Object("chat_template_kwargs")) chat["chat_template_kwargs"] = *kwargs;
  if (const Json* thinking = body.Object("thinking")) {
    FieldReader fields(*thinking, "thinking", body.problems());
    const std::string type = fields.String("type").value_or("");
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      return Refuse(400, "thinking.type", "thinking.type: \"{}\" is none of enabled, adaptive and disabled", Printable(type));
    }
    chat["chat_template_kwargs"]["enable_thinking"] = type != "disabled";
    if (const Json* budget = fields.Find("budget_tokens"); budget != nullptr && type == "enabled") chat["thinking_token_budget"] = *budget;
  }
  if (const Json* config = body.Object("output_config")) {
    FieldReader fields(*config, "output_config", body.problems());
    if (auto effort = fields.String("effort")) chat["reasoning_effort"] = *std::move(effort);
    if (const Json* format = fields.Object("format")) {
      FieldReader inner(*format, "output_config.format", body.problems());
      const Json* schema = inner.Find("schema");
      if (inner.String("type").value_or("") != "json_schema" || schema == nullptr) {
        return Refuse(400, "output_config.format", "output_config.format: only json_schema with a schema is offered");
      }
      chat["response_format"] =
          Json::object({{"type", "json_schema"}, {"json_schema", Json::object({{"name", "output"}, {"schema", *schema}})}});
    }
  }
  return {};
}

}  // namespace

ApiResult<Json> ChatBodyOfMessages(const Json& body, MessagesUse use) {
  if (!body.is_object()) return Refuse(400, "", "the body: expected an object, got {}", Preview(body));
  Problems problems;
  FieldReader fields(body, "", problems);
  Json chat = Json::object();
  Json messages = Json::array();
  if (const std::string system = TextOf(fields.Find("system")); !system.empty()) {
    messages.push_back(Json::object({{"role", "system"}, {"content", system}}));
  }
  const Json* list = fields.List("messages");
  if (list == nullptr || list->empty()) return Refuse(400, "messages", "messages: expected a list of messages");
  for (size_t i = 0; i < list->size(); ++i) {
    AVOCET_TRY_VOID(MessageReader(fmt::format("messages.{}", i), problems, messages).Read((*list)[i]));
  }
  // A last assistant message is the beginning of the answer.
  if (messages.back().at("role") == "assistant") {
    chat["continue_final_message"] = true;
    chat["add_generation_prompt"] = false;
  }
  chat["messages"] = std::move(messages);
  AVOCET_TRY(Json tools, ReadTools(fields));
  if (!tools.empty()) chat["tools"] = std::move(tools);
  AVOCET_TRY_VOID(ReadToolChoice(fields, chat));
  AVOCET_TRY_VOID(ReadThinking(fields, chat));
  if (use == MessagesUse::kGenerate && fields.Find("max_tokens") == nullptr) fields.Expected("max_tokens", "an integer", Json(nullptr));
  for (const char* name : {"model", "max_tokens", "stream", "temperature", "top_p", "top_k", "seed", "ignore_eos", "min_tokens", "priority",
                           "request_id", "structured_outputs", "cache_salt", "return_token_ids"}) {
    if (const Json* value = fields.Find(name)) chat[name] = *value;
  }
  if (const Json* stops = fields.Find("stop_sequences")) chat["stop"] = *stops;
  if (!problems.empty()) return std::unexpected(problems.ToError());
  return chat;
}

}  // namespace avocet::server
