#include "cli/arguments.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/json_text.h"

namespace avocet::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

Arguments Parse(const Words& words, Command command = Command::kServe) {
  Result<Arguments> arguments = ParseArguments(command, words);
  EXPECT_TRUE(arguments) << arguments.error().message;
  return arguments ? *std::move(arguments) : Arguments{};
}

std::string ErrorOf(const Words& words, Command command = Command::kServe) {
  const Result<Arguments> arguments = ParseArguments(command, words);
  if (arguments) return "(no error)";
  EXPECT_EQ(arguments.error().message.find('\n'), std::string::npos);
  return arguments.error().message;
}

std::vector<std::string> ValuesOf(const Arguments& arguments, std::string_view name) {
  for (const Argument& argument : arguments.arguments) {
    if (argument.flag->name == name) return argument.values;
  }
  return {};
}

Json JsonOf(const Arguments& arguments, std::string_view name) {
  const std::vector<std::string> values = ValuesOf(arguments, name);
  return values.empty() ? Json() : Json::parse(values[0]);
}

TEST(Arguments, UnderscoresAndDashes_AreTheSame) {
  for (const char* word : {"--max-model-len=7", "--max_model_len=7", "--max_model-len=7"}) {
    EXPECT_THAT(ValuesOf(Parse({word}), "max-model-len"), ElementsAre("7")) << word;
  }
  EXPECT_THAT(ValuesOf(Parse({"--max_model_len", "7"}), "max-model-len"), ElementsAre("7"));
  // Values keep their spelling.
  EXPECT_THAT(ValuesOf(Parse({"--served_model_name=a_b-c"}), "served-model-name"), ElementsAre("a_b-c"));
}

TEST(Arguments, DottedPieces_MakeOneObject) {
  const Arguments arguments = Parse({"--compilation-config.cudagraph_mode", "FULL_DECODE_ONLY", "--compilation_config.a.b", "3",
                                     "--compilation-config.a.c=1k", "--compilation-config.a.d=80G", "--compilation-config.t=true",
                                     "--compilation-config.s=\"x\"", "--compilation-config.l=[1, 2]", "--compilation-config.n=-1"});
  EXPECT_EQ(JsonOf(arguments, "compilation-config"),
            Json::parse(R"({"cudagraph_mode":"FULL_DECODE_ONLY","a":{"b":3,"c":1000,"d":85899345920},"t":true,"s":"x","l":[1,2],"n":-1})"));
  EXPECT_TRUE(arguments.warnings.empty());
}

TEST(Arguments, DottedForm_EqualsTheJsonForm) {
  const Arguments whole =
      Parse({"--speculative_config", R"({"method": "qwen3_5_mtp", "num_speculative_tokens": 3, "enforce_eager": true})"});
  const Arguments pieces =
      Parse({"--speculative-config.method", "qwen3_5_mtp", "--speculative_config.num_speculative_tokens=3", "-sc.enforce_eager", "true"});
  EXPECT_EQ(JsonOf(whole, "speculative-config"), JsonOf(pieces, "speculative-config"));
}

TEST(Arguments, KeysAfterTheDot_KeepUnderscores) {
  EXPECT_EQ(JsonOf(Parse({"--additional_config.enable_cpu_binding", "true"}), "additional-config"),
            Json::parse(R"({"enable_cpu_binding":true})"));
}

TEST(Arguments, PlusPieces_Append) {
  const Arguments arguments = Parse({"--compilation-config.sizes+", "1", "--compilation-config.sizes+=2,4", "-cc.ops+", "none"});
  EXPECT_EQ(JsonOf(arguments, "compilation-config"), Json::parse(R"({"sizes":[1,2,4],"ops":["none"]})"));
  EXPECT_TRUE(arguments.warnings.empty());
}

TEST(Arguments, RepeatedKey_WarnsAndTheLastWins) {
  const Arguments arguments = Parse({"--compilation-config.a.b", "1", "--compilation-config.a.b", "2"});
  EXPECT_EQ(JsonOf(arguments, "compilation-config"), Json::parse(R"({"a":{"b":2}})"));
  EXPECT_THAT(arguments.warnings, ElementsAre(HasSubstr("compilation-config.a.b")));
}

TEST(Arguments, PiecesOverTheWholeText_Merge) {
  const Arguments arguments = Parse({"--compilation-config.a.b", "2", "--compilation-config", R"({"a": {"b": 1, "c": 1}})"});
  EXPECT_EQ(JsonOf(arguments, "compilation-config"), Json::parse(R"({"a":{"b":2,"c":1}})"));
}

TEST(Arguments, NumberForCompilationConfig_IsItsMode) {
  EXPECT_EQ(JsonOf(Parse({"--compilation-config", "3"}), "compilation-config"), Json::parse(R"({"mode":3})"));
}

TEST(Arguments, Booleans_ArePaired) {
  EXPECT_THAT(ValuesOf(Parse({"--trust-remote-code"}), "trust-remote-code"), ElementsAre("true"));
  EXPECT_THAT(ValuesOf(Parse({"--no-trust_remote_code"}), "trust-remote-code"), ElementsAre("false"));
  EXPECT_THAT(ValuesOf(Parse({"--no-disable-hybrid-kv-cache-manager"}), "disable-hybrid-kv-cache-manager"), ElementsAre("false"));
  EXPECT_THAT(ValuesOf(Parse({"--trust-remote-code=false"}), "trust-remote-code"), ElementsAre("false"));
  EXPECT_THAT(ValuesOf(Parse({"--no-trust-remote-code=false"}), "trust-remote-code"), ElementsAre("true"));
  EXPECT_THAT(ErrorOf({"--trust-remote-code=maybe"}), HasSubstr("maybe"));
  EXPECT_THAT(ErrorOf({"MODEL", "--trust-remote-code", "true"}), HasSubstr("--trust-remote-code takes no value"));
  EXPECT_THAT(ErrorOf({"--no-port", "1"}), HasSubstr("unknown flag --no-port"));
}

TEST(Arguments, OptimizationLevel_HasFourForms) {
  for (const Words& words : {Words{"-O3"}, Words{"-O", "3"}, Words{"-O=3"}, Words{"--optimization-level", "3"}}) {
    EXPECT_THAT(ValuesOf(Parse(words), "optimization-level"), ElementsAre("3")) << words[0];
  }
  EXPECT_EQ(JsonOf(Parse({"-O.mode=3"}), "compilation-config"), Json::parse(R"({"mode":3})"));
}

TEST(Arguments, ShortAliases_Resolve) {
  const std::pair<Words, std::string> cases[] = {{{"-tp", "2"}, "tensor-parallel-size"},
                                                 {{"-tp=2"}, "tensor-parallel-size"},
                                                 {{"-pp", "2"}, "pipeline-parallel-size"},
                                                 {{"-dp", "2"}, "data-parallel-size"},
                                                 {{"-dpn", "2"}, "data-parallel-rank"},
                                                 {{"-dpr", "2"}, "data-parallel-start-rank"},
                                                 {{"-dpl", "2"}, "data-parallel-size-local"},
                                                 {{"-dpa", "2"}, "data-parallel-address"},
                                                 {{"-dpp", "2"}, "data-parallel-rpc-port"},
                                                 {{"-dpb", "2"}, "data-parallel-backend"},
                                                 {{"-asc", "2"}, "api-server-count"},
                                                 {{"-q", "2"}, "quantization"},
                                                 {{"-q2"}, "quantization"}};
  for (const auto& [words, name] : cases) EXPECT_THAT(ValuesOf(Parse(words), name), ElementsAre("2")) << words[0];
  EXPECT_THAT(ValuesOf(Parse({"-ep"}), "enable-expert-parallel"), ElementsAre("true"));
  EXPECT_THAT(ValuesOf(Parse({"-dph"}), "data-parallel-hybrid-lb"), ElementsAre("true"));
  EXPECT_EQ(JsonOf(Parse({"-cc", "{}"}), "compilation-config"), Json::object());
  EXPECT_THAT(ErrorOf({"-x", "1"}), HasSubstr("unknown flag -x"));
}

TEST(Arguments, Model_ByPositionOrByFlag) {
  EXPECT_THAT(ValuesOf(Parse({"m"}), "model"), ElementsAre("m"));
  EXPECT_THAT(ValuesOf(Parse({"--port", "1", "m"}), "model"), ElementsAre("m"));
  EXPECT_THAT(ValuesOf(Parse({"--", "-odd-name"}), "model"), ElementsAre("-odd-name"));
  for (const Words& words : {Words{"--model", "m", "--port", "1"}, Words{"-tp", "2", "--model=m"}}) {
    const Arguments arguments = Parse(words);
    EXPECT_THAT(ValuesOf(arguments, "model"), ElementsAre("m"));
    EXPECT_THAT(arguments.warnings, ElementsAre(HasSubstr("avocet serve m")));
  }
  EXPECT_TRUE(Parse({"--model", "m"}, Command::kBenchLatency).warnings.empty());
  EXPECT_THAT(ErrorOf({"a", "b"}), HasSubstr("got 'a' and 'b'"));
  EXPECT_THAT(ErrorOf({"a", "--model", "b"}), HasSubstr("got 'a' and 'b'"));
  EXPECT_THAT(ErrorOf({"--model"}), HasSubstr("--model needs a value"));
}

TEST(Arguments, Lists_TakeSeveralWords) {
  EXPECT_THAT(ValuesOf(Parse({"m", "--served-model-name", "a", "b", "--port", "1"}), "served-model-name"), ElementsAre("a", "b"));
  EXPECT_THAT(ValuesOf(Parse({"--served-model-name=a", "m"}), "served-model-name"), ElementsAre("a"));
}

TEST(Arguments, RepeatedFlag_WarnsAndTheLastWins) {
  const Arguments arguments = Parse({"--port", "1", "--port=2"});
  EXPECT_THAT(ValuesOf(arguments, "port"), ElementsAre("2"));
  EXPECT_THAT(arguments.warnings, ElementsAre(HasSubstr("--port is given 2 times")));
}

TEST(Arguments, Values_MayLookLikeNumbersOrBeEmpty) {
  EXPECT_THAT(ValuesOf(Parse({"--max-model-len", "-1"}), "max-model-len"), ElementsAre("-1"));
  EXPECT_THAT(ValuesOf(Parse({"--system", "- be brief"}, Command::kChat), "system"), ElementsAre("- be brief"));
  EXPECT_THAT(ValuesOf(Parse({"--reasoning-parser", ""}), "reasoning-parser"), ElementsAre(""));
  EXPECT_THAT(ValuesOf(Parse({"--reasoning-parser="}), "reasoning-parser"), ElementsAre(""));
  EXPECT_THAT(ValuesOf(Parse({"--chat-template=a=b=c"}), "chat-template"), ElementsAre("a=b=c"));
  EXPECT_THAT(ErrorOf({"--port", "--host", "x"}), HasSubstr("--port needs a value: an integer from 0 to 65535"));
  EXPECT_THAT(ErrorOf({"--port"}), HasSubstr("--port needs a value"));
}

TEST(Arguments, UnknownFlag_SuggestsOrNamesTheCommand) {
  EXPECT_THAT(ErrorOf({"--max-num-sqs", "4"}), HasSubstr("did you mean --max-num-seqs"));
  EXPECT_THAT(ErrorOf({"--input-len", "4"}), HasSubstr("avocet bench latency"));
  EXPECT_THAT(ErrorOf({"--zzzzzzzzz"}), HasSubstr("unknown flag --zzzzzzzzz"));
}

TEST(Arguments, BadJson_NamesTheFlag) {
  EXPECT_THAT(ErrorOf({"--compilation-config", "{bad"}), HasSubstr("--compilation-config"));
  EXPECT_THAT(ErrorOf({"--compilation-config", "[1]"}), HasSubstr("takes a JSON object"));
  EXPECT_THAT(ErrorOf({"--compilation-config."}), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf({"--compilation-config..x=1"}), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf({"--port.x=1"}), HasSubstr("--port takes"));
}

TEST(Arguments, DeepNesting_IsRefused) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_THAT(ErrorOf({"--compilation-config", "{\"a\":" + deep + "}"}), HasSubstr("nested deeper"));
  // As a piece it is no JSON within the bound, so it stays text.
  EXPECT_TRUE(JsonOf(Parse({"--compilation-config.a=" + deep}), "compilation-config")["a"].is_string());
  std::string keys = "--compilation-config";
  for (int i = 0; i < 1000; ++i) keys += ".a";
  EXPECT_THAT(ErrorOf({keys + "=1"}), HasSubstr("more than"));
}

TEST(Arguments, Help_ComesFirst) {
  EXPECT_EQ(Parse({"--no-such-flag", "--help"}).help_topic, "");
  EXPECT_EQ(Parse({"-h"}).help_topic, "");
  EXPECT_EQ(Parse({"--port", "--help=all"}).help_topic, "all");
  EXPECT_TRUE(Parse({"--version"}).version);
}

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             fmt::format("avocet-config-{}-{}.yaml", getpid(), testing::UnitTest::GetInstance()->current_test_info()->name()))
                .string();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  Words With(const std::string& text, Words words = {}) {
    std::ofstream(path_) << text;
    words.insert(words.end(), {"--config", path_});
    return words;
  }
  std::string path_;
};

TEST_F(ConfigTest, Keys_AreFlags) {
  const Arguments arguments =
      Parse(With("model: /m\n"
                 "port: 8010\n"
                 "tensor_parallel_size: 16\n"
                 "max-model-len: 25.6k\n"
                 "trust-remote-code: true\n"
                 "async_scheduling: false\n"
                 "served-model-name: [a, b]\n"
                 "speculative-config:\n"
                 "  method: qwen3_5_mtp\n"
                 "  num_speculative_tokens: 3\n"
                 "  enforce_eager: true\n"
                 "  name: \"3\"\n"
                 "uds: false\n"
                 "chat-template:\n"
                 "no-enable-prefix-caching: true\n"
                 "root-path: \"true\"\n"));
  EXPECT_THAT(ValuesOf(arguments, "model"), ElementsAre("/m"));
  EXPECT_THAT(ValuesOf(arguments, "port"), ElementsAre("8010"));
  EXPECT_THAT(ValuesOf(arguments, "tensor-parallel-size"), ElementsAre("16"));
  EXPECT_THAT(ValuesOf(arguments, "max-model-len"), ElementsAre("25.6k"));
  EXPECT_THAT(ValuesOf(arguments, "trust-remote-code"), ElementsAre("true"));
  EXPECT_THAT(ValuesOf(arguments, "async-scheduling"), ElementsAre("false"));
  EXPECT_THAT(ValuesOf(arguments, "served-model-name"), ElementsAre("a", "b"));
  EXPECT_EQ(JsonOf(arguments, "speculative-config"),
            Json::parse(R"({"method":"qwen3_5_mtp","num_speculative_tokens":3,"enforce_eager":true,"name":"3"})"));
  EXPECT_TRUE(ValuesOf(arguments, "uds").empty());
  EXPECT_TRUE(ValuesOf(arguments, "chat-template").empty());
  EXPECT_THAT(ValuesOf(arguments, "enable-prefix-caching"), ElementsAre("false"));
  EXPECT_THAT(ValuesOf(arguments, "root-path"), ElementsAre("true"));
}

TEST_F(ConfigTest, CommandLine_ComesFirst) {
  const Arguments arguments = Parse(With("port: 1\nmodel: file\nserved-model-name: [x, y]\ncompilation-config: {a: 1, b: {c: 2}}\n",
                                         {"line", "--port", "2", "--served-model-name", "z", "--compilation-config.b.c", "3"}));
  EXPECT_THAT(ValuesOf(arguments, "port"), ElementsAre("2"));
  EXPECT_THAT(ValuesOf(arguments, "model"), ElementsAre("line"));
  EXPECT_THAT(ValuesOf(arguments, "served-model-name"), ElementsAre("z"));
  EXPECT_EQ(JsonOf(arguments, "compilation-config"), Json::parse(R"({"a":1,"b":{"c":3}})"));
  EXPECT_TRUE(arguments.warnings.empty());
}

TEST_F(ConfigTest, Mistakes_AreOneLine) {
  EXPECT_THAT(ErrorOf(With("max-num-sqs: 4\n")), HasSubstr("did you mean --max-num-seqs"));
  EXPECT_THAT(ErrorOf(With("- a\n- b\n")), HasSubstr("mapping"));
  EXPECT_THAT(ErrorOf(With("a: [1\n")), HasSubstr(path_));
  EXPECT_THAT(ErrorOf(With("port: [1, 2]\n")), HasSubstr("takes one value"));
  EXPECT_THAT(ErrorOf(With("port: {a: 1}\n")), HasSubstr("not a mapping"));
  EXPECT_THAT(ErrorOf(With("port: true\n")), HasSubstr("needs a value"));
  EXPECT_THAT(ErrorOf(With("config: x.yaml\n")), HasSubstr("no place"));
  EXPECT_THAT(ErrorOf(With("? [a]\n: b\n")), HasSubstr("plain word"));
  EXPECT_THAT(ErrorOf(With("port: 1\n", {"--config", "other.yaml"})), HasSubstr("twice"));
  EXPECT_THAT(ErrorOf({"--config", "x.json"}), HasSubstr(".yaml"));
  EXPECT_THAT(ErrorOf({"--config", "/no/such/file.yaml"}), HasSubstr("cannot read"));
  EXPECT_THAT(ErrorOf({"--config", "/tmp/.yaml/"}), HasSubstr(".yaml"));
}

TEST_F(ConfigTest, EmptyFile_IsNoFlags) {
  EXPECT_TRUE(Parse(With("")).arguments.empty());
  EXPECT_TRUE(Parse(With("# nothing\n")).arguments.empty());
}

TEST_F(ConfigTest, ExpandingAliases_AreBounded) {
  std::string text = "additional-config:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) text += fmt::format("  a{}: &a{} [*a{}, *a{}, *a{}, *a{}, *a{}]\n", i, i, i - 1, i - 1, i - 1, i - 1, i - 1);
  EXPECT_THAT(ErrorOf(With(text)), HasSubstr("more than"));
  EXPECT_THAT(ErrorOf(With("additional-config: " + std::string(200, '[') + std::string(200, ']'))), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace avocet::cli
