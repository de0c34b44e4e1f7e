#include "server/output_parser.h"

#include <random>

#include <gtest/gtest.h>

#include "server/parameter_value.h"

namespace avocet::server {
namespace {

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};

struct Whole {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
  bool operator==(const Whole&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Whole& w) {
  out << "reasoning \"" << w.reasoning << "\" content \"" << w.content << '"';
  for (const Call& call : w.calls) out << " call " << call.name << call.arguments;
  return out;
}

void Add(Whole& whole, const OutputPiece& piece) {
  whole.reasoning += piece.reasoning;
  whole.content += piece.content;
  for (const ToolCallPiece& call : piece.tool_calls) {
    if (static_cast<size_t>(call.index) == whole.calls.size()) whole.calls.push_back({});
    EXPECT_EQ(static_cast<size_t>(call.index), whole.calls.size() - 1) << "a call continued after the next one began";
    whole.calls.back().name += call.name;
    whole.calls.back().arguments += call.arguments;
  }
}

OutputParserOptions Options() {
  OutputParserOptions options;
  options.reasoning = ReasoningFormat::kThinkTags;
  options.starts_in_reasoning = true;
  options.tools = ToolFormat::kFunctionTags;
  options.schemas["weather"] = OrderedJson::parse(R"({"properties": {"city": {"type": "string"}, "days": {"type": "integer"},
    "detail": {"type": ["object", "null"]}, "share": {"type": "number"}, "warm": {"type": "boolean"}, "any": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}})");
  return options;
}

Whole Parse(const OutputParserOptions& options, std::initializer_list<std::string_view> pieces) {
  OutputParser parser(options);
  Whole whole;
  for (std::string_view piece : pieces) Add(whole, parser.Push(piece));
  Add(whole, parser.Finish());
  return whole;
}

struct ParserCase {
  const char* name;
  std::string text;
  Whole want;
};

const std::vector<ParserCase>& Cases() {
  static const std::vector<ParserCase> cases = {
      {"Plain", "thought</think>\n\nanswer", {"thought", "\n\nanswer", {}}},
      {"RepeatedOpener", "<think>thought</think>answer", {"thought", "answer", {}}},
      {"NoClosingTag", "thought without end", {"thought without end", "", {}}},
      {"SecondClosingTag", "a</think>b</think>c", {"a", "bc", {}}},
      {"OneCall",
       "t</think>\n\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
       {"t", "", {{"weather", R"({"city": "Rome"})"}}}},
      {"ImplicitEnd", "t\n<tool_call>\n<function=weather>\n</function>\n</tool_call>", {"t\n", "", {{"weather", "{}"}}}},
      {"NoImplicitEnd", "say <tool_call> only</think>x", {"say <tool_call> only", "x", {}}},
      {"TextAround",
       "t</think>\nfirst\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>\n\nthen\n",
       {"t", "\nfirstthen", {{"f", "{}"}}}},
      {"TwoCalls",
       "t</think><tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n</function>\n</"
       "tool_call>\n<tool_call>\n<function=g>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
       {"t", "", {{"weather", R"({"days": 3})"}, {"g", R"({"x": "1"})"}}}},
      {"Types",
       "</think><tool_call>\n<function=weather>\n<parameter=days>\n7\n</parameter>\n<parameter=share>\n2.0\n</"
       "parameter>\n<parameter=warm>\nTrue\n</parameter>\n<parameter=detail>\n{'a': [1, None, True]}\n"
       "</parameter>\n<parameter=any>\nnull\n</parameter>\n<parameter=city>\nnull\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"weather", R"({"days": 7, "share": 2, "warm": true, "detail": {"a":[1,null,true]}, "any": null, "city": "null"})"}}}},
      {"MarkupInsideValue",
       "</think><tool_call>\n<function=f>\n<parameter=html>\n<b>\"x\"</b> </parameter> not the end "
       "<function=no>\n\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"f", R"({"html": "<b>\"x\"</b> </parameter> not the end <function=no>\n"})"}}}},
      {"NewlinesKept",
       "</think><tool_call>\n<function=f>\n<parameter=s>\n\n a\n b \n\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"f", R"({"s": "\n a\n b \n"})"}}}},
      {"MissingWrapper", "</think><function=f>\n<parameter=s>\nv\n</parameter>\n</function>", {"", "", {{"f", R"({"s": "v"})"}}}},
      {"MissingParameterCloser",
       "</think><tool_call>\n<function=weather>\n<parameter=city>\nRome\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"weather", R"({"city": "Rome", "days": 2})"}}}},
      {"MissingCallCloser",
       "</think><tool_call>\n<function=f>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
       {"", "", {{"f", "{}"}, {"g", "{}"}}}},
      {"CutInValue",
       "</think><tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n<parameter=city>\nRo",
       {"", "", {{"weather", R"({"days": 2})"}}}},
      {"CutInOpener", "</think>text <tool_ca", {"", "text <tool_ca", {}}},
      {"NotACall", "</think>use <tool_call> tags <function= here", {"", "use <tool_call> tags <function= here", {}}},
      {"OpenerWithoutPrompt", "say <think>x</think>y", {"say <think>x", "y", {}}},
      {"BadInteger",
       "</think><tool_call>\n<function=weather>\n<parameter=days>\nmany\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"weather", R"({"days": "many"})"}}}},
  };
  return cases;
}

TEST(OutputParser, WholeText_GivesReasoningContentAndCalls) {
  for (const ParserCase& c : Cases()) EXPECT_EQ(Parse(Options(), {c.text}), c.want) << c.name;
}

TEST(OutputParser, EverySplitInTwo_EqualsTheWhole) {
  for (const ParserCase& c : Cases()) {
    for (size_t cut = 0; cut <= c.text.size(); ++cut) {
      const std::string_view text = c.text;
      ASSERT_EQ(Parse(Options(), {text.substr(0, cut), text.substr(cut)}), c.want) << c.name << " cut at " << cut;
    }
  }
}

TEST(OutputParser, ByteByByte_EqualsTheWhole) {
  for (const ParserCase& c : Cases()) {
    OutputParser parser(Options());
    Whole whole;
    for (char byte : c.text) Add(whole, parser.Push({&byte, 1}));
    Add(whole, parser.Finish());
    EXPECT_EQ(whole, c.want) << c.name;
  }
}

// Any soup of markup: random cuts never change the result and the arguments are always JSON.
TEST(OutputParser, RandomMarkup_SameForEveryCut_ArgumentsAreJson) {
  constexpr uint32_t kSeed = 20261201;
  std::mt19937 rng(kSeed);
  const std::vector<std::string> words = {"<think>",
                                          "</think>",
                                          "<tool_call>",
                                          "</tool_call>",
                                          "<function=weather>",
                                          "<function=f>",
                                          "</function>",
                                          "<parameter=city>",
                                          "<parameter=days>",
                                          "</parameter>",
                                          "\n",
                                          " ",
                                          "a",
                                          "<",
                                          ">",
                                          "12",
                                          "\"",
                                          "\\",
                                          "é"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t n = rng() % 24; n > 0; --n) text += words[rng() % words.size()];
    OutputParserOptions options = Options();
    options.starts_in_reasoning = rng() % 2 == 0;
    const Whole want = Parse(options, {text});
    for (const Call& call : want.calls)
      EXPECT_TRUE(OrderedJson::accept(call.arguments)) << "seed " << kSeed << " text " << text << " arguments " << call.arguments;
    OutputParser parser(options);
    Whole got;
    for (size_t at = 0; at < text.size();) {
      const size_t count = std::min<size_t>(1 + rng() % 5, text.size() - at);
      Add(got, parser.Push(std::string_view(text).substr(at, count)));
      at += count;
    }
    Add(got, parser.Finish());
    ASSERT_EQ(got, want) << "seed " << kSeed << " text \"" << text << '"';
  }
}

TEST(OutputParser, WithoutFormats_TextPassesUnchanged) {
  const std::string text = "a</think> <tool_call>\n<function=f>\n";
  EXPECT_EQ(Parse({}, {text}), (Whole{"", text, {}}));
}

TEST(ConvertParameter, Text_FollowsItsSchema) {
  const auto convert = [](const char* raw, const char* schema) { return ConvertParameter(raw, OrderedJson::parse(schema)).dump(); };
  EXPECT_EQ(convert("5", R"({"type": "integer"})"), "5");
  EXPECT_EQ(convert("5", R"({"type": "string"})"), "\"5\"");
  EXPECT_EQ(convert("5.5", R"({"type": "integer"})"), "\"5.5\"");
  EXPECT_EQ(convert("1e3", R"({"type": "number"})"), "1000");
  EXPECT_EQ(convert("0.25", R"({"type": "number"})"), "0.25");
  EXPECT_EQ(convert("nan", R"({"type": "number"})"), "\"nan\"");
  EXPECT_EQ(convert("FALSE", R"({"type": "boolean"})"), "false");
  EXPECT_EQ(convert("[1, 'b']", R"({"type": "array"})"), R"([1,"b"])");
  EXPECT_EQ(convert("None", R"({"type": ["string", "null"]})"), "null");
  EXPECT_EQ(convert("None", R"({"type": "string"})"), "\"None\"");
  EXPECT_EQ(convert("5", "null"), "\"5\"");
}

OutputParserOptions JsonOptions() {
  OutputParserOptions options;
  options.reasoning = ReasoningFormat::kThinkTags;
  options.tools = ToolFormat::kJsonTags;
  return options;
}

const std::vector<ParserCase>& JsonCases() {
  static const std::vector<ParserCase> cases = {
      {"OneCall",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"{\", \"b\": [1]}}\n</tool_call>",
       {"", "", {{"f", R"({"a":"}\"{","b":[1]})"}}}},
      {"TwoCalls",
       "go\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>",
       {"", "go", {{"f", "{}"}, {"g", "{}"}}}},
      {"ModelOpensThoughts", "\n<think>t</think>\n<tool_call>{\"name\":\"f\"}</tool_call>", {"t", "", {{"f", "{}"}}}},
      {"ImplicitEnd", "<think>t<tool_call>{\"name\":\"f\"}</tool_call>", {"t", "", {{"f", "{}"}}}},
      {"NoName", "<tool_call>{\"x\":1}</tool_call>", {"", "<tool_call>{\"x\":1}</tool_call>", {}}},
      {"Cut", "<tool_call>{\"name\":\"f\", \"argu", {"", "<tool_call>{\"name\":\"f\", \"argu", {}}},
  };
  return cases;
}

TEST(OutputParser, JsonCalls_EverySplitEqualsTheWhole) {
  for (const ParserCase& c : JsonCases()) {
    EXPECT_EQ(Parse(JsonOptions(), {c.text}), c.want) << c.name;
    for (size_t cut = 0; cut <= c.text.size(); ++cut) {
      const std::string_view text = c.text;
      EXPECT_EQ(Parse(JsonOptions(), {text.substr(0, cut), text.substr(cut)}), c.want) << c.name << " cut at " << cut;
    }
    OutputParser parser(JsonOptions());
    Whole whole;
    for (const char letter : c.text) Add(whole, parser.Push(std::string_view(&letter, 1)));
    Add(whole, parser.Finish());
    EXPECT_EQ(whole, c.want) << c.name;
  }
}

TEST(ParameterValue, References_AreResolvedInTheDocumentOnly) {
  const OrderedJson root = OrderedJson::parse(R"({"$defs": {"Limit": {"type": "integer"}, "Scope": {"type": "object"},
    "Loop": {"$ref": "#/$defs/Loop"}}})");
  const auto value = [&](std::string_view raw, std::string_view reference) {
    return ConvertParameter(raw, OrderedJson::object({{"$ref", reference}}), root).dump();
  };
  EXPECT_EQ(value("10", "#/$defs/Limit"), "10");
  EXPECT_EQ(value(R"({"a": []})", "#/$defs/Scope"), R"({"a":[]})");
  EXPECT_EQ(value("10", "#/$defs/Loop"), R"("10")");
  EXPECT_EQ(value("10", "http://127.0.0.1:9/x"), R"("10")");
  EXPECT_EQ(value("10", "#/nowhere"), R"("10")");
}

TEST(ParameterValue, NoType_OnlyStructuresAreConverted) {
  EXPECT_EQ(ConvertParameter("123", {}).dump(), R"("123")");
  EXPECT_EQ(ConvertParameter("true", {}).dump(), R"("true")");
  EXPECT_EQ(ConvertParameter(R"({"a":1})", {}).dump(), R"({"a":1})");
  EXPECT_EQ(ConvertParameter("[oops", {}).dump(), R"("[oops")");
}

TEST(ParameterValue, DeepNesting_StaysText) {
  const std::string deep(100000, '[');
  EXPECT_EQ(ConvertParameter(deep, OrderedJson::object({{"type", "array"}})), deep);
}

}  // namespace
}  // namespace avocet::server
