// Requests that are refused, and with which words; requests that are read, and as what.
#include "server/openai.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "server/chat_input.h"
#include "server/server_testing.h"

namespace avocet::server {
namespace {

struct Refusal {
  std::string_view fields;  // of the body, beside the prompt or messages
  int status;
  std::string_view type;
  std::string_view param;
  std::string_view fragment;  // of the message
};

constexpr std::string_view kSchema = kSchemaErrorType;
constexpr std::string_view kValue = kRequestErrorType;

constexpr auto kShared = std::to_array<Refusal>({
    {R"("temperature":-1)", 400, kValue, "temperature", "-1"},
    {R"("temperature":"hot")", 400, kSchema, "temperature", "\"hot\""},
    {R"("temperature":"NaN")", 400, kSchema, "temperature", "number"},
    {R"("temperature":1e300)", 400, kValue, "temperature", "1e+300"},
    {R"("temperature":true)", 400, kSchema, "temperature", "true"},
    {R"("top_p":0)", 400, kValue, "top_p", "above 0"},
    {R"("top_p":1e-60)", 400, kValue, "top_p", "above 0"},
    {R"("top_p":1.01)", 400, kValue, "top_p", "at most 1"},
    {R"("top_k":-2)", 400, kValue, "top_k", "-2"},
    {R"("top_k":1.5)", 400, kSchema, "top_k", "integer"},
    {R"("min_p":1.5)", 400, kValue, "min_p", "1.5"},
    {R"("presence_penalty":1e9)", 400, kValue, "presence_penalty", "-2"},
    {R"("frequency_penalty":-2.1)", 400, kValue, "frequency_penalty", "-2.1"},
    {R"("repetition_penalty":0)", 400, kValue, "repetition_penalty", "above 0"},
    {R"("n":0)", 400, kValue, "n", "1 to 128"},
    {R"("n":5000000)", 400, kValue, "n", "5000000"},
    {R"("n":"5")", 400, kSchema, "n", "integer"},
    {R"("n":2,"temperature":0)", 400, kValue, "n", "temperature 0"},
    {R"("n":2,"best_of":3)", 400, kValue, "best_of", "3"},
    {R"("seed":1180591620717411303424)", 400, kValue, "seed", "range"},
    {R"("seed":1.5)", 400, kSchema, "seed", "integer"},
    {R"("max_tokens":-1)", 400, kValue, "max_tokens", "-1"},
    {R"("max_tokens":1000000000000000000)", 400, kValue, "max_tokens", "2048"},
    {R"("max_tokens":1e30)", 400, kValue, "max_tokens", "1e+30"},
    {R"("max_tokens":2049)", 400, kValue, "max_tokens", "maximum context length"},
    {R"("max_tokens":0)", 400, kValue, "max_tokens", "at least 1"},
    {R"("min_tokens":5,"max_tokens":4)", 400, kValue, "min_tokens", "4"},
    {R"("min_tokens":99999999)", 400, kValue, "min_tokens", "2048"},
    {R"("stop":"")", 400, kValue, "stop", "empty"},
    {R"("stop":["a",""])", 400, kValue, "stop", "empty"},
    {R"("stop":[1])", 400, kSchema, "stop.0", "string"},
    {R"("stop":5)", 400, kSchema, "stop", "list of strings"},
    {R"("stop_token_ids":[257])", 400, kValue, "stop_token_ids.0", "257"},
    {R"("stop_token_ids":[-1])", 400, kValue, "stop_token_ids.0", "-1"},
    {R"("stop_token_ids":["a"])", 400, kSchema, "stop_token_ids.0", "token id"},
    {R"("stop_token_ids":[4294967296])", 400, kValue, "stop_token_ids.0", "4294967296"},
    {R"("logit_bias":{"257":5})", 400, kValue, "logit_bias.257", "vocabulary"},
    {R"("logit_bias":{"-1":5})", 400, kValue, "logit_bias.-1", "vocabulary"},
    {R"("logit_bias":{"99999999999":5})", 400, kValue, "logit_bias.99999999999", "vocabulary"},
    {R"("logit_bias":{"a":5})", 400, kSchema, "logit_bias.a", "token id"},
    {R"("logit_bias":{"5":"x"})", 400, kSchema, "logit_bias.5", "number"},
    {R"("logit_bias":[])", 400, kSchema, "logit_bias", "object"},
    {R"("allowed_token_ids":[])", 400, kValue, "allowed_token_ids", "empty"},
    {R"("allowed_token_ids":[300])", 400, kValue, "allowed_token_ids.0", "300"},
    {R"("bad_words":[""])", 400, kValue, "bad_words", "empty"},
    {R"("bad_words":["  "])", 400, kValue, "bad_words", "empty"},
    {R"("bad_words":"x")", 400, kSchema, "bad_words", "list"},
    {R"("prompt_logprobs":21)", 400, kValue, "prompt_logprobs", "--max-logprobs"},
    {R"("prompt_logprobs":-2)", 400, kValue, "prompt_logprobs", "-2"},
    {R"("prompt_logprobs":1,"stream":true)", 400, kValue, "prompt_logprobs", "stream"},
    {R"("truncate_prompt_tokens":0)", 400, kValue, "truncate_prompt_tokens", "0"},
    {R"("truncate_prompt_tokens":-2)", 400, kValue, "truncate_prompt_tokens", "-2"},
    {R"("truncation_side":"middle")", 400, kValue, "truncation_side", "middle"},
    {R"("stream":"yes")", 400, kSchema, "stream", "true or false"},
    {R"("stream_options":{"include_usage":true})", 400, kValue, "stream_options", "stream"},
    {R"("stream":true,"stream_options":{"include_usage":1})", 400, kSchema, "stream_options.include_usage", "true or false"},
    {R"("priority":1)", 400, kValue, "priority", "--scheduling-policy"},
    {R"("cache_salt":"")", 400, kValue, "cache_salt", "non-empty"},
    {R"("request_id":5)", 400, kSchema, "request_id", "string"},
    {R"("model":5)", 400, kSchema, "model", "string"},
    {R"("model":"other")", 404, "NotFoundError", "model", "does not exist"},
    {R"("response_format":{"type":"json_schema"})", 400, kValue, "response_format.json_schema", "json_schema"},
    {R"("response_format":{"type":5})", 400, kSchema, "response_format.type", "string"},
    {R"("response_format":"json")", 400, kSchema, "response_format", "object"},
    {R"("guided_json":5)", 400, kValue, "guided_json", "JSON schema"},
    {R"("guided_choice":[])", 400, kValue, "guided_choice", "choose"},
    {R"("structured_outputs":{"regex":"a","choice":["b"]})", 400, kValue, "structured_outputs.choice", "one kind"},
    {R"("structured_outputs":{"json_object":false})", 400, kValue, "structured_outputs.json_object", "nothing"},
    {R"("structured_outputs":{"json":""})", 400, kValue, "structured_outputs.json", "text"},
    {R"("structured_outputs":{"json_object":true},"min_tokens":3)", 400, kValue, "min_tokens", "structured"},
    {R"("response_format":{"type":"nosuch"})", 400, kValue, "response_format.type", "nosuch"},
    {R"("use_beam_search":true)", 501, "NotImplementedError", "use_beam_search", "beam"},
    {R"("logprob_token_ids":[1])", 501, "NotImplementedError", "logprob_token_ids", "not offered"},
    {R"("thinking_token_budget":-1)", 400, kValue, "thinking_token_budget", "-1"},
});

constexpr auto kCompletionOnly = std::to_array<Refusal>({
    {R"("logprobs":21)", 400, kValue, "logprobs", "at most 20"},
    {R"("logprobs":1000000000)", 400, kValue, "logprobs", "1000000000"},
    {R"("logprobs":true)", 400, kSchema, "logprobs", "integer"},
    {R"("suffix":"x")", 400, kValue, "suffix", "not supported"},
    {R"("echo":1)", 400, kSchema, "echo", "true or false"},
});

constexpr auto kPrompts = std::to_array<Refusal>({
    {R"("x":1)", 400, kSchema, "prompt", "list of strings"},
    {R"("prompt":null)", 400, kSchema, "prompt", "list of strings"},
    {R"("prompt":"")", 400, kValue, "prompt", "empty"},
    {R"("prompt":[])", 400, kValue, "prompt", "empty"},
    {R"("prompt":[[]])", 400, kValue, "prompt", "empty"},
    {R"("prompt":[""])", 400, kValue, "prompt", "empty"},
    {R"("prompt":["","a"])", 400, kValue, "prompt", "empty"},
    {R"("prompt":[-1])", 400, kValue, "prompt.0", "-1"},
    {R"("prompt":[0,-5])", 400, kValue, "prompt.1", "-5"},
    {R"("prompt":[257])", 400, kValue, "prompt.0", "257"},
    {R"("prompt":[[5],[257]])", 400, kValue, "prompt.1.0", "257"},
    {R"("prompt":[2147483648])", 400, kValue, "prompt.0", "2147483648"},
    {R"("prompt":["a",5])", 400, kSchema, "prompt.1", "string"},
    {R"("prompt":[5,"a"])", 400, kSchema, "prompt.1", "token id"},
    {R"("prompt":[[5],"a"])", 400, kSchema, "prompt.1", "list of token ids"},
    {R"("prompt":[null])", 400, kSchema, "prompt.0", "list of token ids"},
    {R"("prompt":{"a":1})", 400, kSchema, "prompt", "object"},
    {R"("prompt":7)", 400, kSchema, "prompt", "7"},
});

constexpr auto kChatOnly = std::to_array<Refusal>({
    {R"("messages":[])", 400, kValue, "messages", "empty"},
    {R"("messages":"hi")", 400, kSchema, "messages", "list"},
    {R"("x":1)", 400, kSchema, "messages", "list of messages"},
    {R"("messages":["hi"])", 400, kSchema, "messages.0", "message"},
    {R"("messages":[{"content":"a"}])", 400, kSchema, "messages.0.role", "string"},
    {R"("messages":[{"role":5}])", 400, kSchema, "messages.0.role", "string"},
    {R"("messages":[{"role":"user","content":5}])", 400, kSchema, "messages.0.content", "list of parts"},
    {R"("messages":[{"role":"user","content":["a"]}])", 400, kSchema, "messages.0.content.0", "type"},
    {R"("messages":[{"role":"user","content":[{"type":"text"}]}])", 400, kSchema, "messages.0.content.0.text", "string"},
    {R"("messages":[{"role":"user","content":[{"type":"text","text":5}]}])", 400, kSchema, "messages.0.content.0.text", "string"},
    {R"("messages":[{"role":"user","content":[{"text":"a"}]}])", 400, kSchema, "messages.0.content.0.type", "type"},
    {R"("messages":[{"role":"user","content":[{"type":"hologram"}]}])", 400, kValue, "messages.0.content.0.type", "hologram"},
    {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])", 400, kValue, "messages.0.content.0",
     "not served yet"},
    {R"("messages":[{"role":"assistant","tool_calls":5}])", 400, kSchema, "messages.0.tool_calls", "list"},
    {R"("messages":[{"role":"assistant","tool_calls":[5]}])", 400, kSchema, "messages.0.tool_calls.0", "object"},
    {R"("messages":[{"role":"assistant","tool_calls":[{}]}])", 400, kSchema, "messages.0.tool_calls.0.function", "object"},
    {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{oops"}}]}])", 400, kValue,
     "messages.0.tool_calls.0.function.arguments", "JSON"},
    {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])", 400, kValue,
     "messages.0.tool_calls.0.function.arguments", "object"},
});

constexpr auto kChatFields = std::to_array<Refusal>({
    {R"("logprobs":5)", 400, kSchema, "logprobs", "true or false"},
    {R"("top_logprobs":5)", 400, kValue, "top_logprobs", "logprobs"},
    {R"("logprobs":true,"top_logprobs":21)", 400, kValue, "top_logprobs", "--max-logprobs"},
    {R"("max_completion_tokens":0)", 400, kValue, "max_completion_tokens", "at least 1"},
    {R"("max_completion_tokens":4000,"max_tokens":5)", 400, kValue, "max_completion_tokens", "4000"},
    {R"("continue_final_message":true)", 400, kValue, "continue_final_message", "add_generation_prompt"},
    {R"("chat_template":"{{ 1 }}")", 400, kValue, "chat_template", "--trust-request-chat-template"},
    {R"("chat_template_kwargs":[])", 400, kSchema, "chat_template_kwargs", "object"},
    {R"("functions":[])", 400, kValue, "functions", "tools"},
    {R"("function_call":"auto")", 400, kValue, "function_call", "tools"},
    {R"("tools":[])", 400, kValue, "tools", "empty"},
    {R"("tools":[5])", 400, kSchema, "tools.0", "tool"},
    {R"("tools":[{}],"tool_choice":"none")", 400, kSchema, "tools.0.function", "object"},
    {R"("tools":[{"function":{}}],"tool_choice":"none")", 400, kSchema, "tools.0.function.name", "string"},
    {R"("tools":[{"function":{"name":"f","parameters":[]}}],"tool_choice":"none")", 400, kSchema, "tools.0.function.parameters", "object"},
    {R"("tools":[{"function":{"name":"f","parameters":{"required":5}}}],"tool_choice":"none")", 400, kSchema,
     "tools.0.function.parameters.required", "list"},
    {R"("tools":[{"type":"x","function":{"name":"f"}}],"tool_choice":"none")", 400, kValue, "tools.0.type", "function"},
    {R"("tools":[{"function":{"name":"f"}}])", 400, kValue, "tool_choice", "--enable-auto-tool-choice"},
    {R"("tools":[{"function":{"name":"f"}}],"tool_choice":"auto")", 400, kValue, "tool_choice", "--tool-call-parser"},
    {R"("tools":[{"function":{"name":"f"}}],"tool_choice":"required")", 400, kValue, "tool_choice", "--tool-call-parser"},
    {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}})", 400, kValue, "tool_choice",
     "\"g\""},
    {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}})", 400, kValue, "tool_choice",
     "--tool-call-parser"},
    {R"("tools":[{"function":{"name":"f"}}],"tool_choice":7)", 400, kSchema, "tool_choice", "7"},
    {R"("tool_choice":"auto")", 400, kValue, "tool_choice", "tools"},
});

template <typename Read>
void ExpectRefused(const Refusal& refusal, std::string_view other_fields, Read read) {
  const std::string body = fmt::format("{{{}{}}}", other_fields, refusal.fields);
  const auto parsed = ParseJson(body, "the body");
  ASSERT_TRUE(parsed.has_value()) << body << ": " << parsed.error().message;
  const ServerOptions options = TestOptions();
  const auto result = read(*parsed, options);
  ASSERT_FALSE(result.has_value()) << body;
  EXPECT_EQ(result.error().status, refusal.status) << body;
  EXPECT_EQ(result.error().type, refusal.type) << body << ": " << result.error().message;
  EXPECT_EQ(result.error().param, refusal.param) << body << ": " << result.error().message;
  EXPECT_NE(result.error().message.find(refusal.fragment), std::string::npos) << body << ": " << result.error().message;
  EXPECT_LT(result.error().message.size(), 3000u);
}

TEST(Openai, RefusedFields_NameFieldAndValue) {
  for (const Refusal& refusal : kShared) {
    ExpectRefused(refusal, R"("prompt":"a",)", ReadCompletionRequest);
    ExpectRefused(refusal, R"("messages":[{"role":"user","content":"a"}],)", ReadChatRequest);
  }
  for (const Refusal& refusal : kCompletionOnly) ExpectRefused(refusal, R"("prompt":"a",)", ReadCompletionRequest);
  for (const Refusal& refusal : kPrompts) ExpectRefused(refusal, "", ReadCompletionRequest);
  for (const Refusal& refusal : kChatOnly) ExpectRefused(refusal, "", ReadChatRequest);
  for (const Refusal& refusal : kChatFields) ExpectRefused(refusal, R"("messages":[{"role":"user","content":"a"}],)", ReadChatRequest);
}

CompletionRequest MustReadCompletion(std::string_view body, const ServerOptions& options = TestOptions()) {
  auto request = ReadCompletionRequest(*ParseJson(body, "the body"), options);
  if (!request.has_value()) throw std::runtime_error(request.error().message);
  return *std::move(request);
}
ChatRequest MustReadChat(std::string_view body, const ServerOptions& options = TestOptions()) {
  auto request = ReadChatRequest(*ParseJson(body, "the body"), options);
  if (!request.has_value()) throw std::runtime_error(request.error().message);
  return *std::move(request);
}

TEST(Openai, BodyThatIsNoObject_IsRefused) {
  for (const std::string_view body : {"[]", "5", "null", "\"a\""}) {
    const auto result = ReadCompletionRequest(*ParseJson(body, "it"), TestOptions());
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().type, kSchemaErrorType);
  }
}

TEST(Openai, SeveralProblems_AreReportedTogether) {
  const auto result = ReadCompletionRequest(*ParseJson(R"({"prompt":"a","temperature":-1,"top_p":"x","n":0})", "it"), TestOptions());
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().param, "temperature");
  EXPECT_EQ(result.error().type, kSchemaErrorType);
  EXPECT_NE(result.error().message.find("top_p"), std::string::npos);
  EXPECT_NE(result.error().message.find("n: 0"), std::string::npos);
}

TEST(Openai, UnknownFieldsAndNulls_AreIgnored) {
  const auto request = MustReadCompletion(
      R"({"prompt":"a","temperature":null,"stop":null,"user":"u","frobnicate":{"a":[1]},"response_format":{"type":"text"},
          "structured_outputs":{},"guided_json":null,"use_beam_search":false,"length_penalty":1.0,"metadata":{"x":1}})");
  EXPECT_FALSE(request.sampling.temperature.has_value());
}

TEST(Openai, Prompts_InEveryForm) {
  EXPECT_EQ(MustReadCompletion(R"({"prompt":"a"})").prompts.size(), 1u);
  EXPECT_EQ(MustReadCompletion(R"({"prompt":["a","b"]})").prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(MustReadCompletion(R"({"prompt":[1,256]})").prompts.front()), (std::vector<int32_t>{1, 256}));
  EXPECT_EQ(MustReadCompletion(R"({"prompt":[[1],[2,3.0]]})").prompts.size(), 2u);
}

TEST(Openai, SamplingFields_AreResolvedAgainstTheModel) {
  ServerOptions options = TestOptions();
  options.sampling = {.temperature = 0.6, .top_p = 0.95, .top_k = 20, .min_p = {}, .repetition_penalty = {}, .max_new_tokens = {}};
  const auto tokenizer = ByteTokenizer();
  const auto of_model = ResolveSampling(MustReadCompletion(R"({"prompt":"a"})", options).sampling, options, tokenizer.get());
  EXPECT_FLOAT_EQ(of_model.temperature, 0.6f);
  EXPECT_FLOAT_EQ(of_model.top_p, 0.95f);
  EXPECT_EQ(of_model.top_k, 20);
  EXPECT_FLOAT_EQ(of_model.repetition_penalty, 1.0f);
  EXPECT_EQ(of_model.eos_token_ids, std::vector<int32_t>{kEos});
  const auto own = ResolveSampling(
      MustReadCompletion(
          R"({"prompt":"a","temperature":0,"top_k":-1,"seed":-1,"bad_words":["ab"],"logit_bias":{"5":1000,"6":-3.5},"top_p":1})", options)
          .sampling,
      options, tokenizer.get());
  EXPECT_EQ(own.temperature, 0.0f);
  EXPECT_EQ(own.top_k, -1);
  EXPECT_FALSE(own.seed.has_value());
  EXPECT_EQ(own.bad_words, (std::vector<std::vector<int32_t>>{BytesOf(" ab"), BytesOf("ab")}));
  EXPECT_EQ(own.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, 100.0f}, {6, -3.5f}}));
  EXPECT_EQ(*ResolveSampling(MustReadCompletion(R"({"prompt":"a","seed":-7})").sampling, options, nullptr).seed, static_cast<uint64_t>(-7));
}

TEST(Openai, LogprobCounts_MinusOneIsTheVocabulary) {
  ServerOptions options = TestOptions();
  options.max_logprobs = -1;
  EXPECT_EQ(MustReadCompletion(R"({"prompt":"a","logprobs":-1,"prompt_logprobs":-1})", options).logprobs, kTestVocabulary);
  EXPECT_EQ(MustReadChat(R"({"messages":[{"role":"user","content":"a"}],"logprobs":true})").logprobs, 0);
  EXPECT_FALSE(MustReadChat(R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":0})").logprobs.has_value());
}

TEST(Openai, ChatContent_PartsAreNormalised) {
  const auto request = MustReadChat(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a","x":1},{"type":"input_text","text":"b"}]},
                      {"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\": [1, 2]}"}},
                                                                       {"function":{"name":"g"}}]},
                      {"role":"tool","content":[{"type":"text","text":"r"}]}]})");
  const Json& messages = request.input.messages;
  EXPECT_EQ(DumpJson(messages[0]["content"]), R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])");
  EXPECT_TRUE(messages[1]["content"].is_null());
  EXPECT_EQ(DumpJson(messages[1]["tool_calls"][0]["function"]["arguments"]), R"({"a":[1,2]})");
  EXPECT_EQ(DumpJson(messages[1]["tool_calls"][1]["function"]["arguments"]), "{}");
}

TEST(Openai, ToolArguments_NestedTooDeep_AreRefused) {
  const std::string arguments = R"({\"a\":)" + std::string(3000, '[') + std::string(3000, ']') + "}";
  const std::string body =
      R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":")" + arguments + R"("}}]}]})";
  const auto result = ReadChatRequest(*ParseJson(body, "it"), TestOptions());
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("nested deeper"), std::string::npos);
}

TEST(Openai, OddToolSchemas_AreNoError) {
  for (const std::string_view parameters : {"null", "{}", R"({"type":"object","properties":null,"$defs":null})"}) {
    EXPECT_NO_THROW(MustReadChat(fmt::format(
        R"({{"messages":[{{"role":"user","content":"a"}}],"tool_choice":"none","tools":[{{"function":{{"name":"f","parameters":{}}}}}]}})",
        parameters)));
  }
}

TEST(Openai, ReasoningEffort_SetsThinkingUnlessGiven) {
  const auto kwargs = [](std::string_view fields) {
    return MustReadChat(fmt::format(R"({{"messages":[{{"role":"user","content":"a"}}],{}}})", fields)).input.kwargs;
  };
  EXPECT_EQ(kwargs(R"("reasoning_effort":"none")").at("enable_thinking"), false);
  EXPECT_EQ(kwargs(R"("reasoning_effort":"high")").at("enable_thinking"), true);
  EXPECT_EQ(kwargs(R"("reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true})").at("enable_thinking"), true);
}

TEST(Openai, TooManySequences_AreRefused) {
  std::string prompts = "[";
  for (int i = 0; i < 1000; ++i) prompts += "\"a\",";
  prompts.back() = ']';
  const auto result = ReadCompletionRequest(*ParseJson(fmt::format(R"({{"prompt":{},"n":100}})", prompts), "it"), TestOptions());
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().param, "n");
}

}  // namespace
}  // namespace avocet::server
