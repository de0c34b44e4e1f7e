#include "cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/environment.h"

namespace avocet::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Words = std::vector<std::string>;

CommandLine Parse(const Words& words, Command command = Command::kServe) {
  Result<CommandLine> line = ParseCommandLine(command, words);
  EXPECT_TRUE(line) << line.error().message;
  return line ? *std::move(line) : CommandLine{};
}

Error ErrorOf(const Words& words, Command command = Command::kServe) {
  const Result<CommandLine> line = ParseCommandLine(command, words);
  EXPECT_FALSE(line);
  if (line) return {};
  EXPECT_THAT(line.error().message, Not(HasSubstr("\n")));
  return line.error();
}

TEST(CommandLine, Defaults_AreTheDocumentedOnes) {
  const Options options = Parse({}).options;
  EXPECT_EQ(options.port, 8000);
  EXPECT_EQ(options.gpu_memory_utilization, 0.9);
  EXPECT_EQ(options.max_logprobs, 20);
  EXPECT_EQ(options.max_model_len, 0);
  EXPECT_FALSE(options.max_num_seqs);
  EXPECT_EQ(options.stream_interval, 1);
}

TEST(CommandLine, EveryKindOfValue_ReachesItsMember) {
  const Options options = Parse({"/m",
                                 "--port",
                                 "8010",
                                 "--served-model-name",
                                 "a",
                                 "b",
                                 "--max-model-len",
                                 "25.6k",
                                 "--kv-cache-memory-bytes",
                                 "4G",
                                 "--gpu-memory-utilization",
                                 "0.5",
                                 "--max-num-seqs",
                                 "128",
                                 "--max-num-batched-tokens",
                                 "16K",
                                 "--skip-tokenizer-init",
                                 "--override-generation-config.temperature",
                                 "0.5",
                                 "--seed",
                                 "1024",
                                 "--block-size",
                                 "16",
                                 "--dtype",
                                 "float32",
                                 "--api-key",
                                 "[x,y]",
                                 "--chat-template",
                                 "",
                                 "--root-path",
                                 "[a]"})
                              .options;
  EXPECT_EQ(options.model, "/m");
  EXPECT_EQ(options.port, 8010);
  EXPECT_THAT(options.served_model_name, ElementsAre("a", "b"));
  EXPECT_EQ(options.max_model_len, 25600);
  EXPECT_EQ(options.kv_cache_memory_bytes, int64_t{4} << 30);
  EXPECT_EQ(options.gpu_memory_utilization, 0.5);
  EXPECT_EQ(options.max_num_seqs, 128);
  EXPECT_EQ(options.max_num_batched_tokens, 16384);
  EXPECT_TRUE(options.skip_tokenizer_init);
  EXPECT_EQ(options.override_generation_config, R"({"temperature":0.5})");
  EXPECT_EQ(options.seed, 1024);
  EXPECT_EQ(options.block_size, 16);
  EXPECT_EQ(options.dtype, "float32");
  // Texts in brackets and empty texts arrive as they are.
  EXPECT_THAT(options.api_key, ElementsAre("[x,y]"));
  EXPECT_EQ(options.chat_template, "");
  EXPECT_EQ(options.root_path, "[a]");
}

TEST(CommandLine, MaxModelLen_AutoAndMinusOne) {
  EXPECT_EQ(Parse({"--max-model-len", "auto"}).options.max_model_len, -1);
  EXPECT_EQ(Parse({"--max-model-len", "-1"}).options.max_model_len, -1);
  EXPECT_EQ(Parse({"--max-model-len=-1"}).options.max_model_len, -1);
}

TEST(CommandLine, WrongValues_AreUsageErrorsThatNameFlagAndValue) {
  const Words cases[] = {{"--port", "abc"},
                         {"--port", "70000"},
                         {"--port", "-1"},
                         {"--port", "1k"},
                         {"--port", ""},
                         {"--port", "80 "},
                         {"--max-model-len", "0"},
                         {"--max-model-len", "-2"},
                         {"--max-model-len", "1.5K"},
                         {"--max-model-len", "99999999999999999999"},
                         {"--max-num-seqs", "0"},
                         {"--max-num-seqs", "1.0"},
                         {"--gpu-memory-utilization", "0"},
                         {"--gpu-memory-utilization", "1.5"},
                         {"--gpu-memory-utilization", "nan"},
                         {"--gpu-memory-utilization", "inf"},
                         {"--gpu-memory-utilization", "0.5x"},
                         {"--gpu-memory-utilization", " 0.5"},
                         {"--dtype", "int4"},
                         {"--block-size", "17"},
                         {"--block-size", "0"},
                         {"--scheduling-policy", "lifo"},
                         {"--kv-cache-memory-bytes", "0"},
                         {"--kv-cache-memory-bytes", "9999999T"},
                         {"--allowed-origins", "{}"},
                         {"--seed", "-1"},
                         {"--tensor-parallel-size", "0"},
                         {"--mm-processor-cache-gb", "-1"}};
  for (const Words& words : cases) {
    const Error error = ErrorOf(words);
    EXPECT_EQ(error.code, Errc::kInvalidArgument) << words[0] << " " << words[1];
    EXPECT_THAT(error.message, HasSubstr(words[0])) << words[1];
  }
}

TEST(CommandLine, RefusedFlags_SayWhy) {
  const Words cases[] = {{"--enable-lora"},
                         {"--middleware", "a.b"},
                         {"--grpc"},
                         {"--headless"},
                         {"--worker-cls", "x"},
                         {"--kv-cache-dtype", "fp8"},
                         {"--load-format", "gguf"},
                         {"--kv-transfer-config", "{}"}};
  for (const Words& words : cases) {
    const Error error = ErrorOf(words);
    EXPECT_EQ(error.code, Errc::kUnsupported) << words[0] << ": " << error.message;
    EXPECT_THAT(error.message, StartsWith(words[0]));
    EXPECT_THAT(error.message, HasSubstr("not offered"));
  }
  // Saying the default aloud is no request.
  Parse({"--no-enable-lora", "--kv-cache-dtype", "auto", "--worker-cls", "auto", "--load-format", "auto"});
}

TEST(CommandLine, FlagsWithoutEffect_AreNamedOnlyWhenTheyDiffer) {
  const CommandLine line = Parse({"m", "-tp", "16", "--data-parallel-size", "1", "--trust-remote-code", "--mm-processor-cache-gb", "4.0",
                                  "--async-scheduling", "--no-enable-chunked-prefill"});
  const std::vector<std::string> lines = ArgumentsWithoutEffect(line.arguments);
  EXPECT_THAT(lines, ElementsAre(StartsWith("--tensor-parallel-size 16: "), StartsWith("--trust-remote-code: "),
                                 StartsWith("--async-scheduling: "), StartsWith("--no-enable-chunked-prefill: ")));
  EXPECT_THAT(NonDefaultArguments(line.arguments), Not(Contains(HasSubstr("data-parallel-size"))));
}

TEST(CommandLine, Secrets_AreHidden) {
  const CommandLine line = Parse({"m", "--api-key", "sesame"});
  EXPECT_THAT(NonDefaultArguments(line.arguments), Contains("api-key=(hidden)"));
}

TEST(CommandLine, AdditionalConfigWithUnknownKey_Warns) {
  EXPECT_THAT(Parse({"m", "--additional-config", R"({"enable_cpu_binding": true})"}).arguments.warnings, IsEmpty());
  EXPECT_THAT(Parse({"m", "--additional-config.enable_cpu_bindng", "true"}).arguments.warnings, Contains(HasSubstr("enable_cpu_bindng")));
}

TEST(CheckOptions, RulesBetweenFlags_Refuse) {
  const auto message = [](const Words& words, Command command = Command::kServe) {
    const CommandLine line = Parse(words, command);
    const Result<void> checked = CheckOptions(command, line.options);
    return checked ? std::string("ok") : checked.error().message;
  };
  EXPECT_EQ(message({"m", "--served-model-name", "a"}), "ok");
  EXPECT_THAT(message({"--served-model-name", "a"}), HasSubstr("MODEL"));
  EXPECT_THAT(message({"m", "--enable-auto-tool-choice"}), HasSubstr("--tool-call-parser"));
  EXPECT_EQ(message({"m", "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder"}), "ok");
  EXPECT_THAT(message({"m", "--enable-log-outputs"}), HasSubstr("--enable-log-requests"));
  EXPECT_THAT(message({"m", "--max-num-seqs", "16", "--max-num-batched-tokens", "7"}), HasSubstr("7 is below"));
  EXPECT_EQ(message({"m", "--max-num-batched-tokens", "7"}), "ok");
  EXPECT_THAT(message({"m", "--skip-tokenizer-init"}, Command::kChat), HasSubstr("tokenizer"));
}

TEST(Environment, Variables_ReachOptionsAndTheReport) {
  Options options;
  const auto report = ApplyEnvironment({{"HCCL_BUFFSIZE", "1024"},
                                        {"OMP_NUM_THREADS", "1"},
                                        {"PATH", "/bin"},
                                        {"VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"},
                                        {"VLLM_API_KEY", "sesame"},
                                        {"VLLM_ASCEND_ENABLE_FUSED_MC2", "1"},
                                        {"VLLM_CPU_KVCACHE_SPACE", "4"},
                                        {"VLLM_CPU_OMP_THREADS_BIND", "0-1"},
                                        {"VLLM_SOMETHING_NEW", "1"}},
                                       &options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(options.kvcache_space_gib, 4);
  EXPECT_EQ(options.threads_bind, "0-1");
  EXPECT_TRUE(options.allow_long_max_model_len);
  EXPECT_THAT(options.api_key, ElementsAre("sesame"));
  EXPECT_THAT(report->acting, Contains("VLLM_API_KEY=(hidden)"));
  EXPECT_THAT(report->without_effect, ElementsAre(StartsWith("HCCL_BUFFSIZE=1024: "), StartsWith("OMP_NUM_THREADS=1: "),
                                                  StartsWith("VLLM_ASCEND_ENABLE_FUSED_MC2=1: "), StartsWith("VLLM_SOMETHING_NEW=1: ")));
  EXPECT_EQ(options.num_threads, 0) << "OMP_NUM_THREADS must not shrink the pool";
}

TEST(Environment, MalformedNumber_NamesTheVariable) {
  Options options;
  const auto report = ApplyEnvironment({{"VLLM_CPU_KVCACHE_SPACE", "lots"}}, &options);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("VLLM_CPU_KVCACHE_SPACE"));
}

}  // namespace
}  // namespace avocet::cli
