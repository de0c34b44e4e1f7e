#include "cli/flag_table.h"

#include <algorithm>
#include <array>

namespace avocet::cli {
namespace {

constexpr auto kAllCommands =
    std::to_array({Command::kServe, Command::kChat, Command::kInspect, Command::kBenchLatency, Command::kBenchThroughput});
constexpr auto kServeOnly = std::to_array({Command::kServe});
constexpr auto kChatOnly = std::to_array({Command::kChat});
constexpr auto kInspectOnly = std::to_array({Command::kInspect});
constexpr auto kLatencyOnly = std::to_array({Command::kBenchLatency});
constexpr auto kThroughputOnly = std::to_array({Command::kBenchThroughput});

// Acted on by the parser itself.
constexpr auto kGeneral = std::to_array<FlagSpec>({
    {.name = "config",
     .help = "YAML file with flags as keys (dashes or underscores). A nested mapping is a JSON value, true a bare flag, a list repeated "
             "values, model the MODEL. What the command line says comes first."},
    {.name = "help", .help = "This page; --help=all: every flag; --help=GROUP or --help=FLAG: that group or flag."},
    {.name = "version", .kind = FlagKind::kBool, .help = "Print the version and end."},
});

// Groups in the order of help. The first match wins where two groups of one command share an alias: -q is --quick in chat.
const std::vector<FlagGroup>& Groups() {
  static const std::vector<FlagGroup> groups = {
      {"general", "General", "Help and files", kAllCommands, kGeneral},
      {"chat", "Chat", "Conversation", kChatOnly, internal::ChatFlags()},
      {"inspect", "Inspect", "What to show", kInspectOnly, internal::InspectFlags()},
      {"latency", "Latency", "What to measure", kLatencyOnly, internal::LatencyFlags()},
      {"throughput", "Throughput", "What to measure", kThroughputOnly, internal::ThroughputFlags()},
      {"model", "ModelConfig", "The model and its files", kAllCommands, internal::ModelFlags()},
      {"machine", "DeviceConfig", "The machine", kAllCommands, internal::MachineFlags()},
      {"memory", "CacheConfig", "Memory: context, caches", kAllCommands, internal::MemoryFlags()},
      {"scheduler", "SchedulerConfig", "What runs in a step", kAllCommands, internal::SchedulerFlags()},
      {"http", "Frontend", "HTTP", kServeOnly, internal::HttpFlags()},
      {"api", "ApiConfig", "The API: names, templates, answers", kServeOnly, internal::ApiFlags()},
      {"logs", "ObservabilityConfig", "Logs", kServeOnly, internal::LogFlags()},
      {"multimodal", "MultiModalConfig", "Pictures", kAllCommands, internal::MultimodalFlags()},
      {"parallel", "ParallelConfig", "Ranks and replicas", kAllCommands, internal::ParallelFlags()},
      {"features", "VllmConfig", "Drafts, captured execution, adapters, tracing", kAllCommands, internal::FeatureFlags()},
  };
  return groups;
}

bool HasSpelling(std::string_view aliases, std::string_view spelling) {
  const std::vector<std::string_view> words = SplitWords(aliases, ' ');
  return std::find(words.begin(), words.end(), spelling) != words.end();
}

// Edits (insert, delete, replace, swap neighbours) between two words; both are short.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

// Spellings with their dashes, as a user would type them.
std::vector<std::string> Spellings(const FlagSpec& flag) {
  std::vector<std::string> spellings = {fmt::format("--{}", flag.name)};
  if (IsBool(flag)) spellings.push_back(fmt::format("--no-{}", flag.name));
  for (const std::string_view alias : SplitWords(flag.aliases, ' ')) spellings.emplace_back(alias);
  return spellings;
}

}  // namespace

std::vector<std::string_view> SplitWords(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

bool FlagGroup::Has(Command command) const {
  return std::find(commands.begin(), commands.end(), command) != commands.end();
}

std::span<const FlagGroup> FlagGroups() {
  return Groups();
}

const FlagSpec* FindFlag(Command command, std::string_view name) {
  for (const FlagGroup& group : Groups()) {
    if (!group.Has(command)) continue;
    for (const FlagSpec& flag : group.flags) {
      if (flag.name == name) return &flag;
    }
  }
  return nullptr;
}

const FlagSpec* FindAlias(Command command, std::string_view spelling) {
  for (const FlagGroup& group : Groups()) {
    if (!group.Has(command)) continue;
    for (const FlagSpec& flag : group.flags) {
      if (HasSpelling(flag.aliases, spelling)) return &flag;
    }
  }
  return nullptr;
}

std::vector<Command> CommandsOf(std::string_view name) {
  std::vector<Command> commands;
  for (const Command command : kAllCommands) {
    if (FindFlag(command, name) != nullptr) commands.push_back(command);
  }
  return commands;
}

std::string SuggestFlag(Command command, std::string_view name) {
  // A typo changes a few letters; an abbreviation leaves out the end.
  constexpr size_t kNameBytesMax = 64;
  if (name.size() > kNameBytesMax) return {};
  const size_t edits_max = std::max<size_t>(2, name.size() / 5);
  std::string best;
  size_t best_distance = edits_max + 1;
  for (const FlagGroup& group : Groups()) {
    if (!group.Has(command)) continue;
    for (const FlagSpec& flag : group.flags) {
      for (const std::string& spelling : Spellings(flag)) {
        const bool is_beginning = name.size() >= 6 && std::string_view(spelling).starts_with(name);
        const size_t distance = is_beginning ? 1 : EditDistance(name, spelling);
        if (distance < best_distance && distance < spelling.size() - 2) {
          best_distance = distance;
          best = spelling;
        }
      }
    }
  }
  return best;
}

bool IsBool(const FlagSpec& flag) {
  return flag.kind == FlagKind::kBool;
}

std::string DescribeValue(const FlagSpec& flag) {
  const bool has_range = flag.kind != FlagKind::kBool && flag.max < 9e18;
  switch (flag.kind) {
    case FlagKind::kBool: return "no value, or true or false after '='";
    case FlagKind::kInt:
      if (!flag.choices.empty()) break;
      return has_range ? fmt::format("an integer from {:.0f} to {:.0f}", flag.min, flag.max) : "an integer";
    case FlagKind::kHumanInt:
      return has_range ? fmt::format("an integer from {:.0f} to {:.0f}, also as 4k or 4K", flag.min, flag.max)
                       : fmt::format("an integer from {:.0f} on, also as 4k or 4K", flag.min);
    case FlagKind::kAutoInt: return "an integer from 1 on, also as 4k or 4K, or auto";
    case FlagKind::kFloat: return fmt::format("a number from {} to {}", flag.min, flag.max);
    case FlagKind::kText:
    case FlagKind::kTextList: break;
    case FlagKind::kJson: return "a JSON object, or pieces as --flag.key VALUE";
    case FlagKind::kJsonList: return "a JSON list";
  }
  if (flag.choices.empty()) return "a text";
  std::string text = "one of ";
  for (const std::string_view choice : SplitWords(flag.choices, '|')) {
    if (text.size() > 7) text += ", ";
    text += choice;
  }
  return text;
}

std::string Placeholder(const FlagSpec& flag) {
  const std::string_view shown = flag.offered.empty() ? flag.choices : flag.offered;
  if (!shown.empty() && shown.size() <= 40) return std::string(shown);
  switch (flag.kind) {
    case FlagKind::kBool: return {};
    case FlagKind::kInt:
    case FlagKind::kHumanInt: return "N";
    case FlagKind::kAutoInt: return "N|auto";
    case FlagKind::kFloat: return "X";
    case FlagKind::kText: return "TEXT";
    case FlagKind::kTextList: return "TEXT [TEXT...]";
    case FlagKind::kJson: return "JSON";
    case FlagKind::kJsonList: return "JSON-LIST";
  }
  return {};
}

}  // namespace avocet::cli
