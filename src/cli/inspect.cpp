#include "cli/inspect.h"

#include <cstdio>
#include <map>

#include "base/log.h"
#include "base/printable.h"
#include "cli/assembly.h"
#include "cli/human_number.h"
#include "cli/start_report.h"
#include "ops/kernel_choice.h"
#include "weights/checkpoint.h"

namespace avocet::cli {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

std::string YesNo(bool value) {
  return value ? "yes" : "no";
}

std::vector<std::string> DescribeConfig(const model::ModelConfig& config) {
  std::vector<std::string> lines = {
      fmt::format("attention: {} query heads, {} K/V heads of {}; rotary {} of them, theta {:g}{}", config.num_heads, config.num_kv_heads,
                  config.head_dim, config.rope.rotary_dim, config.rope.theta,
                  config.rope.yarn_factor > 1 ? fmt::format(", YaRN factor {:g}", config.rope.yarn_factor) : ""),
      fmt::format("delta net: {} key heads of {}, {} value heads of {}, convolution over {}", config.linear_key_heads,
                  config.linear_key_dim, config.linear_value_heads, config.linear_value_dim, config.conv_kernel),
      fmt::format("tied head: {}; draft layers (MTP): {}; vision: {}", YesNo(config.tied_head), config.num_mtp_layers,
                  config.vision ? fmt::format("{} layers, not used yet", config.vision->depth) : "none"),
  };
  std::string ends;
  for (const int32_t id : config.eos_token_ids) ends += fmt::format("{}{}", ends.empty() ? "" : ", ", id);
  lines.push_back(fmt::format("end-of-text ids in config.json: {}", ends.empty() ? "none" : ends));
  return lines;
}

// Matrices with their kernels. What a product reads: bf16 where the family multiplies bf16 and the weights are bf16, f32 otherwise;
// routers and gates read f32 always.
std::vector<std::string> DescribeKernels(const Machine& machine, const ModelFiles& files) {
  const model::ModelConfig& config = files.config;
  const ops::WeightFormat format = WeightFormatFor(files);
  const bool reads_bf16 = files.precision == model::Precision::kNative && format == ops::WeightFormat::kBf16 &&
                          machine.kernels->product_input_type == ops::InputType::kBf16;
  const std::string_view weight = format == ops::WeightFormat::kBf16 ? "bf16" : "f32";
  const std::string wide = fmt::format("{}_{} of {}", reads_bf16 ? "bf16" : "f32", weight, machine.kernels->name);
  const std::string gate = fmt::format("f32_{} of {}", weight, machine.kernels->name);
  std::vector<std::string> lines = {
      fmt::format("q k v, out, delta-net in and out, down, head    linear_{}", wide),
      fmt::format("gate and up                                     swiglu_{}", wide),
      fmt::format("router, shared-expert gate, delta-net b and a   linear_{}", gate),
      fmt::format("attention, delta rule, convolution, norms       {} (K/V {}, states f32)", machine.kernels->name,
                  files.precision == model::Precision::kF32 ? "f32" : "bf16"),
  };
  if (!reads_bf16) {
    lines.push_back(format == ops::WeightFormat::kF32 ? "products read f32: the weights are f32 in memory"
                                                      : "products read f32: this family has no bf16 dot product (avx512_bf16 has)");
  }
  if (config.moe) lines.push_back(fmt::format("experts: grouped, {} of {} per row", config.moe->top_k, config.moe->num_experts));
  return lines;
}

std::vector<std::string> DescribeTensors(const weights::Checkpoint& checkpoint) {
  struct Count {
    int64_t tensors = 0;
    size_t bytes = 0;
  };
  std::map<std::string_view, Count> by_type;
  for (const weights::TensorInfo& tensor : checkpoint.tensors()) {
    Count& count = by_type[weights::DTypeName(tensor.dtype)];
    ++count.tensors;
    count.bytes += tensor.bytes.size();
  }
  std::vector<std::string> lines = {fmt::format("{} in {} file{}, {}", FormatCount(static_cast<int64_t>(checkpoint.tensors().size())),
                                                checkpoint.files().size(), checkpoint.files().size() == 1 ? "" : "s",
                                                FormatBytes(checkpoint.total_bytes()))};
  for (const auto& [type, count] : by_type) lines.push_back(fmt::format("{:>5} {}, {}", count.tensors, type, FormatBytes(count.bytes)));
  return lines;
}

void Print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

void PrintSection(std::string_view name, const std::vector<std::string>& section) {
  std::vector<std::string> lines;
  AppendSection(name, section, &lines);
  Print(lines);
}

void PrintTensors(const Options& options, const weights::Checkpoint& checkpoint) {
  PrintSection("tensors", DescribeTensors(checkpoint));
  if (!options.list_tensors) return;
  for (const weights::TensorInfo& tensor : checkpoint.tensors()) {
    fmt::print("{:<5} {:<24} {}  ({})\n", weights::DTypeName(tensor.dtype), ShapeText(tensor.shape), Printable(tensor.name, 200),
               Printable(checkpoint.files()[static_cast<size_t>(tensor.file)]));
  }
}

Result<void> Run(const CommandLine& line, const Environment& environment) {
  const Options& options = line.options;
  if (options.list_isas) {
    for (const device::Isa isa : ops::AvailableIsas(device::DetectCpu())) fmt::print("{}\n", device::IsaName(isa));
    return {};
  }
  AVOCET_TRY(const Machine machine, PrepareMachine(options));
  AVOCET_TRY(const ModelFiles files, ReadModelFiles(options, environment));
  Print(DescribeModel(files));
  PrintSection("config", DescribeConfig(files.config));
  const Result<weights::Checkpoint> checkpoint = weights::Checkpoint::Open(files.path.dir);
  if (checkpoint) {
    PrintTensors(options, *checkpoint);
  } else {
    PrintSection("tensors", {fmt::format("none: {}", checkpoint.error().message)});
  }
  Print(DescribeMachine(machine));
  if (options.list_kernels) PrintSection("", DescribeKernels(machine, files));
  // A plan that does not fit is a finding here, not a failure.
  const Result<MemoryPlan> plan = PlanFor(options, machine, files);
  PrintSection("memory", plan ? DescribePlan(*plan) : std::vector<std::string>{plan.error().message});
  PrintSection("no effect", ArgumentsWithoutEffect(line.arguments));
  return {};
}

}  // namespace

int Inspect(const CommandLine& line, const Environment& environment) {
  const Result<void> done = Run(line, environment);
  if (done) return 0;
  LogError("{}", done.error().message);
  return 1;
}

}  // namespace avocet::cli
