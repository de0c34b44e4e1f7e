#include "cli/help.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/printable.h"
#include "cli/environment.h"
#include "cli/flag_table.h"

namespace avocet::cli {
namespace {

constexpr size_t kWidth = 96;

// Appends `text` in lines of at most kWidth columns, each behind `indent` spaces.
void AppendWrapped(std::string_view text, size_t indent, std::string* out) {
  std::string line(indent, ' ');
  bool is_empty = true;
  for (const std::string_view word : SplitWords(text, ' ')) {
    if (!is_empty && line.size() + 1 + word.size() > kWidth) {
      *out += line + "\n";
      line.assign(indent, ' ');
      is_empty = true;
    }
    if (!is_empty) line += ' ';
    line += word;
    is_empty = false;
  }
  if (!is_empty) *out += line + "\n";
}

void AppendFlag(Command command, const FlagSpec& flag, std::string* out) {
  std::string head = fmt::format("  --{}", flag.name);
  if (IsBool(flag) && flag.name != "version") head += fmt::format(", --no-{}", flag.name);
  for (const std::string_view alias : SplitWords(flag.aliases, ' ')) {
    if (FindAlias(command, alias) == &flag) head += fmt::format(", {}", alias);
  }
  if (const std::string placeholder = Placeholder(flag); !placeholder.empty()) head += " " + placeholder;
  *out += head + "\n";
  AppendWrapped(flag.help, 8, out);
  std::string more;
  if (!flag.default_text.empty() && !IsBool(flag) && flag.default_text != "{}") more = fmt::format("Default: {}. ", flag.default_text);
  if (IsBool(flag) && flag.default_text == "true") more = "Default: on. ";
  if (flag.effect == FlagEffect::kNone) more += fmt::format("Accepted without effect: {}.", flag.reason);
  if (flag.effect == FlagEffect::kRefused) more += fmt::format("Not offered: {}.", flag.reason);
  AppendWrapped(more, 8, out);
}

void AppendGroup(Command command, const FlagGroup& group, std::string* out) {
  *out += fmt::format("{} (--help={}, {})\n\n", group.title, group.name, group.reference_name);
  for (const FlagSpec& flag : group.flags) AppendFlag(command, flag, out);
  *out += "\n";
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(c)); });
  return lower;
}

constexpr std::string_view kSpellingHelp =
    "Spelling: --a_b and --a-b are the same flag, --x=v and --x v too. A switch --x has a --no-x. A JSON flag takes one text or pieces:\n"
    "  --speculative-config '{\"method\": \"qwen3_5_mtp\", \"num_speculative_tokens\": 3}'\n"
    "  --speculative-config.method qwen3_5_mtp --speculative-config.num_speculative_tokens 3\n"
    "  --compilation-config.cudagraph_capture_sizes+ 1,4,8\n"
    "Integers may be written 4k (4000), 25.6k (25600) or 4K (4096) where N|auto or a memory size is asked for.\n";

std::string_view Introduction(Command command) {
  switch (command) {
    case Command::kServe:
      return "usage: avocet serve [MODEL] [flags]\n\n"
             "Serves a model over HTTP with the API of OpenAI. MODEL is a folder with config.json and safetensors files, or the id of a\n"
             "model in the local hub cache; without it the bundled demo model is served. The flags are those of vllm serve.\n\n"
             "  avocet serve                                         the demo model, on port 8000\n"
             "  avocet serve /models/Qwen3.5-0.8B --port 8010        a real one\n"
             "  avocet serve MODEL --served-model-name qwen          under another name\n"
             "  avocet serve MODEL --max-model-len 8k --max-num-seqs 16     less memory\n"
             "  avocet serve MODEL --config settings.yaml            flags from a file\n"
             "  avocet serve DIR --load-format dummy --skip-tokenizer-init  speed without weights: DIR needs a config.json only\n\n"
             "SIGTERM or Ctrl-C lets running requests finish (--shutdown-timeout); a second one ends at once.\n"
             "Exit codes: 0 after a clean stop, 1 when the start failed (one line says why), 2 for wrong use.\n";
    case Command::kChat:
      return "usage: avocet chat [MODEL] [flags]\n\n"
             "A conversation with a model in the terminal, without a server. Answers stream as they are made. Ctrl-C stops an answer,\n"
             "Ctrl-D ends. Lines can come from a pipe too. /new forgets the conversation, /help lists such words.\n\n"
             "  avocet chat                                          the demo model\n"
             "  avocet chat /models/Qwen3.5-0.8B --system 'You answer briefly.' --temperature 0\n"
             "  avocet chat MODEL -q 'What is the capital of Poland?'    one question, one answer\n"
             "  echo 'Tell me a story.' | avocet chat MODEL\n";
    case Command::kInspect:
      return "usage: avocet inspect [MODEL] [flags]\n\n"
             "What a model is and what it would take here, without loading its weights: configuration, tensors, memory plan, kernels and\n"
             "why not better ones. Takes the flags of serve that change the plan. A folder with only a config.json is enough.\n\n"
             "  avocet inspect /models/Qwen3.5-0.8B --max-model-len 32k --max-num-seqs 8\n"
             "  avocet inspect MODEL --tensors --kernels\n";
    case Command::kBenchLatency:
      return "usage: avocet bench latency [MODEL] [flags]\n\n"
             "Time of one batch of equal requests, over and over, inside this process. Flags and JSON are those of vllm bench latency.\n\n"
             "  avocet bench latency DIR --load-format dummy --skip-tokenizer-init --batch-size 1 --input-len 32 --output-len 128\n";
    case Command::kBenchThroughput:
      return "usage: avocet bench throughput [MODEL] [flags]\n\n"
             "All requests at once, inside this process: requests and tokens per second. Flags and JSON are those of vllm bench "
             "throughput.\n\n"
             "  avocet bench throughput DIR --load-format dummy --skip-tokenizer-init --num-prompts 64 --input-len 512 --output-len 128\n";
  }
  return "";
}

std::string Overview(Command command) {
  std::string out(Introduction(command));
  out += "\nFlags, by group:\n";
  for (const FlagGroup& group : FlagGroups()) {
    if (!group.Has(command)) continue;
    std::string names;
    for (const FlagSpec& flag : group.flags) {
      if (flag.effect != FlagEffect::kActs) continue;
      names += fmt::format("{}--{}", names.empty() ? "" : " ", flag.name);
    }
    const auto num_others =
        std::count_if(group.flags.begin(), group.flags.end(), [](const FlagSpec& flag) { return flag.effect != FlagEffect::kActs; });
    if (num_others > 0) names += fmt::format("{}{}, without effect yet)", names.empty() ? "(" : " (and ", num_others);
    out += fmt::format("  --help={:<11} {}\n", group.name, group.title);
    AppendWrapped(names, 21, &out);
  }
  out += "  --help=environment variables that are read, and those of recipes that need no reading here\n\n";
  out += "--help=FLAG explains one flag, --help=all every one.\n\n";
  return out + std::string(kSpellingHelp);
}

std::string EnvironmentHelp() {
  std::string out = "Environment variables\n\n";
  for (const EnvVariable& variable : EnvTable()) {
    out += fmt::format("  {}\n", variable.name);
    AppendWrapped(fmt::format("{}{}.", variable.acts ? "" : "Read by nobody here: ", variable.help), 8, &out);
  }
  return out;
}

// Every flag with the topic in one of its spellings; the exact flag alone if there is one.
std::string MatchingFlags(Command command, const std::string& topic) {
  const std::string name = topic.substr(std::min(topic.find_first_not_of('-'), topic.size()));
  std::string exact;
  std::string matching;
  for (const FlagGroup& group : FlagGroups()) {
    if (!group.Has(command)) continue;
    for (const FlagSpec& flag : group.flags) {
      const std::vector<std::string_view> aliases = SplitWords(flag.aliases, ' ');
      const bool is_exact = flag.name == name || std::find(aliases.begin(), aliases.end(), topic) != aliases.end() ||
                            std::find(aliases.begin(), aliases.end(), "-" + name) != aliases.end();
      if (is_exact && exact.empty()) AppendFlag(command, flag, &exact);
      if (flag.name.find(name) != std::string_view::npos) AppendFlag(command, flag, &matching);
    }
  }
  return exact.empty() ? matching : exact;
}

}  // namespace

std::string ProgramHelp() {
  return "usage: avocet WORD [MODEL] [flags]\n\n"
         "A serving engine for the Qwen3.5 model family, with the command lines and the HTTP API of vllm serve.\n\n"
         "  avocet serve [MODEL]             serve a model over HTTP\n"
         "  avocet chat [MODEL]              a conversation in the terminal, without a server\n"
         "  avocet inspect [MODEL]           configuration, tensors, memory plan, kernels; loads nothing\n"
         "  avocet bench latency [MODEL]     time of one batch\n"
         "  avocet bench throughput [MODEL]  requests and tokens per second\n"
         "  avocet version                   the version; also --version\n\n"
         "Without MODEL, a folder or a hub id, the bundled demo model is used. avocet WORD --help teaches the flags of a word;\n"
         "--help=all lists them all, --help=GROUP or --help=FLAG a part.\n";
}

std::string CommandHelp(Command command, std::string_view topic) {
  const std::string wanted = Lower(topic);
  if (wanted.empty()) return Overview(command);
  if (wanted == "environment" || wanted == "env") return EnvironmentHelp();
  std::string out;
  for (const FlagGroup& group : FlagGroups()) {
    if (!group.Has(command)) continue;
    if (wanted == "all" || wanted == Lower(group.name) || wanted == Lower(group.reference_name)) AppendGroup(command, group, &out);
  }
  if (out.empty() && wanted.find_first_not_of('-') != std::string::npos) out = MatchingFlags(command, wanted);
  if (out.empty()) {
    return fmt::format("No flag or group matches '{}'. avocet {} --help lists the groups, --help=all every flag.\n", Printable(topic),
                       CommandName(command));
  }
  return wanted == "all" ? out + std::string(kSpellingHelp) : out;
}

}  // namespace avocet::cli
