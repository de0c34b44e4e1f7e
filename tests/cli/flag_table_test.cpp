#include "cli/flag_table.h"

#include <set>

#include <gtest/gtest.h>

#include "cli/arguments.h"
#include "cli/command_line.h"

namespace avocet::cli {
namespace {

constexpr Command kCommands[] = {Command::kServe, Command::kChat, Command::kInspect, Command::kBenchLatency, Command::kBenchThroughput};

bool HasTarget(const FlagSpec& flag) {
  return !std::holds_alternative<std::monostate>(flag.target);
}

TEST(FlagTable, EveryFlag_ActsOrSaysWhyNot) {
  const std::set<std::string_view> by_parser = {"config", "help", "version"};
  for (const FlagGroup& group : FlagGroups()) {
    for (const FlagSpec& flag : group.flags) {
      EXPECT_FALSE(flag.help.empty()) << flag.name;
      if (flag.effect == FlagEffect::kActs) {
        EXPECT_TRUE(HasTarget(flag) || by_parser.contains(flag.name)) << flag.name << " is parsed and forgotten";
      } else {
        EXPECT_FALSE(flag.reason.empty()) << flag.name;
      }
      EXPECT_TRUE(flag.offered.empty() || !flag.reason.empty()) << flag.name;
      EXPECT_EQ(flag.name.find('_'), std::string_view::npos) << flag.name;
      EXPECT_FALSE(flag.reason.ends_with('.')) << flag.name;
    }
  }
}

TEST(FlagTable, EverySpelling_IsUniquePerCommand) {
  for (const Command command : kCommands) {
    std::set<std::string> seen;
    for (const FlagGroup& group : FlagGroups()) {
      if (!group.Has(command)) continue;
      for (const FlagSpec& flag : group.flags) EXPECT_TRUE(seen.insert(std::string(flag.name)).second) << flag.name;
    }
  }
  // The one alias with two meanings: the order of the groups decides.
  EXPECT_EQ(FindAlias(Command::kServe, "-q")->name, "quantization");
  EXPECT_EQ(FindAlias(Command::kChat, "-q")->name, "quick");
}

TEST(FlagTable, EveryDefault_IsAValueOfItsFlag) {
  for (const Command command : kCommands) {
    for (const FlagGroup& group : FlagGroups()) {
      if (!group.Has(command)) continue;
      for (const FlagSpec& flag : group.flags) {
        if (flag.default_text.empty()) continue;
        const std::string word = fmt::format("--{}={}", flag.name, flag.default_text);
        const auto line = ParseCommandLine(command, std::vector<std::string>{word});
        ASSERT_TRUE(line) << word << ": " << line.error().message;
        EXPECT_TRUE(NonDefaultArguments(line->arguments).empty()) << word;
        EXPECT_TRUE(ArgumentsWithoutEffect(line->arguments).empty()) << word;
      }
    }
  }
}

TEST(FlagTable, EveryOfferedChoice_IsAChoice) {
  for (const FlagGroup& group : FlagGroups()) {
    for (const FlagSpec& flag : group.flags) {
      const std::vector<std::string_view> choices = SplitWords(flag.choices, '|');
      const std::set<std::string_view> known(choices.begin(), choices.end());
      for (const std::string_view offered : SplitWords(flag.offered, '|'))
        EXPECT_TRUE(known.contains(offered)) << flag.name << " " << offered;
    }
  }
}

TEST(FlagTable, TypoInAName_Suggests) {
  EXPECT_EQ(SuggestFlag(Command::kServe, "--max-num-sqs"), "--max-num-seqs");
  EXPECT_EQ(SuggestFlag(Command::kServe, "--tensor-paralel-size"), "--tensor-parallel-size");
  EXPECT_EQ(SuggestFlag(Command::kServe, "--max-modle-len"), "--max-model-len");
  EXPECT_EQ(SuggestFlag(Command::kServe, "--gpu-memory"), "--gpu-memory-utilization");
  EXPECT_EQ(SuggestFlag(Command::kServe, "--no-enable-prefix-cachng"), "--no-enable-prefix-caching");
  EXPECT_EQ(SuggestFlag(Command::kServe, "--completely-different-thing"), "");
  EXPECT_EQ(SuggestFlag(Command::kServe, std::string(100000, 'x')), "");
}

}  // namespace
}  // namespace avocet::cli
