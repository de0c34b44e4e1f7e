// Both deployment profiles are scripts in examples/; their command lines and environments are parsed here word by word.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command_line.h"
#include "cli/environment.h"
#include "cli/json_text.h"

namespace avocet::cli {
namespace {

using testing::Contains;
using testing::StartsWith;

// Runs the script with a stand-in for the binary that writes its words and environment, each ended by a NUL.
struct ScriptRun {
  std::vector<std::string> words;
  Environment environment;
};

ScriptRun RunScript(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("avocet-" + name);
  std::filesystem::create_directories(folder);
  const std::string stand_in = (folder / "stand-in").string();
  std::ofstream(stand_in) << "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done\nprintf '\\0'\nenv -0\n";
  std::filesystem::permissions(stand_in, std::filesystem::perms::owner_all);
  const std::string command = fmt::format("AVOCET='{}' AVOCET_MODEL=models/demo '{}/examples/{}'", stand_in, AVOCET_SOURCE_DIR, name);
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << name;
  std::filesystem::remove_all(folder);

  ScriptRun run;
  size_t at = 0;
  const auto next = [&] {
    const size_t end = text.find('\0', at);
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    return part;
  };
  for (std::string word = next(); !word.empty(); word = next()) run.words.push_back(word);
  while (at < text.size()) {
    const std::string entry = next();
    run.environment.emplace_back(entry.substr(0, entry.find('=')), entry.substr(entry.find('=') + 1));
  }
  return run;
}

class Examples : public testing::TestWithParam<std::string> {};

TEST_P(Examples, CommandLine_IsKnownWordForWord) {
  const ScriptRun run = RunScript(GetParam());
  ASSERT_GT(run.words.size(), 20u);
  ASSERT_EQ(run.words[0], "serve");
  const auto line = ParseCommandLine(Command::kServe, std::vector<std::string>(run.words.begin() + 1, run.words.end()));
  ASSERT_TRUE(line) << line.error().message;
  EXPECT_TRUE(CheckOptions(Command::kServe, line->options));
  EXPECT_TRUE(line->arguments.warnings.empty());
  const Options& options = line->options;
  EXPECT_EQ(options.model, "models/demo");
  EXPECT_EQ(options.served_model_name, std::vector<std::string>{"qwen3.5"});
  EXPECT_EQ(options.host, "0.0.0.0");
  EXPECT_EQ(options.port, 8010);
  EXPECT_EQ(options.max_model_len, 5000);
  EXPECT_EQ(options.max_num_batched_tokens, 16384);
  EXPECT_EQ(options.max_num_seqs, 128);
  EXPECT_EQ(options.gpu_memory_utilization, 0.9);
  EXPECT_EQ(options.quantization, "ascend");

  // What has no effect is said, every one by name.
  const std::vector<std::string> lines = ArgumentsWithoutEffect(line->arguments);
  for (const char* name : {"--tensor-parallel-size 16", "--enable-expert-parallel", "--compilation-config", "--trust-remote-code",
                           "--async-scheduling", "--allowed-local-media-path /", "--mm-processor-cache-gb 0", "--additional-config"}) {
    EXPECT_THAT(lines, Contains(StartsWith(name)));
  }
  for (const Argument& argument : line->arguments.arguments) {
    if (argument.flag->name != "speculative-config") continue;
    EXPECT_EQ(Json::parse(argument.values[0])["num_speculative_tokens"], 3);
  }
}

TEST_P(Examples, Environment_DoesNotShrinkThePool) {
  const ScriptRun run = RunScript(GetParam());
  Options options;
  const auto report = ApplyEnvironment(run.environment, &options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(options.num_threads, 0);
  EXPECT_THAT(report->without_effect, Contains(StartsWith("OMP_NUM_THREADS=1: ")));
  EXPECT_THAT(report->without_effect, Contains(StartsWith("HCCL_BUFFSIZE=1024: ")));
  EXPECT_THAT(report->without_effect, Contains(StartsWith("VLLM_ASCEND_ENABLE_FUSED_MC2=1: ")));
}

INSTANTIATE_TEST_SUITE_P(Profiles, Examples, testing::Values("low_latency.sh", "high_throughput.sh"),
                         [](const auto& profile) { return profile.param.substr(0, profile.param.size() - 3); });

}  // namespace
}  // namespace avocet::cli
