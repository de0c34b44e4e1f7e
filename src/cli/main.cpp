// The program: a word, its command line, and what runs it.
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/printable.h"
#include "cli/bench.h"
#include "cli/chat.h"
#include "cli/command_line.h"
#include "cli/environment.h"
#include "cli/help.h"
#include "cli/inspect.h"
#include "cli/serve.h"

namespace avocet::cli {
namespace {

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kWrongUse = 2;

int Complain(int code, std::string_view message) {
  fmt::print(stderr, "avocet: {}\n", message);
  return code;
}

// The command and how many words name it; nothing for a word that is none.
std::optional<std::pair<Command, size_t>> FindCommand(const std::vector<std::string>& words) {
  if (words[0] == "serve") return std::pair(Command::kServe, size_t{1});
  if (words[0] == "chat") return std::pair(Command::kChat, size_t{1});
  if (words[0] == "inspect") return std::pair(Command::kInspect, size_t{1});
  if (words[0] == "bench" && words.size() > 1 && words[1] == "latency") return std::pair(Command::kBenchLatency, size_t{2});
  if (words[0] == "bench" && words.size() > 1 && words[1] == "throughput") return std::pair(Command::kBenchThroughput, size_t{2});
  return std::nullopt;
}

int NoCommand(const std::vector<std::string>& words) {
  const std::string& word = words[0];
  if (word == "bench" && words.size() > 1 && (words[1] == "--help" || words[1] == "-h")) {
    fmt::print("{}", ProgramHelp());
    return kOk;
  }
  if (word == "bench") {
    const std::string what = words.size() > 1 ? fmt::format("'{}' is not offered", Printable(words[1])) : "a word is missing";
    return Complain(kWrongUse, fmt::format("bench: {}; it is 'avocet bench latency' or 'avocet bench throughput'", what));
  }
  for (const std::string_view later : {"complete", "run-batch", "collect-env", "launch"}) {
    if (word == later) return Complain(kFailed, fmt::format("'{}' is not offered; avocet --help lists what is", later));
  }
  return Complain(kWrongUse, fmt::format("there is no word '{}'; avocet --help lists them", Printable(word)));
}

LogLevel LevelOf(const Options& options) {
  const std::string& level = options.logging_level;
  if (level == "DEBUG" || level == "debug") return LogLevel::kDebug;
  if (level == "WARNING" || level == "warning" || level == "WARN") return LogLevel::kWarning;
  if (level == "ERROR" || level == "error" || level == "CRITICAL") return LogLevel::kError;
  return LogLevel::kInfo;
}

int Run(const CommandLine& line, const EnvReport& report, const Environment& environment) {
  switch (line.command) {
    case Command::kServe: return Serve(line, report, environment);
    case Command::kChat: return Chat(line, environment);
    case Command::kInspect: return Inspect(line, environment);
    case Command::kBenchLatency: return BenchLatency(line, environment);
    case Command::kBenchThroughput: return BenchThroughput(line, environment);
  }
  return kFailed;
}

int Main(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    fmt::print("{}", ProgramHelp());
    return words.empty() ? kWrongUse : kOk;
  }
  if (words[0] == "--version" || words[0] == "-v" || words[0] == "version") {
    fmt::print("avocet {}\n", AVOCET_VERSION);
    return kOk;
  }
  const auto command = FindCommand(words);
  if (!command) return NoCommand(words);

  const std::span<const std::string> rest(words.begin() + static_cast<ptrdiff_t>(command->second), words.end());
  Result<CommandLine> line = ParseCommandLine(command->first, rest);
  if (!line) return Complain(line.error().code == Errc::kInvalidArgument ? kWrongUse : kFailed, line.error().message);
  if (line->arguments.help_topic) {
    fmt::print("{}", CommandHelp(command->first, *line->arguments.help_topic));
    return kOk;
  }
  if (line->arguments.version) return Main({"--version"});

  const Environment environment = CurrentEnvironment();
  const Result<EnvReport> report = ApplyEnvironment(environment, &line->options);
  if (!report) return Complain(kFailed, report.error().message);
  if (const Result<void> checked = CheckOptions(command->first, line->options); !checked) return Complain(kFailed, checked.error().message);
  InitLog(LevelOf(line->options));
  for (const std::string& warning : line->arguments.warnings) LogWarning("{}", warning);
  return Run(*line, *report, environment);
}

}  // namespace
}  // namespace avocet::cli

int main(int argc, char** argv) {
  return avocet::cli::Main(std::vector<std::string>(argv + 1, argv + argc));
}
