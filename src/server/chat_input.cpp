#include "server/chat_input.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/printable.h"

namespace avocet::server {

namespace {

constexpr auto kMediaParts = std::to_array<std::string_view>({"image_url", "input_image", "image", "image_pil", "image_embeds", "video_url",
                                                              "video", "audio_url", "input_audio", "audio_embeds", "file"});

// One part of a content list: text stays, pictures are refused by name.
ApiResult<void> CheckPart(const Json& part, const std::string& path, Problems& problems) {
  if (!part.is_object()) {
    problems.Add(ProblemKind::kSchema, path, "expected a content part with a type, got " + Preview(part));
    return {};
  }
  FieldReader reader(part, path, problems);
  const std::optional<std::string> type = reader.String("type");
  if (!type.has_value()) {
    if (reader.Find("type") == nullptr) reader.Expected("type", "the type of a content part", Json(nullptr));
    return {};
  }
  if (std::ranges::find(kMediaParts, *type) != kMediaParts.end()) {
    return Refuse(400, path, "{}: a part of type {} is not served yet: text only, no pictures, video or sound", path, *type);
  }
  const std::string_view text_field = *type == "refusal" ? "refusal" : "text";
  if (*type != "text" && *type != "input_text" && *type != "output_text" && *type != "refusal") {
    reader.NotAllowed("type", fmt::format("\"{}\" is not a known type of content", Printable(*type)));
  } else if (!reader.String(text_field).has_value() && reader.Find(text_field) == nullptr) {
    reader.Expected(text_field, "a string", Json(nullptr));
  }
  return {};
}

ApiResult<void> CheckContent(Json& message, const std::string& path, Problems& problems) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return {};
  if (content->is_string()) return {};
  if (!content->is_array()) {
    problems.Add(ProblemKind::kSchema, path + ".content", "expected a string or a list of parts, got " + Preview(*content));
    return {};
  }
  for (size_t i = 0; i < content->size(); ++i) AVOCET_TRY_VOID(CheckPart((*content)[i], fmt::format("{}.content.{}", path, i), problems));
  if (!problems.empty()) return {};
  for (Json& part : *content) {
    std::string text = part.at(part["type"] == "refusal" ? "refusal" : "text").get<std::string>();
    part = Json::object({{"type", "text"}, {"text", std::move(text)}});
  }
  return {};
}

// Arguments that are text become the object they describe, within the limits of any JSON that a client sends.
void CheckToolCalls(Json& message, const std::string& path, Problems& problems) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return;
  if (!calls->is_array()) {
    problems.Add(ProblemKind::kSchema, path + ".tool_calls", "expected a list, got " + Preview(*calls));
    return;
  }
  for (size_t i = 0; i < calls->size(); ++i) {
    const std::string call_path = fmt::format("{}.tool_calls.{}", path, i);
    Json& call = (*calls)[i];
    if (!call.is_object()) {
      problems.Add(ProblemKind::kSchema, call_path, "expected an object, got " + Preview(call));
      return;
    }
    FieldReader reader(call, call_path, problems);
    if (reader.Object("function") == nullptr) {
      if (reader.Find("function") == nullptr) reader.Expected("function", "an object", Json(nullptr));
      return;
    }
    Json& function = call["function"];
    FieldReader fields(function, call_path + ".function", problems);
    if (!fields.String("name").has_value() && fields.Find("name") == nullptr) fields.Expected("name", "a string", Json(nullptr));
    const Json* arguments = fields.Find("arguments");
    if (arguments == nullptr) {
      function["arguments"] = Json::object();
    } else if (arguments->is_string()) {
      const std::string text = arguments->get<std::string>();
      Result<Json> parsed = text.empty() ? Json::object() : ParseJson(text, "the text");
      if (parsed.has_value() && parsed->is_object()) {
        function["arguments"] = *std::move(parsed);
      } else {
        fields.NotAllowed("arguments", parsed.has_value() ? "expected a JSON object, got " + Preview(*parsed) : parsed.error().message);
      }
    } else if (!arguments->is_object()) {
      fields.Expected("arguments", "a JSON object, as text or as such", *arguments);
    }
  }
}

ApiResult<Json> ReadMessages(FieldReader& reader) {
  Problems& problems = reader.problems();
  const Json* list = reader.List("messages");
  if (list == nullptr || list->empty()) {
    if (list != nullptr) reader.NotAllowed("messages", "the conversation is empty");
    if (reader.Find("messages") == nullptr) reader.Expected("messages", "a list of messages", Json(nullptr));
    return Json::array();
  }
  Json messages = *list;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string path = fmt::format("messages.{}", i);
    if (!messages[i].is_object()) {
      problems.Add(ProblemKind::kSchema, path, "expected a message, got " + Preview(messages[i]));
      continue;
    }
    FieldReader fields(messages[i], path, problems);
    if (!fields.String("role").has_value() && fields.Find("role") == nullptr) fields.Expected("role", "a string", Json(nullptr));
    AVOCET_TRY_VOID(CheckContent(messages[i], path, problems));
    CheckToolCalls(messages[i], path, problems);
  }
  return messages;
}

Json ReadTools(FieldReader& reader) {
  const Json* tools = reader.List("tools");
  if (tools == nullptr) return nullptr;
  if (tools->empty()) reader.NotAllowed("tools", "the list is empty; leave it out instead");
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string path = fmt::format("tools.{}", i);
    if (!tool.is_object()) {
      reader.Expected(path, "a tool", tool);
      continue;
    }
    FieldReader fields(tool, path, reader.problems());
    const std::optional<std::string> type = fields.String("type");
    if (type.has_value() && *type != "function") fields.NotAllowed("type", fmt::format("\"{}\" is not function", Printable(*type)));
    const Json* function = fields.Object("function");
    if (function == nullptr) {
      if (fields.Find("function") == nullptr) fields.Expected("function", "an object", Json(nullptr));
      continue;
    }
    FieldReader inner(*function, path + ".function", reader.problems());
    if (!inner.String("name").has_value() && inner.Find("name") == nullptr) inner.Expected("name", "a string", Json(nullptr));
    inner.String("description");
    if (const Json* parameters = inner.Object("parameters")) {
      FieldReader schema(*parameters, path + ".function.parameters", reader.problems());
      schema.Object("properties");
      schema.List("required");
    }
  }
  return *tools;
}

// Who says how much to think says whether to think, unless the request does so itself.
void ReadReasoningEffort(FieldReader& reader, Json& kwargs) {
  const std::optional<std::string> effort = reader.String("reasoning_effort");
  if (!effort.has_value()) return;
  if (!kwargs.contains("enable_thinking")) kwargs["enable_thinking"] = *effort != "none";
  if (!kwargs.contains("reasoning_effort")) kwargs["reasoning_effort"] = *effort;
}

ApiResult<std::string> ReadToolName(FieldReader& reader, const Json& choice, const ChatInput& input) {
  const bool is_named = choice.is_object() && choice.contains("function") && choice["function"].is_object() &&
                        choice["function"].contains("name") && choice["function"]["name"].is_string();
  if (!is_named) {
    reader.Expected("tool_choice", "none, auto, required or {\"type\":\"function\",\"function\":{\"name\":...}}", choice);
    return std::string();
  }
  const Json& name = choice["function"]["name"];
  const bool is_known = std::ranges::any_of(input.tools, [&](const Json& tool) {
    return tool.is_object() && tool.contains("function") && tool["function"].is_object() && tool["function"].contains("name") &&
           tool["function"]["name"] == name;
  });
  if (!is_known) reader.NotAllowed("tool_choice", fmt::format("the tool {} is not in tools", Preview(name)));
  return name.get<std::string>();
}

}  // namespace

ApiResult<ChatInput> ReadChatInput(FieldReader& reader, const ServerOptions& options) {
  ChatInput input;
  for (const std::string_view name : {"functions", "function_call"}) {
    if (reader.Find(name) != nullptr) return Refuse(400, std::string(name), "{} is no longer offered; use tools and tool_choice", name);
  }
  AVOCET_TRY(input.messages, ReadMessages(reader));
  input.tools = ReadTools(reader);
  input.add_generation_prompt = reader.Bool("add_generation_prompt").value_or(true);
  input.continue_final_message = reader.Bool("continue_final_message").value_or(false);
  if (input.add_generation_prompt && input.continue_final_message) {
    reader.NotAllowed("continue_final_message", "continue_final_message and add_generation_prompt cannot both be true");
  }
  if (const Json* kwargs = reader.Object("chat_template_kwargs")) input.kwargs = *kwargs;
  ReadReasoningEffort(reader, input.kwargs);
  if (const Json* documents = reader.List("documents")) input.kwargs["documents"] = *documents;
  input.chat_template = reader.String("chat_template");
  if (input.chat_template.has_value() && !options.trust_request_chat_template) {
    reader.NotAllowed("chat_template", "a template in the request needs --trust-request-chat-template");
  }
  return input;
}

ApiResult<ToolChoice> ReadToolChoice(FieldReader& reader, const ChatInput& input, const ServerOptions& options) {
  const bool has_tools = input.tools.is_array();
  const Json* choice = reader.Find("tool_choice");
  if (choice != nullptr && *choice == "none") return ToolChoice{};
  if (choice != nullptr && !has_tools) {
    reader.NotAllowed("tool_choice", "tool_choice needs tools");
    return ToolChoice{};
  }
  if (!has_tools) return ToolChoice{};
  if (choice == nullptr || *choice == "auto") {
    if (!options.enable_auto_tool_choice || options.tool_format == ToolFormat::kNone) {
      reader.NotAllowed("tool_choice", "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set");
    }
    return ToolChoice{ToolChoiceKind::kAuto, {}};
  }
  ToolChoice wanted{ToolChoiceKind::kRequired, {}};
  if (*choice != "required") {
    AVOCET_TRY(wanted.name, ReadToolName(reader, *choice, input));
    wanted.kind = ToolChoiceKind::kNamed;
  }
  if (options.tool_format == ToolFormat::kNone) {
    reader.NotAllowed("tool_choice", fmt::format("tool_choice {} requires --tool-call-parser to be set", Preview(*choice)));
  }
  return wanted;
}

}  // namespace avocet::server
