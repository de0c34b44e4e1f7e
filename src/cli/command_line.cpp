#include "cli/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "base/printable.h"
#include "cli/human_number.h"
#include "cli/json_text.h"

namespace avocet::cli {
namespace {

// CLI11 takes values in brackets apart ("[a,b]") and drops empty ones, which would damage JSON lists and empty texts. So every value
// travels behind a guard character and is stripped of it before it is converted.
constexpr char kGuard = '=';

bool IsOneOf(std::string_view choices, std::string_view value) {
  const std::vector<std::string_view> words = SplitWords(choices, '|');
  return std::find(words.begin(), words.end(), value) != words.end();
}

bool IsHuman(FlagKind kind) {
  return kind == FlagKind::kHumanInt || kind == FlagKind::kAutoInt;
}

std::string Wrong(const FlagSpec& flag, std::string_view value) {
  return fmt::format("--{} takes {}, got '{}'", flag.name, DescribeValue(flag), Printable(value));
}

std::string CheckInteger(const FlagSpec& flag, const std::string& text) {
  if (flag.kind == FlagKind::kAutoInt && text == "auto") return "";
  const Result<int64_t> value = ParseHumanInt(text);
  const bool has_suffix = !text.empty() && (text.back() < '0' || text.back() > '9');
  if (!value && IsHuman(flag.kind)) return fmt::format("--{}: {}", flag.name, value.error().message);
  if (!value || (has_suffix && !IsHuman(flag.kind))) return Wrong(flag, text);
  if (static_cast<double>(*value) < flag.min || static_cast<double>(*value) > flag.max) return Wrong(flag, text);
  return flag.kind == FlagKind::kAutoInt && *value == 0 ? Wrong(flag, text) : "";
}

std::string CheckFloat(const FlagSpec& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_whole = !text.empty() && *end == '\0' && std::isspace(static_cast<unsigned char>(text[0])) == 0;
  return is_whole && std::isfinite(value) && value >= flag.min && value <= flag.max ? "" : Wrong(flag, text);
}

// Empty if the text is a value of the flag, else the message.
std::string CheckValue(const FlagSpec& flag, const std::string& text) {
  if (text.find('\0') != std::string::npos) return Wrong(flag, text);
  if (!flag.choices.empty() && !IsOneOf(flag.choices, text)) return Wrong(flag, text);
  switch (flag.kind) {
    case FlagKind::kInt:
    case FlagKind::kHumanInt:
    case FlagKind::kAutoInt: return CheckInteger(flag, text);
    case FlagKind::kFloat: return CheckFloat(flag, text);
    case FlagKind::kJsonList: {
      const Result<Json> json = ParseJson(text);
      if (!json) return fmt::format("--{}: {}", flag.name, json.error().message);
      return json->is_array() ? "" : Wrong(flag, text);
    }
    case FlagKind::kBool:
    case FlagKind::kText:
    case FlagKind::kTextList:
    case FlagKind::kJson: return "";
  }
  return "";
}

// The text that CLI11 converts: digits for human-readable integers.
std::string Plain(const FlagSpec& flag, const std::string& text) {
  if (flag.kind == FlagKind::kAutoInt && text == "auto") return "-1";
  if (!IsHuman(flag.kind) && flag.kind != FlagKind::kInt) return text;
  const Result<int64_t> value = ParseHumanInt(text);
  return value ? fmt::format("{}", *value) : text;
}

template <typename Member>
CLI::Option* AddTo(CLI::App& app, const std::string& name, Options& options, Member member) {
  return app.add_option(name, options.*member);
}

CLI::Option* AddTo(CLI::App& app, const std::string& name, Options& /*options*/, std::monostate /*none*/) {
  return app.add_option_function<std::vector<std::string>>(name, [](const std::vector<std::string>&) {});
}

void Bind(CLI::App& app, const FlagSpec& flag, Options& options) {
  CLI::Option* option = std::visit([&](auto member) { return AddTo(app, fmt::format("--{}", flag.name), options, member); }, flag.target);
  option->transform([&flag](const std::string& guarded) { return Plain(flag, guarded.substr(1)); });
  option->expected(1, flag.kind == FlagKind::kTextList ? -1 : 1);
}

// What was given in CLI11's words, last first, as its parse() wants them.
std::vector<std::string> GuardedWords(const Arguments& arguments) {
  std::vector<std::string> words;
  for (const Argument& argument : arguments.arguments) {
    for (const std::string& value : argument.values) words.push_back(fmt::format("--{}={}{}", argument.flag->name, kGuard, value));
  }
  std::reverse(words.begin(), words.end());
  return words;
}

bool IsDefault(const Argument& argument) {
  const FlagSpec& flag = *argument.flag;
  if (argument.values.size() != 1) return false;
  const std::string& value = argument.values[0];
  if (IsBool(flag)) return value == (flag.default_text.empty() ? "false" : flag.default_text);
  if (value == flag.default_text) return true;
  if (flag.kind == FlagKind::kFloat && !flag.default_text.empty()) {
    return std::strtod(value.c_str(), nullptr) == std::strtod(std::string(flag.default_text).c_str(), nullptr);
  }
  return (flag.kind == FlagKind::kInt || IsHuman(flag.kind)) && Plain(flag, value) == flag.default_text;
}

Result<void> CheckOffered(const Argument& argument) {
  const FlagSpec& flag = *argument.flag;
  if (IsDefault(argument)) return {};
  if (flag.effect == FlagEffect::kRefused) {
    return Fail(Errc::kUnsupported, "--{} is not offered: {}", flag.name, flag.reason);
  }
  for (const std::string& value : argument.values) {
    if (flag.offered.empty() || IsOneOf(flag.offered, value)) continue;
    return Fail(Errc::kUnsupported, "--{} {} is not offered: {}", flag.name, Printable(value), flag.reason);
  }
  return {};
}

// Keys that the reference platform knows; others are probably misspelt.
void CheckAdditionalConfig(Arguments* arguments) {
  constexpr std::string_view kKnown =
      "enable_cpu_binding|enable_fused_mc2|multistream_overlap_shared_expert|enable_shared_expert_dp|mega_moe_max_tokens|eplb_config|"
      "rejection_sampler_config|enable_reduce_sample|ascend_compilation_config|finegrained_tp_config|weight_nz_mode|enable_prefill_mc2|"
      "scheduler_config|enable_mlapo|recompute_scheduler_enable";
  for (const Argument& argument : arguments->arguments) {
    if (argument.flag->name != "additional-config") continue;
    const Result<Json> json = ParseJson(argument.values[0]);
    if (!json) continue;
    for (const auto& [key, value] : json->items()) {
      if (!IsOneOf(kKnown, key)) arguments->warnings.push_back(fmt::format("--additional-config: the key {} is not known", Printable(key)));
    }
  }
}

bool IsSecret(const FlagSpec& flag) {
  return flag.name == "api-key" || flag.name == "hf-token";
}

std::string ShownValue(const Argument& argument) {
  if (IsSecret(*argument.flag)) return "(hidden)";
  std::string shown;
  for (const std::string& value : argument.values) shown += (shown.empty() ? "" : " ") + Printable(value, 200);
  return shown;
}

}  // namespace

Result<CommandLine> ParseCommandLine(Command command, std::span<const std::string> args) {
  CommandLine line{.command = command, .options = {}, .arguments = {}};
  AVOCET_TRY(line.arguments, ParseArguments(command, args));
  if (line.arguments.help_topic || line.arguments.version) return line;
  for (const Argument& argument : line.arguments.arguments) {
    for (const std::string& value : argument.values) {
      if (const std::string wrong = CheckValue(*argument.flag, value); !wrong.empty()) return Fail(Errc::kInvalidArgument, "{}", wrong);
    }
  }

  CLI::App app;
  app.set_help_flag();
  try {
    for (const FlagGroup& group : FlagGroups()) {
      if (!group.Has(command)) continue;
      for (const FlagSpec& flag : group.flags) {
        if (FindFlag(command, flag.name) == &flag) Bind(app, flag, line.options);
      }
    }
    app.parse(GuardedWords(line.arguments));
  } catch (const CLI::Error& error) {
    return Fail(Errc::kInvalidArgument, "{}", Printable(error.what(), 300));
  }
  for (const Argument& argument : line.arguments.arguments) AVOCET_TRY_VOID(CheckOffered(argument));
  CheckAdditionalConfig(&line.arguments);
  return line;
}

std::vector<std::string> NonDefaultArguments(const Arguments& arguments) {
  std::vector<std::string> lines;
  for (const Argument& argument : arguments.arguments) {
    if (!IsDefault(argument)) lines.push_back(fmt::format("{}={}", argument.flag->name, ShownValue(argument)));
  }
  return lines;
}

std::vector<std::string> ArgumentsWithoutEffect(const Arguments& arguments) {
  std::vector<std::string> lines;
  for (const Argument& argument : arguments.arguments) {
    const FlagSpec& flag = *argument.flag;
    if (flag.effect != FlagEffect::kNone || IsDefault(argument)) continue;
    const bool is_negated = IsBool(flag) && argument.values[0] == "false";
    const std::string value = IsBool(flag) ? "" : " " + ShownValue(argument);
    lines.push_back(fmt::format("--{}{}{}: {}", is_negated ? "no-" : "", flag.name, value, flag.reason));
  }
  return lines;
}

}  // namespace avocet::cli
