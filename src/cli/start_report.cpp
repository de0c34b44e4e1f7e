#include "cli/start_report.h"

#include <algorithm>

#include "base/printable.h"
#include "cli/host_notes.h"
#include "cli/human_number.h"
#include "ops/kernel_choice.h"

namespace avocet::cli {
namespace {

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

std::string DescribeWorkers(const Machine& machine) {
  const device::Topology& topology = machine.topology;
  std::string cpus;
  for (const int32_t cpu : machine.worker_cpus) {
    if (cpu >= 0) cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu);
  }
  const std::string where = cpus.empty() ? "not pinned" : "on CPUs " + Printable(cpus, 60);
  const std::string quota = topology.quota_cores > 0 ? fmt::format(", container quota {:.2f} cores", topology.quota_cores) : "";
  return fmt::format("{} compute threads {}; {} cores and {} logical CPUs in the affinity mask{}", machine.worker_cpus.size(), where,
                     topology.cores.size(), topology.num_logical_cpus, quota);
}

std::vector<std::string> DescribeLoad(const StartFacts& facts) {
  const model::LoadReport& load = facts.assembly.load;
  std::vector<std::string> lines;
  if (facts.line.options.load_format == "dummy") {
    lines.push_back(fmt::format("random ones (--load-format dummy), {} in {:.2f} s", FormatBytes(load.packed_bytes), load.seconds));
  } else {
    // Of a few megabytes the rate says nothing: they never leave the caches.
    const bool says_something = load.file_bytes > size_t{64} << 20 && facts.copy_rate_gb_per_s > 0;
    const std::string rate = says_something
                                 ? fmt::format(", {:.1f} GB/s moved, {:.0f}% of a plain copy of the file ({:.1f} GB/s)", load.copy_gb_per_s,
                                               100 * load.copy_gb_per_s / facts.copy_rate_gb_per_s, facts.copy_rate_gb_per_s)
                                 : "";
    lines.push_back(fmt::format("{} read and packed to {} in {:.2f} s{}", FormatBytes(load.file_bytes), FormatBytes(load.packed_bytes),
                                load.seconds, rate));
  }
  lines.insert(lines.end(), load.conversions.begin(), load.conversions.end());
  if (!load.unused.empty()) lines.push_back(fmt::format("present and not used: {}", Join(load.unused, ", ")));
  return lines;
}

std::string DescribeText(const Assembly& assembly) {
  if (assembly.tokenizer == nullptr) return fmt::format("none ({}): token ids in and out", assembly.no_tokenizer_reason);
  const std::string chat = assembly.chat_template_source.empty() ? "no chat template: /v1/chat/completions answers with an error"
                                                                 : "conversations through " + assembly.chat_template_source;
  return fmt::format("{} tokens, {:.2f} s; {}", FormatCount(assembly.tokenizer->vocab_size()), assembly.tokenizer_seconds, chat);
}

}  // namespace

std::string ReportLine(std::string_view name, std::string_view text) {
  return fmt::format("{:<10}{}", name, text);
}

void AppendSection(std::string_view name, const std::vector<std::string>& lines, std::vector<std::string>* out) {
  for (size_t i = 0; i < lines.size(); ++i) out->push_back(ReportLine(i == 0 ? name : "", lines[i]));
}

std::vector<std::string> DescribeMachine(const Machine& machine) {
  const device::Topology& topology = machine.topology;
  std::vector<std::string> lines;
  AppendSection("machine",
                {fmt::format("{}, {} NUMA node{}, {:.1f} GiB of memory ({:.1f} usable, {:.1f} available now)", machine.cpu.model_name,
                             topology.num_numa_nodes, topology.num_numa_nodes == 1 ? "" : "s", Gib(topology.memory_bytes),
                             Gib(topology.memory_limit_bytes), Gib(topology.memory_available_bytes)),
                 DescribeWorkers(machine)},
                &lines);
  AppendSection("host", HostNotes(topology.num_numa_nodes), &lines);
  AppendSection("kernels", ops::ExplainChoice(machine.cpu, machine.isa), &lines);
  return lines;
}

std::vector<std::string> DescribeModel(const ModelFiles& files) {
  const model::ModelConfig& config = files.config;
  std::vector<std::string> lines;
  std::string mlp = fmt::format("MLP of {}", config.intermediate);
  if (config.moe) {
    mlp = fmt::format("{} experts of {}, {} per token{}", config.moe->num_experts, config.moe->expert_intermediate, config.moe->top_k,
                      config.moe->shared_intermediate > 0 ? fmt::format(", one shared of {}", config.moe->shared_intermediate) : "");
  }
  std::vector<std::string> body = {
      fmt::format("{}{}", Printable(files.path.dir), files.path.how.empty() ? "" : " (" + files.path.how + ")"),
      fmt::format("{}, {:.3g} M parameters of text", config.architecture.empty() ? config.model_type : config.architecture,
                  static_cast<double>(model::NumTextParameters(config)) / 1e6),
      fmt::format("{} layers: {} delta-net, {} attention; hidden {}, {}; {} rows of vocabulary, {} positions", config.num_layers,
                  config.NumLayers(model::LayerKind::kDeltaNet), config.NumLayers(model::LayerKind::kAttention), config.hidden, mlp,
                  FormatCount(config.vocab_rows), FormatCount(config.max_positions)),
      files.dtype_note};
  if (!files.quantization_note.empty()) body.push_back(files.quantization_note);
  AppendSection("model", body, &lines);
  return lines;
}

std::vector<std::string> DescribeWithoutEffect(const Arguments& arguments, const EnvReport& environment) {
  std::vector<std::string> lines = ArgumentsWithoutEffect(arguments);
  lines.insert(lines.end(), environment.without_effect.begin(), environment.without_effect.end());
  return lines;
}

std::vector<std::string> DescribeStart(const StartFacts& facts) {
  const Assembly& assembly = facts.assembly;
  std::vector<std::string> lines;
  const std::vector<std::string> options = NonDefaultArguments(facts.line.arguments);
  AppendSection("options", {options.empty() ? "all defaults" : Join(options, " ")}, &lines);
  if (!facts.environment.acting.empty()) AppendSection("variables", {Join(facts.environment.acting, " ")}, &lines);
  const std::vector<std::string> machine = DescribeMachine(assembly.machine);
  lines.insert(lines.end(), machine.begin(), machine.end());
  const std::vector<std::string> model = DescribeModel(assembly.files);
  lines.insert(lines.end(), model.begin(), model.end());
  AppendSection("weights", DescribeLoad(facts), &lines);
  AppendSection("tokenizer", {DescribeText(assembly)}, &lines);
  if (assembly.files.config.num_drafts > 0) {
    const bool is_measured = assembly.files.draft_depth == engine::DraftDepthPolicy::kMeasured;
    AppendSection("drafts",
                  {fmt::format("{} {} per sequence and step, by the checkpoint's draft layer; answers are the same with and without",
                               is_measured ? "up to" : "always", assembly.files.config.num_drafts)},
                  &lines);
  }
  AppendSection("memory", DescribePlan(assembly.plan), &lines);
  AppendSection("no effect", DescribeWithoutEffect(facts.line.arguments, facts.environment), &lines);
  AppendSection("warnings", facts.line.arguments.warnings, &lines);
  lines.push_back(ReportLine("ready", fmt::format("{:.2f} s after the start", facts.seconds)));
  return lines;
}

}  // namespace avocet::cli
