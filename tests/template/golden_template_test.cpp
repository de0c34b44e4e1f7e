// Chat templates against renderings of the reference (tests/data/golden/template), and the demo model's prompts.
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tokenizer/chat_template.h"

namespace avocet::tokenizer {
namespace {

std::string GoldenDir() {
  const char* other = std::getenv("AVOCET_GOLDEN");
  return other != nullptr ? other : std::string(AVOCET_TEST_DATA) + "/golden";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ChatTemplate, GoldenConversations_RenderAsTheReference) {
  auto chat_template = ChatTemplate::Parse(ReadFile(GoldenDir() + "/checkpoints/a-dense/chat_template.jinja"), "chat_template.jinja");
  ASSERT_TRUE(chat_template) << chat_template.error().message;
  const Json golden = Json::parse(ReadFile(GoldenDir() + "/template/chat_cases.json"));
  int rendered = 0;
  for (const Json& c : golden["cases"]) {
    ChatRender chat;
    chat.messages = c["messages"];
    chat.tools = c["tools"];
    chat.add_generation_prompt = c["add_generation_prompt"];
    chat.kwargs = c["kwargs"];
    chat.eos_token = golden["special_tokens"]["eos_token"];
    chat.pad_token = golden["special_tokens"]["pad_token"];
    const auto text = RenderChat(*chat_template, chat);
    if (c.contains("text")) {
      ASSERT_TRUE(text) << c["name"] << ": " << text.error().message;
      EXPECT_EQ(*text, c["text"].get<std::string>()) << c["name"];
    } else {
      ASSERT_FALSE(text) << c["name"];
      if (!c["error"].is_null()) {
        EXPECT_EQ(text.error().message, c["error"].get<std::string>()) << c["name"];
      }
    }
    ++rendered;
  }
  EXPECT_GT(rendered, 80);
}

// Small programs with the reference's text; of errors only raise_exception's text counts.
void ExpectSnippets(const std::string& path) {
  const Json golden = Json::parse(ReadFile(path));
  for (const Json& c : golden["snippets"]) {
    const std::string source = c["template"];
    auto parsed = ChatTemplate::Parse(source, "snippet");
    Result<std::string> text = std::unexpected(Error{});
    if (parsed) {
      text = parsed->Render(c["context"]);
    } else {
      text = std::unexpected(parsed.error());
    }
    if (c.contains("text") && !c["text"].is_null()) {
      ASSERT_TRUE(text) << c["name"] << ": " << text.error().message;
      EXPECT_EQ(*text, c["text"].get<std::string>()) << c["name"] << "\n" << source;
    } else {
      EXPECT_FALSE(text) << c["name"];
    }
  }
}

TEST(ChatTemplate, GoldenSnippets_RenderAsTheReference) {
  ExpectSnippets(GoldenDir() + "/template/jinja_snippets.json");
}

// Made with Jinja 2 itself by tools/make_template_cases.py.
TEST(ChatTemplate, MoreSnippets_RenderAsJinja2) {
  ExpectSnippets(std::string(AVOCET_TEST_DATA) + "/template/more_snippets.json");
}

TEST(ChatTemplate, DemoModel_TextTasks_RenderTheirPrompts) {
  const std::string models = std::string(AVOCET_SOURCE_DIR) + "/models";
  auto chat_template = ChatTemplate::Parse(ReadFile(models + "/demo/chat_template.jinja"), "chat_template.jinja");
  ASSERT_TRUE(chat_template) << chat_template.error().message;
  std::ifstream tasks(models + "/training/eval.jsonl");
  int rendered = 0;
  for (std::string line; std::getline(tasks, line);) {
    const Json task = Json::parse(line);
    if (task["kind"] == "picture") continue;
    ChatRender chat;
    chat.messages = task["messages"];
    chat.tools = task["tools"];
    chat.kwargs = {{"enable_thinking", task["enable_thinking"]}};
    const auto text = RenderChat(*chat_template, chat);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(*text, task["prompt"].get<std::string>());
    ++rendered;
  }
  EXPECT_GT(rendered, 250);
}

}  // namespace
}  // namespace avocet::tokenizer
