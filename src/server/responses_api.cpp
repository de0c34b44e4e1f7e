#include "server/responses_api.h"

#include <utility>

#include "base/printable.h"
#include "server/field_reader.h"

namespace avocet::server {

namespace {

// Items to messages: calls and thoughts of one turn become one message of the assistant.
class ItemReader {
 public:
  ItemReader(Problems& problems, Json& messages) : problems_(problems), messages_(messages) {}

  ApiResult<void> Read(const Json& item, const std::string& path) {
    if (!item.is_object()) return Refuse(400, path, "{}: expected an item, got {}", path, Preview(item));
    FieldReader fields(item, path, problems_);
    const std::string type = fields.String("type").value_or("message");
    if (type == "message") return ReadMessage(fields, path);
    if (type == "function_call") {
      Json call = Json::object({{"id", fields.String("call_id").value_or("")}, {"type", "function"}});
      call["function"] =
          Json::object({{"name", fields.String("name").value_or("")}, {"arguments", fields.String("arguments").value_or("")}});
      Json& turn = AssistantTurn();
      if (!turn.contains("tool_calls")) turn["tool_calls"] = Json::array();
      turn["tool_calls"].push_back(std::move(call));
      return {};
    }
    if (type == "function_call_output") {
      const Json* output = fields.Find("output");
      messages_.push_back(Json::object({{"role", "tool"}, {"tool_call_id", fields.String("call_id").value_or("")}}));
      messages_.back()["content"] = output == nullptr ? Json("") : output->is_string() ? *output : Parts(*output);
      return {};
    }
    if (type == "reasoning") {
      thoughts_ += TextOf(fields.Find("content"));
      if (thoughts_.empty()) thoughts_ += TextOf(fields.Find("summary"));
      return {};
    }
    return Refuse(400, path + ".type", "{}.type: items of type {} are not offered", path, Printable(type));
  }

  void Finish() {
    if (!thoughts_.empty()) AssistantTurn();
  }

 private:
  static std::string TextOf(const Json* parts) {
    std::string text;
    if (parts == nullptr || !parts->is_array()) return text;
    for (const Json& part : *parts) {
      if (part.is_object() && part.contains("text") && part["text"].is_string()) text += part["text"].get_ref<const std::string&>();
    }
    return text;
  }
  // Pictures are written another way here.
  static Json Parts(const Json& content) {
    Json parts = content;
    if (!parts.is_array()) return parts;
    for (Json& part : parts) {
      const bool is_picture = part.is_object() && part.contains("type") && part["type"] == "input_image" && part.contains("image_url");
      if (is_picture && part["image_url"].is_string()) {
        part = Json::object({{"type", "image_url"}, {"image_url", Json::object({{"url", part["image_url"]}})}});
      }
    }
    return parts;
  }

  ApiResult<void> ReadMessage(FieldReader& fields, const std::string& path) {
    std::string role = fields.String("role").value_or("");
    if (role.empty()) return Refuse(400, path + ".role", "{}.role: expected a string", path);
    const Json* content = fields.Find("content");
    Json message = content == nullptr ? Json("") : Parts(*content);
    if (role == "assistant") {
      Json& turn = AssistantTurn();
      turn["content"] = message.is_array() ? Json(turn["content"].get<std::string>() + TextOf(&message)) : std::move(message);
      return {};
    }
    if (role == "developer") role = "system";
    messages_.push_back(Json::object({{"role", std::move(role)}, {"content", std::move(message)}}));
    return {};
  }

  Json& AssistantTurn() {
    if (messages_.empty() || messages_.back().at("role") != "assistant") {
      messages_.push_back(Json::object({{"role", "assistant"}, {"content", ""}}));
    }
    if (!thoughts_.empty()) messages_.back()["reasoning"] = std::exchange(thoughts_, {});
    return messages_.back();
  }

  Problems& problems_;
  Json& messages_;
  std::string thoughts_;
};

ApiResult<Json> ReadTools(FieldReader& body) {
  Json tools = Json::array();
  const auto read = [&tools](FieldReader& fields, const std::string& path) -> ApiResult<void> {
    if (const std::string type = fields.String("type").value_or(""); type != "function") {
      return Refuse(400, path + ".type", "{}.type: tools of type {} are not offered, only function", path, Printable(type));
    }
    Json function = Json::object({{"name", fields.String("name").value_or("")}});
    for (const char* name : {"description", "parameters", "strict"}) {
      if (const Json* value = fields.Find(name)) function[name] = *value;
    }
    tools.push_back(Json::object({{"type", "function"}, {"function", std::move(function)}}));
    return {};
  };
  AVOCET_TRY_VOID(EachObject(body, "tools", "a tool", read));
  return tools;
}

ApiResult<void> ReadTextFormat(FieldReader& body, Json& chat) {
  const Json* text = body.Object("text");
  if (text == nullptr) return {};
  FieldReader fields(*text, "text", body.problems());
  const Json* format = fields.Object("format");
  if (format == nullptr) return {};
  FieldReader inner(*format, "text.format", body.problems());
  const std::string type = inner.String("type").value_or("text");
  if (type == "json_schema") {
    chat["response_format"] = Json::object({{"type", type}, {"json_schema", *format}});
  } else {
    chat["response_format"] = *format;
  }
  return {};
}

ApiResult<void> ReadMessages(FieldReader& fields, const ResponseStore* store, Json& messages) {
  if (const auto previous = fields.String("previous_response_id")) {
    const std::optional<StoredResponse> stored = store == nullptr ? std::nullopt : store->Get(*previous);
    if (!stored.has_value()) {
      return Refuse(404, "previous_response_id", "the response {} does not exist{}", Printable(*previous),
                    store == nullptr ? "; responses are kept with VLLM_ENABLE_RESPONSES_API_STORE=1 only" : "");
    }
    messages = stored->messages;
  }
  // Instructions are those of this request alone: earlier ones are not carried over.
  if (!messages.empty() && messages.front().contains("is_instructions")) messages.erase(messages.begin());
  if (const auto instructions = fields.String("instructions"); instructions.has_value() && !instructions->empty()) {
    messages.insert(messages.begin(), Json::object({{"role", "system"}, {"content", *instructions}, {"is_instructions", true}}));
  }
  ItemReader items(fields.problems(), messages);
  const Json* input = fields.Find("input");
  if (input != nullptr && input->is_string()) {
    messages.push_back(Json::object({{"role", "user"}, {"content", *input}}));
  } else if (input != nullptr && input->is_array()) {
    for (size_t i = 0; i < input->size(); ++i) AVOCET_TRY_VOID(items.Read((*input)[i], fmt::format("input.{}", i)));
    items.Finish();
  } else {
    fields.Expected("input", "text or a list of items", input == nullptr ? Json(nullptr) : *input);
  }
  return {};
}

// tool_choice without the nesting of the chat form.
void ReadToolChoice(FieldReader& fields, Json& chat) {
  const Json* choice = fields.Find("tool_choice");
  if (choice == nullptr) return;
  const bool is_flat = choice->is_object() && choice->contains("name") && !choice->contains("function");
  chat["tool_choice"] = is_flat ? Json::object({{"type", "function"}, {"function", Json::object({{"name", (*choice)["name"]}})}}) : *choice;
  if (*choice == "auto" && !chat.contains("tools")) chat.erase("tool_choice");
}

Json EchoOf(FieldReader& fields) {
  Json echo = Json::object();
  const auto take = [&](const char* name, Json otherwise) {
    const Json* value = fields.Find(name);
    echo[name] = value == nullptr ? std::move(otherwise) : *value;
  };
  take("instructions", nullptr);
  take("max_output_tokens", nullptr);
  take("metadata", Json::object());
  take("parallel_tool_calls", true);
  take("previous_response_id", nullptr);
  take("reasoning", nullptr);
  take("store", true);
  take("temperature", nullptr);
  take("text", Json::object({{"format", Json::object({{"type", "text"}})}}));
  take("tool_choice", "auto");
  take("tools", Json::array());
  take("top_logprobs", nullptr);
  take("top_p", nullptr);
  take("truncation", "disabled");
  take("user", nullptr);
  return echo;
}

}  // namespace

ApiResult<ResponseRequest> ReadResponseRequest(const Json& body, const ResponseStore* store) {
  if (!body.is_object()) return Refuse(400, "", "the body: expected an object, got {}", Preview(body));
  Problems problems;
  FieldReader fields(body, "", problems);
  ResponseRequest request;
  if (fields.Find("prompt") != nullptr) return Refuse(400, "prompt", "prompt templates are not offered; send input");
  if (fields.Bool("background").value_or(false)) {
    return Refuse(400, "background", "responses in the background are not offered; use stream, or wait for the answer");
  }
  request.is_stored = store != nullptr && fields.Bool("store").value_or(true);
  Json messages = Json::array();
  AVOCET_TRY_VOID(ReadMessages(fields, store, messages));
  Json& chat = request.chat;
  chat = Json::object({{"messages", std::move(messages)}});
  AVOCET_TRY(Json tools, ReadTools(fields));
  if (!tools.empty()) chat["tools"] = std::move(tools);
  ReadToolChoice(fields, chat);
  AVOCET_TRY_VOID(ReadTextFormat(fields, chat));
  if (const Json* reasoning = fields.Object("reasoning")) {
    FieldReader inner(*reasoning, "reasoning", problems);
    if (auto effort = inner.String("effort")) chat["reasoning_effort"] = *std::move(effort);
  }
  if (const auto include = fields.Strings("include")) {
    for (const std::string& what : *include) {
      if (what == "message.output_text.logprobs") chat["logprobs"] = true;
    }
  }
  if (const auto truncation = fields.String("truncation")) {
    if (*truncation != "auto" && *truncation != "disabled") fields.NotAllowed("truncation", "it is neither auto nor disabled");
    if (*truncation == "auto") chat["truncate_prompt_tokens"] = -1;
  }
  if (const Json* limit = fields.Find("max_output_tokens")) chat["max_completion_tokens"] = *limit;
  for (const char* name : {"model",
                           "stream",
                           "temperature",
                           "top_p",
                           "top_k",
                           "min_p",
                           "seed",
                           "stop",
                           "ignore_eos",
                           "presence_penalty",
                           "frequency_penalty",
                           "repetition_penalty",
                           "parallel_tool_calls",
                           "top_logprobs",
                           "priority",
                           "request_id",
                           "cache_salt",
                           "structured_outputs",
                           "vllm_xargs",
                           "chat_template_kwargs",
                           "include_reasoning",
                           "thinking_token_budget",
                           "skip_special_tokens"}) {
    if (const Json* value = fields.Find(name)) chat[name] = *value;
  }
  if (chat.contains("top_logprobs") && !chat.contains("logprobs")) chat.erase("top_logprobs");
  request.echo = EchoOf(fields);
  if (!problems.empty()) return std::unexpected(problems.ToError());
  return request;
}

}  // namespace avocet::server
