// The one table of every flag: spelling, type, default, what it does, and whether it acts. Parser, help, YAML file and start-up report
// all read it, so that a flag cannot be parsed and forgotten: it acts (it has a target in Options), or it is accepted without effect
// and says why at every start that uses it, or it is refused by name.
// Constant data; any thread may read it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/options.h"

namespace avocet::cli {

enum class FlagKind : uint8_t {
  kBool,      // --x, --no-x
  kInt,       // plain digits
  kHumanInt,  // 4096, 4k, 4K
  kAutoInt,   // as kHumanInt, and auto = -1
  kFloat,
  kText,
  kTextList,  // one or more values; a repeated flag replaces
  kJson,      // an object, as JSON text or in dotted pieces
  kJsonList,  // a JSON list
};

enum class FlagEffect : uint8_t {
  kActs,
  kNone,     // accepted; `reason` says why nothing happens, and the start-up report repeats it
  kRefused,  // known, not offered; `reason` says what to do instead
};

using FlagTarget = std::variant<std::monostate, bool Options::*, int32_t Options::*, int64_t Options::*, double Options::*,
                                std::string Options::*, std::vector<std::string> Options::*, std::optional<int32_t> Options::*,
                                std::optional<int64_t> Options::*, std::optional<double> Options::*>;

struct FlagSpec {
  std::string_view name;  // the long spelling, with dashes, without the leading two
  FlagKind kind = FlagKind::kText;
  std::string_view aliases = {};       // further spellings with their dashes, separated by spaces: "-tp --model-name"
  std::string_view default_text = {};  // a value equal to it has no effect worth reporting
  std::string_view choices = {};       // "a|b|c"; empty: any
  std::string_view offered = {};       // the choices that act, where not all do; others are refused with `reason`
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  FlagTarget target = {};
  FlagEffect effect = FlagEffect::kActs;
  std::string_view reason = {};
  std::string_view help = {};
};

// Flags that belong together, and the commands that take them.
struct FlagGroup {
  std::string_view name;            // --help=memory
  std::string_view reference_name;  // --help=CacheConfig, the name in vllm serve
  std::string_view title;
  std::span<const Command> commands;
  std::span<const FlagSpec> flags;

  bool Has(Command command) const;
};

std::span<const FlagGroup> FlagGroups();

// By long spelling ("max-model-len"), or by an alias with its dashes ("-tp").
const FlagSpec* FindFlag(Command command, std::string_view name);
const FlagSpec* FindAlias(Command command, std::string_view spelling);
// The commands that know the flag, for "that is a flag of ...".
std::vector<Command> CommandsOf(std::string_view name);
// The known spelling closest to `name`, or empty when none is close.
std::string SuggestFlag(Command command, std::string_view name);

// "an integer", "one of a, b": what a value must look like.
std::string DescribeValue(const FlagSpec& flag);
// The word that stands for the value in help: "N", "TEXT", "auto|bfloat16".
std::string Placeholder(const FlagSpec& flag);
bool IsBool(const FlagSpec& flag);

std::vector<std::string_view> SplitWords(std::string_view text, char separator);

namespace internal {
// Parts of the table, one file each.
std::span<const FlagSpec> ModelFlags();
std::span<const FlagSpec> MachineFlags();
std::span<const FlagSpec> MemoryFlags();
std::span<const FlagSpec> SchedulerFlags();
std::span<const FlagSpec> ParallelFlags();
std::span<const FlagSpec> FeatureFlags();
std::span<const FlagSpec> MultimodalFlags();
std::span<const FlagSpec> HttpFlags();
std::span<const FlagSpec> ApiFlags();
std::span<const FlagSpec> LogFlags();
std::span<const FlagSpec> ChatFlags();
std::span<const FlagSpec> InspectFlags();
std::span<const FlagSpec> LatencyFlags();
std::span<const FlagSpec> ThroughputFlags();
}  // namespace internal

}  // namespace avocet::cli
