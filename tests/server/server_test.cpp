// The API over real sockets with a scripted engine: answers, streams, errors, lengths, cancels.
#include "server/server.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/server_testing.h"

namespace avocet::server {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kHi = R"("messages":[{"role":"user","content":"Hi"}])";

std::string ChatBody(std::string_view more = "") {
  return fmt::format("{{{}{}{}}}", kHi, more.empty() ? "" : ",", more);
}

Json Data(const std::string& event) {
  return Json::parse(event);
}

TEST(Server, ChatWhole_HasEveryField) {
  TestServer server("Hello");
  const Reply reply = server.Chat(ChatBody());
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  const Json body = reply.json();
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "test");
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "Hello");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_TRUE(choice["logprobs"].is_null());
  const std::string prompt = "<user>Hi<a>";
  EXPECT_EQ(DumpJson(body["usage"]),
            fmt::format(R"({{"prompt_tokens":{},"total_tokens":{},"completion_tokens":6,"prompt_tokens_details":null}})", prompt.size(),
                        prompt.size() + 6));
  for (const char* null_field : {"prompt_logprobs", "prompt_token_ids", "system_fingerprint", "service_tier"}) {
    EXPECT_TRUE(body.at(null_field).is_null()) << null_field;
  }
  EXPECT_EQ(server.backend().last_request().prompt, BytesOf(prompt));
  EXPECT_EQ(server.backend().last_request().sampling.max_tokens, 2048 - static_cast<int32_t>(prompt.size()));
}

TEST(Server, ChatStream_SequenceOfEvents) {
  TestServer server("Hey");
  const Reply reply = server.Chat(ChatBody(R"("stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const std::vector<std::string> events = reply.events();
  ASSERT_EQ(events.size(), 7u) << reply.body;  // role, H, e, y, finish, usage, [DONE]
  const Json role = Data(events[0]);
  EXPECT_EQ(role["object"], "chat.completion.chunk");
  EXPECT_EQ(DumpJson(role["choices"]), R"([{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(DumpJson(Data(events[1])["choices"]), R"([{"index":0,"delta":{"content":"H"},"logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(DumpJson(Data(events[4])["choices"]),
            R"([{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null}])");
  const Json usage = Data(events[5]);
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 4);
  EXPECT_EQ(events[6], "[DONE]");
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(Data(events[i])["id"], role["id"]);
}

TEST(Server, Stream_NothingIsSentBeforeTheFirstToken) {
  TestServer server("Hey");
  server.backend().set_held(true);
  TestClient client(server.port());
  client.Send(PostBytes("/v1/chat/completions", ChatBody(R"("stream":true)")));
  ASSERT_TRUE(WaitUntil([&] { return server.backend().num_live() == 1; }));
  server.backend().set_error("the pages burst");
  const Reply reply = client.Read();
  EXPECT_EQ(reply.status, 500);  // an error before the first token has its status
  EXPECT_EQ(reply.json()["error"]["message"], "the pages burst");
}

TEST(Server, StreamError_AfterTheFirstToken_IsAnEvent) {
  TestServer server([](const engine::Request&) { return BytesOf(std::string(1000, 'x')); }, TestOptions(), 1ms);
  TestClient client(server.port());
  client.Send(PostBytes("/v1/completions", R"({"prompt":"a","stream":true,"max_tokens":1000})"));
  ASSERT_TRUE(client.ReadUntil("data: "));
  server.backend().set_error("out of paper");
  const std::vector<std::string> events = client.Read().events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(DumpJson(Data(events[events.size() - 2])["error"]),
            R"({"message":"out of paper","type":"InternalServerError","param":null,"code":500})");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(Server, ContinuousUsage_CountsUpToTheEnd) {
  TestServer server("Hey", TestOptions(), 0us, 2);
  const auto events =
      server.Chat(ChatBody(R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})")).events();
  int64_t last = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Data(events[i]);
    ASSERT_TRUE(event.contains("usage")) << events[i];
    EXPECT_GE(event["usage"]["completion_tokens"].get<int64_t>(), last);
    last = event["usage"]["completion_tokens"];
  }
  EXPECT_EQ(last, 4);
}

TEST(Server, StepOfSeveralTokens_IsOneEvent) {
  TestServer server("abcdef", TestOptions(), 0us, 3);
  const auto events = server.Complete(R"({"prompt":"a","stream":true})").events();
  ASSERT_EQ(events.size(), 4u);  // abc, def, the end, [DONE]
  EXPECT_EQ(Data(events[0])["choices"][0]["text"], "abc");
  EXPECT_EQ(Data(events[1])["choices"][0]["text"], "def");
}

TEST(Server, StreamInterval_FirstTokenAtOnce) {
  TestServer server("abcdefgh");
  const auto events = server.Complete(R"({"prompt":"a","stream":true,"stream_interval":3,"max_tokens":8})").events();
  std::vector<std::string> texts;
  for (size_t i = 0; i + 1 < events.size(); ++i) texts.push_back(Data(events[i])["choices"][0]["text"]);
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "bcd", "efg", "h"}));
}

TEST(Server, StopString_CutsCancelsAndNamesItself) {
  TestServer server([](const engine::Request&) { return BytesOf("ABCDEFGHIK ABCDEFGHIJ tail" + std::string(1000, 'x')); }, TestOptions(),
                    100us);
  const std::string_view body = R"({{"prompt":"a","max_tokens":1000,"stop":["DEFGHIJ"],"stream":{},"include_stop_str_in_output":{}}})";
  for (const bool keeps : {false, true}) {
    const std::string expected = keeps ? "ABCDEFGHIK ABCDEFGHIJ" : "ABCDEFGHIK ABC";
    const Json whole = server.Complete(fmt::format(fmt::runtime(body), false, keeps)).json()["choices"][0];
    EXPECT_EQ(whole["text"], expected);
    EXPECT_EQ(whole["finish_reason"], "stop");
    EXPECT_EQ(whole["stop_reason"], "DEFGHIJ");
    std::string streamed;
    const auto events = server.Complete(fmt::format(fmt::runtime(body), true, keeps)).events();
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      streamed += Data(events[i])["choices"][0]["text"].get<std::string>();
      if (!keeps) {
        EXPECT_TRUE(expected.starts_with(streamed)) << streamed;  // no prefix of the stop string leaks
      }
    }
    EXPECT_EQ(streamed, expected);
  }
  EXPECT_TRUE(WaitUntil([&] { return server.backend().num_live() == 0; }));
  EXPECT_EQ(server.backend().num_cancels(), 4);
}

TEST(Server, StopTokenId_IsTheReason) {
  TestServer server("abc");
  const Json choice = server.Complete(R"({"prompt":"a","stop_token_ids":[98]})").json()["choices"][0];
  EXPECT_EQ(choice["text"], "a");
  EXPECT_EQ(choice["stop_reason"], 98);
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST(Server, HeldText_IsFlushedAtTheEnd) {
  TestServer server("neve");
  EXPECT_EQ(server.Complete(R"({"prompt":"a","stop":"never","max_tokens":4})").json()["choices"][0]["text"], "neve");
}

TEST(Server, SeveralChoices_InterleavedWithDerivedSeeds) {
  TestServer server([](const engine::Request& request) { return BytesOf(fmt::format("seed {}", *request.sampling.seed)); });
  const std::string body = ChatBody(R"("n":3,"seed":7,"temperature":1)");
  const Json whole = server.Chat(body).json();
  ASSERT_EQ(whole["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["message"]["content"], fmt::format("seed {}", 7 + i));
  }
  EXPECT_EQ(whole["usage"]["completion_tokens"], 3 * 7);
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 11);
  std::map<int, std::string> streamed;
  std::map<int, int> finishes;
  const auto events = server.Chat(ChatBody(R"("n":3,"seed":7,"temperature":1,"stream":true)")).events();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json choice = Data(events[i])["choices"][0];
    const int index = choice["index"];
    EXPECT_EQ(finishes[index], 0) << "an event after the finish";
    streamed[index] += choice["delta"].value("content", "");
    finishes[index] += choice["finish_reason"].is_null() ? 0 : 1;
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(streamed[i], fmt::format("seed {}", 7 + i));
}

TEST(Server, SeveralPrompts_IndexIsPromptTimesNPlusSample) {
  TestServer server([](const engine::Request& request) { return std::vector<int32_t>{request.prompt.front(), kEos}; });
  const Json body = server.Complete(R"({"prompt":["x","y"],"n":2,"echo":true})").json();
  ASSERT_EQ(body["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], i < 2 ? "xx" : "yy");
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 2);
}

TEST(Server, CompletionLogprobs_FourLists) {
  TestServer server("ab");
  const Json logprobs = server.Complete(R"({"prompt":"a","logprobs":2,"max_tokens":2})").json()["choices"][0]["logprobs"];
  EXPECT_EQ(
      DumpJson(logprobs),
      R"({"text_offset":[0,1],"token_logprobs":[-0.5,-0.5],"tokens":["a","b"],"top_logprobs":[{"a":-0.5,"b":-1.5},{"b":-0.5,"c":-1.5}]})");
  const Json as_ids = server.Complete(R"({"prompt":"a","logprobs":0,"max_tokens":1,"return_tokens_as_token_ids":true})").json();
  EXPECT_EQ(DumpJson(as_ids["choices"][0]["logprobs"]["top_logprobs"]), R"([{"token_id:97":-0.5}])");
}

TEST(Server, EchoWithLogprobs_CoversThePrompt) {
  TestServer server("c");
  for (const bool is_stream : {false, true}) {
    const Reply reply = server.Complete(fmt::format(R"({{"prompt":"ab","echo":true,"logprobs":1,"max_tokens":1,"stream":{}}})", is_stream));
    const Json choice = (is_stream ? Data(reply.events()[0]) : reply.json())["choices"][0];
    EXPECT_EQ(choice["text"], "abc");
    EXPECT_EQ(DumpJson(choice["logprobs"]["tokens"]), R"(["a","b","c"])");
    EXPECT_EQ(DumpJson(choice["logprobs"]["token_logprobs"]), "[null,-0.5,-0.5]");
    EXPECT_EQ(DumpJson(choice["logprobs"]["text_offset"]), "[0,1,2]");
  }
}

TEST(Server, EchoWithoutOutput_ScoresThePrompt) {
  TestServer server("zzz");
  const Json body = server.Complete(R"({"prompt":"ab","echo":true,"logprobs":1,"max_tokens":0})").json();
  EXPECT_EQ(body["choices"][0]["text"], "ab");
  EXPECT_EQ(DumpJson(body["choices"][0]["logprobs"]["tokens"]), R"(["a","b"])");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  EXPECT_EQ(server.backend().last_request().sampling.max_tokens, 1);
}

TEST(Server, PromptLogprobs_ListOfNullAndObjects) {
  TestServer server("c");
  const Json body = server.Complete(R"({"prompt":"ab","prompt_logprobs":1,"max_tokens":1})").json();
  EXPECT_EQ(DumpJson(body["choices"][0]["prompt_logprobs"]), R"([null,{"98":{"logprob":-0.5,"rank":1,"decoded_token":"b"}}])");
  const Json chat = server.Chat(ChatBody(R"("prompt_logprobs":0,"max_tokens":1)")).json();
  EXPECT_EQ(chat["prompt_logprobs"].size(), 11u);
}

TEST(Server, ChatLogprobs_BytesAndBest) {
  TestServer server("\xc3\xa9");  // e with acute accent, two tokens
  const Json content =
      server.Chat(ChatBody(R"("logprobs":true,"top_logprobs":1,"max_tokens":2)")).json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(DumpJson(content[0]["bytes"]), "[195]");
  EXPECT_EQ(content[0]["token"], "\ufffd");
  EXPECT_EQ(content[0]["top_logprobs"].size(), 1u);
  // Streamed, the entries come with their step, text or not.
  const auto events = server.Chat(ChatBody(R"("logprobs":true,"top_logprobs":1,"max_tokens":2,"stream":true)")).events();
  size_t num_entries = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json choice = Data(events[i])["choices"][0];
    if (!choice["logprobs"].is_null()) num_entries += choice["logprobs"]["content"].size();
  }
  EXPECT_EQ(num_entries, 2u);
}

TEST(Server, ReturnTokenIds_EachOnce) {
  TestServer server("ab");
  const Json whole = server.Complete(R"({"prompt":[120,121],"return_token_ids":true})").json()["choices"][0];
  EXPECT_EQ(DumpJson(whole["token_ids"]), "[97,98,256]");
  EXPECT_EQ(DumpJson(whole["prompt_token_ids"]), "[120,121]");
  std::vector<int> ids;
  size_t num_prompts = 0;
  const auto events = server.Chat(ChatBody(R"("stream":true,"return_token_ids":true)")).events();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Data(events[i]);
    num_prompts += event.contains("prompt_token_ids") ? 1 : 0;
    for (const Json& id : event["choices"][0].value("token_ids", Json::array())) ids.push_back(id);
  }
  EXPECT_EQ(ids, (std::vector<int>{97, 98, 256}));
  EXPECT_EQ(num_prompts, 1u);
}

TEST(Server, BrokenCharacter_IsNeverStreamed) {
  const std::string text = "P\u0159\u00edli\u0161 \U0001f336\ufe0f\U0001f469\u200d\U0001f466 \u4e2d";
  TestServer server(text);
  const auto events = server.Chat(ChatBody(R"("stream":true)")).events();
  std::string streamed;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json delta = Data(events[i])["choices"][0]["delta"];
    EXPECT_EQ(delta.value("content", "").find("\ufffd"), std::string::npos);
    streamed += delta.value("content", "");
  }
  EXPECT_EQ(streamed, text);
}

TEST(Server, Lengths_AreRefusedNotClipped) {
  TestServer server("x");
  const auto prompt = [](size_t num) { return std::string(num, 'p'); };
  const auto complete = [&](size_t num, std::string_view more) {
    return server.Complete(fmt::format(R"({{"prompt":"{}"{}}})", prompt(num), more));
  };
  EXPECT_EQ(complete(8, R"(,"max_tokens":2040)").status, 200);
  const Reply over = complete(8, R"(,"max_tokens":2041)");
  EXPECT_EQ(over.status, 400);
  const Json error = over.json()["error"];
  EXPECT_EQ(error["param"], "input_tokens");
  EXPECT_EQ(error["type"], "BadRequestError");
  EXPECT_EQ(error["code"], 400);
  for (const char* number : {"2048", "8", "2041"}) EXPECT_NE(error["message"].get<std::string>().find(number), std::string::npos);
  EXPECT_EQ(complete(8, R"(,"max_tokens":2041,"stream":true)").status, 400);
  EXPECT_EQ(complete(2048, "").status, 400);
  EXPECT_EQ(complete(2047, "").status, 200);
  EXPECT_EQ(server.backend().last_request().sampling.max_tokens, 1);
  EXPECT_EQ(complete(5, "").status, 200);
  EXPECT_EQ(server.backend().last_request().sampling.max_tokens, 16);
  EXPECT_EQ(complete(3000, R"(,"truncate_prompt_tokens":10)").status, 200);
  EXPECT_EQ(server.backend().last_request().prompt.size(), 10u);
  EXPECT_EQ(complete(3000, R"(,"truncate_prompt_tokens":-1,"max_tokens":48)").status, 200);
  EXPECT_EQ(server.backend().last_request().prompt.size(), 2000u);
  const Reply huge = complete(3'000'000, "");
  EXPECT_EQ(huge.status, 400);
  EXPECT_EQ(huge.json()["error"]["param"], "input_text");
}

TEST(Server, ModelsOwnLimit_BoundsTheOutput) {
  ServerOptions options = TestOptions();
  options.sampling.max_new_tokens = 100;
  TestServer server("x", std::move(options));
  server.Chat(ChatBody());
  EXPECT_EQ(server.backend().last_request().sampling.max_tokens, 100);
  server.Chat(ChatBody(R"("max_tokens":500)"));
  EXPECT_EQ(server.backend().last_request().sampling.max_tokens, 100);
}

TEST(Server, TemplateErrors_Are400) {
  TestServer server("x");
  const Reply reply = server.Chat(R"({"messages":[{"role":"bad","content":"a"}]})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["message"], "Unexpected role.");
  EXPECT_EQ(reply.json()["error"]["type"], "BadRequestError");
}

TEST(Server, TemplateVariables_ServerThenRequest) {
  ServerOptions options = TestOptions();
  options.chat_template_kwargs = Json{{"enable_thinking", true}};
  TestServer server("x", std::move(options));
  const auto prompt_of = [&](std::string_view more) {
    EXPECT_EQ(server.Chat(ChatBody(more)).status, 200);
    std::string text;
    for (const int32_t id : server.backend().last_request().prompt) text += static_cast<char>(id);
    return text;
  };
  EXPECT_EQ(prompt_of(""), "<user>Hi[True]<a>");
  EXPECT_EQ(prompt_of(R"("chat_template_kwargs":{"enable_thinking":false})"), "<user>Hi[False]<a>");
  EXPECT_EQ(prompt_of(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")"), "<user>Hi[1 tools][True]<a>");
  EXPECT_EQ(prompt_of(R"("add_generation_prompt":false)"), "<user>Hi[True]");
}

TEST(Server, TrustedTemplate_IsUsedWithinLimits) {
  ServerOptions options = TestOptions();
  options.trust_request_chat_template = true;
  TestServer server("x", std::move(options));
  EXPECT_EQ(server.Chat(ChatBody(R"("chat_template":"T{{ messages[0].content }}")")).status, 200);
  EXPECT_EQ(server.backend().last_request().prompt, BytesOf("THi"));
  EXPECT_EQ(server.Chat(ChatBody(R"("chat_template":"{% for i in range(1000000000) %}x{% endfor %}")")).status, 400);
  EXPECT_EQ(server.Chat(ChatBody(R"("chat_template":"{% if %}")")).status, 400);
  const Reply empty = server.Chat(ChatBody(R"("chat_template":"{{ '' }}")"));
  EXPECT_EQ(empty.status, 400);
}

TEST(Server, ContentParts_EqualTheJoinedString) {
  TestServer server("x");
  const auto tokens = [&](std::string_view content) {
    return server.Post("/tokenize", fmt::format(R"({{"messages":[{{"role":"user","content":{}}}]}})", content)).json()["tokens"];
  };
  EXPECT_EQ(tokens(R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])"), tokens(R"("ab")"));
}

TEST(Server, Errors_HaveTheNestedForm) {
  TestServer server("x");
  const auto error_of = [&](std::string_view body) { return server.Complete(body).json()["error"]; };
  EXPECT_EQ(DumpJson(error_of(R"({"prompt":"a","temperature":-1})")),
            R"({"message":"temperature: -1 is out of range: at least 0","type":"BadRequestError","param":"temperature","code":400})");
  EXPECT_EQ(error_of("{oops")["type"], "Bad Request");
  EXPECT_EQ(error_of("")["type"], "Bad Request");
  EXPECT_EQ(error_of("{\"prompt\":\"\xff\xfe\"}")["type"], "Bad Request");
  EXPECT_EQ(error_of(R"({"prompt":"\ud800"})")["type"], "Bad Request");
  EXPECT_EQ(server.Complete(R"({"prompt":"a\u0000b"})").status, 200);
  const Reply missing = server.Complete(R"({"model":"nope","prompt":"a"})");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.json()["error"]["param"], "model");
  EXPECT_EQ(server.Complete(R"({"model":"alias","prompt":"a"})").json()["model"], "test");
  EXPECT_EQ(server.Complete(R"({"model":"","prompt":"a"})").status, 200);
  EXPECT_EQ(server.Complete(R"({"model":null,"prompt":"a"})").status, 200);
}

TEST(Server, ContentType_MustBeJson) {
  TestServer server("x");
  const auto post = [&](std::string_view type) {
    TestClient client(server.port());
    const std::string_view body = R"({"prompt":"a"})";
    client.Send(fmt::format("POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n{}\r\n{}", body.size(), type, body));
    return client.Read().status;
  };
  EXPECT_EQ(post("content-type: application/json; charset=utf-8\r\n"), 200);
  EXPECT_EQ(post("Content-Type: Application/JSON\r\n"), 200);
  EXPECT_EQ(post("content-type: text/plain\r\n"), 400);
  EXPECT_EQ(post(""), 400);
}

TEST(Server, FullEngine_Is503) {
  TestServer server("x");
  server.backend().set_full(true);
  EXPECT_EQ(server.Complete(R"({"prompt":"a"})").status, 503);
  server.backend().set_full(false);
  EXPECT_EQ(server.Complete(R"({"prompt":"a"})").status, 200);
}

TEST(Server, ClientGone_EveryChoiceIsCancelled) {
  TestServer server([](const engine::Request&) { return std::vector<int32_t>(2000, 'x'); }, TestOptions(), 1ms);
  for (const std::string_view stream : {"true", "false"}) {
    for (const bool is_reset : {false, true}) {
      TestClient client(server.port());
      client.Send(PostBytes("/v1/completions", fmt::format(R"({{"prompt":"a","max_tokens":2000,"n":3,"stream":{}}})", stream)));
      ASSERT_TRUE(WaitUntil([&] { return server.backend().num_live() == 3; }));
      is_reset ? client.Reset() : client.Close();
      EXPECT_TRUE(WaitUntil([&] { return server.backend().num_live() == 0; })) << "stream " << stream << ", reset " << is_reset;
    }
  }
  const std::string metrics = server.Get("/metrics").body;
  EXPECT_NE(metrics.find("finished_reason=\"abort\"} 12"), std::string::npos) << metrics;
}

TEST(Server, Tokenize_AndBack) {
  TestServer server("x");
  const Json tokens = server.Post("/tokenize", R"({"prompt":"ab<|im_end|>","return_token_strs":true})").json();
  EXPECT_EQ(DumpJson(tokens), R"({"count":3,"max_model_len":2048,"tokens":[97,98,256],"token_strs":["a","b","<|im_end|>"]})");
  EXPECT_EQ(server.Post("/detokenize", R"({"tokens":[97,98,256]})").json()["prompt"], "ab<|im_end|>");
  EXPECT_EQ(server.Post("/tokenize", fmt::format("{{{}}}", kHi)).json()["count"], 11);
  EXPECT_TRUE(server.Post("/tokenize", R"({"prompt":"a"})").json()["token_strs"].is_null());
  EXPECT_EQ(server.Post("/tokenize", "{}").status, 400);
  EXPECT_EQ(server.Post("/tokenize", R"({"prompt":5})").status, 400);
  EXPECT_EQ(server.Post("/detokenize", R"({"tokens":[257]})").status, 400);
  EXPECT_EQ(server.Post("/detokenize", R"({"tokens":"a"})").status, 400);
}

TEST(Server, Models_OneCardPerName) {
  TestServer server("x");
  const Json list = server.Get("/v1/models").json();
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "test");
  EXPECT_EQ(list["data"][0]["root"], "/models/test");
  EXPECT_EQ(list["data"][0]["max_model_len"], 2048);
  EXPECT_EQ(list["data"][1]["id"], "alias");
  EXPECT_EQ(server.Get("/v1/models/alias").json()["id"], "alias");
  EXPECT_EQ(server.Get("/v1/models/nope").status, 404);
}

TEST(Server, SmallRoutes_Answer) {
  TestServer server("x");
  EXPECT_EQ(server.Get("/health").status, 200);
  EXPECT_EQ(server.Get("/health").body, "");
  EXPECT_EQ(server.Post("/ping", "").status, 200);
  EXPECT_EQ(server.Get("/ping").status, 200);
  EXPECT_TRUE(server.Get("/version").json().contains("version"));
  EXPECT_EQ(server.Get("/load").json()["server_load"], 0);
  EXPECT_EQ(server.Get("/nowhere").status, 404);
  EXPECT_EQ(server.Get("/nowhere").json()["error"]["code"], 404);
  const Reply wrong = server.Get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  server.backend().set_healthy(false);
  EXPECT_EQ(server.Get("/health").status, 503);
}

TEST(Server, ApiKey_GuardsV1Only) {
  ServerOptions options = TestOptions();
  options.api_keys = {"secret", "other"};
  options.root_path = "/proxy";
  TestServer server("x", std::move(options));
  const Reply refused = server.Get("/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.body, R"({"error":"Unauthorized"})");
  EXPECT_EQ(server.Get("/proxy/v1/models").status, 401);
  EXPECT_EQ(server.Get("/v1/models", "authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(server.Get("/v1/models", "authorization: Basic secret\r\n").status, 401);
  EXPECT_EQ(server.Get("/v1/models", "authorization: Bearer \r\n").status, 401);
  EXPECT_EQ(server.Get("/v1/models", "Authorization: bearer other\r\n").status, 200);
  EXPECT_EQ(server.Get("/proxy/v1/models", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(server.Complete(R"({"prompt":"a"})").status, 401);
  for (const std::string_view open : {"/health", "/metrics", "/version", "/proxy/health"}) EXPECT_EQ(server.Get(open).status, 200) << open;
  EXPECT_EQ(server.Post("/tokenize", R"({"prompt":"a"})").status, 200);
}

TEST(Server, RequestIds_AreEchoedIfUsable) {
  ServerOptions options = TestOptions();
  options.enable_request_id_headers = true;
  TestServer server("x", std::move(options));
  const Reply own = server.Post("/v1/completions", R"({"prompt":"a","request_id":"body"})", "X-Request-Id: my-id\r\n");
  EXPECT_EQ(own.headers.at("x-request-id"), "my-id");
  EXPECT_EQ(own.json()["id"], "cmpl-my-id");
  EXPECT_EQ(server.Complete(R"({"prompt":"a","request_id":"body"})").json()["id"], "cmpl-body");
  const Reply longer = server.Post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: " + std::string(129, 'x') + "\r\n");
  EXPECT_EQ(longer.headers.at("x-request-id").size(), 32u);
  EXPECT_EQ(longer.json()["id"].get<std::string>().size(), 5u + 32u);
}

TEST(Server, Cors_OnlyForAllowedOrigins) {
  ServerOptions options = TestOptions();
  options.cors.allowed_origins = {"http://ui"};
  TestServer server("x", std::move(options));
  EXPECT_EQ(server.Get("/health", "origin: http://ui\r\n").headers.at("access-control-allow-origin"), "http://ui");
  EXPECT_FALSE(server.Get("/health", "origin: http://evil\r\n").headers.contains("access-control-allow-origin"));
  TestClient client(server.port());
  client.Send(
      "OPTIONS /v1/models HTTP/1.1\r\nhost: t\r\norigin: http://ui\r\naccess-control-request-method: GET\r\n"
      "access-control-request-headers: authorization\r\n\r\n");
  const Reply preflight = client.Read();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization");
}

TEST(Server, Metrics_CountWhatHappened) {
  ServerOptions options = TestOptions();
  options.cache_config = {{"block_size", "64"}};
  TestServer server("Hello", std::move(options));
  server.Chat(ChatBody());
  server.Complete(R"({"prompt":"a","max_tokens":2})");
  const Reply reply = server.Get("/metrics");
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const std::string labels = R"({engine="0",model_name="test")";
  for (const std::string& line :
       {"vllm:request_success_total" + labels + R"(,finished_reason="stop"} 1)",
        "vllm:request_success_total" + labels + R"(,finished_reason="length"} 1)", "vllm:prompt_tokens_total" + labels + "} 12",
        "vllm:generation_tokens_total" + labels + "} 8", "vllm:time_to_first_token_seconds_count" + labels + "} 2",
        "vllm:inter_token_latency_seconds_count" + labels + "} 6", "vllm:num_requests_running" + labels + "} 0",
        "vllm:e2e_request_latency_seconds_count" + labels + "} 2", "vllm:request_params_n_count" + labels + "} 2",
        "vllm:cache_config_info" + labels + R"(,block_size="64"} 1)"}) {
    EXPECT_NE(reply.body.find(line), std::string::npos) << line << "\n" << reply.body;
  }
  EXPECT_NE(reply.body.find("# TYPE vllm:time_to_first_token_seconds histogram"), std::string::npos);
  EXPECT_NE(reply.body.find(R"(http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 1)"), std::string::npos)
      << reply.body;
}

TEST(Server, NoStats_NoEngineMetrics) {
  ServerOptions options = TestOptions();
  options.log_stats = false;
  TestServer server("x", std::move(options));
  server.Complete(R"({"prompt":"a"})");
  EXPECT_EQ(server.Get("/metrics").body.find("vllm:"), std::string::npos);
}

TEST(Server, Drain_FinishesWhatRunsAndRefusesTheRest) {
  TestServer server([](const engine::Request&) { return std::vector<int32_t>(300, 'x'); }, TestOptions(), 1ms);
  TestClient running(server.port());
  TestClient idle(server.port());
  idle.Send(GetBytes("/health"));
  EXPECT_EQ(idle.Read().status, 200);
  running.Send(PostBytes("/v1/completions", R"({"prompt":"a","max_tokens":300,"stream":true})"));
  ASSERT_TRUE(running.ReadUntil("data: "));
  std::thread drain([&] { server.server().Drain(std::chrono::steady_clock::now() + 10s); });
  EXPECT_TRUE(idle.IsAtEnd());
  const auto events = running.Read().events();
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(Data(events[events.size() - 2])["choices"][0]["finish_reason"], "length");
  drain.join();
  TestClient late(server.port());
  EXPECT_FALSE(late.is_connected());
}

TEST(Server, DrainDeadline_CancelsTheRest) {
  TestServer server([](const engine::Request&) { return std::vector<int32_t>(2000, 'x'); }, TestOptions(), 10ms);
  TestClient running(server.port());
  running.Send(PostBytes("/v1/completions", R"({"prompt":"a","max_tokens":2000})"));
  ASSERT_TRUE(WaitUntil([&] { return server.backend().num_live() == 1; }));
  server.server().Drain(std::chrono::steady_clock::now() + 50ms);
  const Reply reply = running.Read();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json()["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(server.backend().num_live(), 0u);
}

// WAIT-1: an engine that is faster than the io threads can write is held up by them, and memory with it.
TEST(Server, WAIT1_EngineFasterThanIo_IsHeldUp) {
  ServerOptions options = TestOptions();
  options.max_model_len = 1 << 20;
  options.num_io_threads = 1;
  options.http.queued_bytes_max = size_t{64} << 20;  // the client may be slow: this is about the engine
  TestServer server([](const engine::Request&) { return std::vector<int32_t>(100'000, 'x'); }, std::move(options));
  TestClient client(server.port());
  client.Send(PostBytes("/v1/completions", R"({"prompt":"a","max_tokens":100000,"stream":true})"));
  const auto events = client.Read().events();
  EXPECT_EQ(events.size(), 100'001u);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(Server, LongBodies_TakeTheHelpersAndComeBack) {
  ServerOptions options = TestOptions();
  options.max_model_len = 200'000;
  TestServer server("x", std::move(options));
  const Reply reply = server.Complete(fmt::format(R"({{"prompt":"{}"}})", std::string(100'000, 'p')));
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(server.backend().last_request().prompt.size(), 100'000u);
  EXPECT_EQ(server.Complete(fmt::format(R"({{"prompt":5,"pad":"{}"}})", std::string(100'000, 'p'))).status, 400);
  // The answer is long as well: a helper writes it.
  const Json scored = server.Complete(fmt::format(R"({{"prompt":"{}","prompt_logprobs":2}})", std::string(20'000, 'p'))).json();
  EXPECT_EQ(scored["choices"][0]["prompt_logprobs"].size(), 20'000u);
}

TEST(Server, ClientGoneWhileHelpersRead_NothingIsSubmitted) {
  TestServer server("x");
  const std::string body = PostBytes("/tokenize", fmt::format(R"({{"prompt":"{}"}})", std::string(4'000'000, 'p')));
  for (int i = 0; i < 8; ++i) {
    TestClient client(server.port());
    client.Send(body);
  }
  EXPECT_EQ(server.Get("/health").status, 200);
  EXPECT_EQ(server.backend().num_submitted(), 0);
}

}  // namespace
}  // namespace avocet::server
