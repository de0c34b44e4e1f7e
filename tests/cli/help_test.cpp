#include "cli/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/flag_table.h"

namespace avocet::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Command kCommands[] = {Command::kServe, Command::kChat, Command::kInspect, Command::kBenchLatency, Command::kBenchThroughput};

TEST(Help, All_ExplainsEveryFlagOfTheCommand) {
  for (const Command command : kCommands) {
    const std::string page = CommandHelp(command, "all");
    for (const FlagGroup& group : FlagGroups()) {
      if (!group.Has(command)) continue;
      for (const FlagSpec& flag : group.flags) EXPECT_THAT(page, HasSubstr(fmt::format("  --{}", flag.name)));
    }
  }
}

TEST(Help, Overview_NamesGroupsAndExamples) {
  const std::string page = CommandHelp(Command::kServe, "");
  EXPECT_THAT(page, HasSubstr("usage: avocet serve"));
  EXPECT_THAT(page, HasSubstr("--help=memory"));
  EXPECT_THAT(page, HasSubstr("Exit codes"));
  EXPECT_THAT(page, HasSubstr("--max-model-len"));
}

TEST(Help, Group_ByEitherName) {
  EXPECT_EQ(CommandHelp(Command::kServe, "memory"), CommandHelp(Command::kServe, "CacheConfig"));
  EXPECT_THAT(CommandHelp(Command::kServe, "memory"), HasSubstr("--kv-cache-memory-bytes"));
  EXPECT_THAT(CommandHelp(Command::kServe, "memory"), Not(HasSubstr("--api-key")));
}

TEST(Help, Flag_InAnySpelling) {
  for (const char* topic : {"max-model-len", "max_model_len", "--max-model-len", "MAX-MODEL-LEN"}) {
    EXPECT_THAT(CommandHelp(Command::kServe, topic), HasSubstr("Longest sequence")) << topic;
  }
  EXPECT_THAT(CommandHelp(Command::kServe, "-tp"), HasSubstr("--tensor-parallel-size"));
  EXPECT_THAT(CommandHelp(Command::kServe, "prefill"), HasSubstr("--enable-chunked-prefill"));
  EXPECT_THAT(CommandHelp(Command::kServe, "tensor-parallel-size"), HasSubstr("Accepted without effect"));
  EXPECT_THAT(CommandHelp(Command::kServe, "environment"), HasSubstr("VLLM_CPU_KVCACHE_SPACE"));
}

TEST(Help, SharedAlias_StandsAtTheFlagThatHasIt) {
  EXPECT_THAT(CommandHelp(Command::kChat, "all"), HasSubstr("--quick, -q"));
  EXPECT_THAT(CommandHelp(Command::kChat, "all"), Not(HasSubstr("--quantization, -q")));
  EXPECT_THAT(CommandHelp(Command::kServe, "all"), HasSubstr("--quantization, -q"));
}

TEST(Help, UnknownTopic_SaysSo) {
  for (const char* topic : {"zzz", "-", "--", "\x1b[31m", "="})
    EXPECT_THAT(CommandHelp(Command::kServe, topic), HasSubstr("No flag or group")) << topic;
  EXPECT_THAT(CommandHelp(Command::kServe, "\x1b[31m"), Not(HasSubstr("\x1b")));
}

TEST(Help, Lines_FitATerminal) {
  for (const Command command : kCommands) {
    for (const char* topic : {"", "all", "environment"}) {
      const std::string page = CommandHelp(command, topic);
      for (const std::string_view line : SplitWords(page, '\n')) EXPECT_LE(line.size(), 130u) << line;
    }
  }
}

}  // namespace
}  // namespace avocet::cli
