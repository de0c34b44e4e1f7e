#include "cli/start_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace avocet::cli {
namespace {

using testing::Contains;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// A loaded model as the report sees it, without a model.
Assembly MakeAssembly() {
  Assembly assembly;
  assembly.machine.topology.cores = {{0, 0}, {1, 0}};
  assembly.machine.topology.num_logical_cpus = 4;
  assembly.machine.topology.quota_cores = 1.5;
  assembly.machine.topology.memory_bytes = size_t{64} << 30;
  assembly.machine.topology.memory_limit_bytes = size_t{32} << 30;
  assembly.machine.topology.memory_available_bytes = size_t{30} << 30;
  assembly.machine.cpu.model_name = "Test CPU";
  assembly.machine.isa = device::Isa::kRef;
  assembly.machine.worker_cpus = {0};
  assembly.files.path = {.dir = "/models/m", .name = "m", .how = ""};
  assembly.files.config.architecture = "Qwen3_5ForConditionalGeneration";
  assembly.files.config.layers = {model::LayerKind::kDeltaNet, model::LayerKind::kAttention};
  assembly.files.config.num_layers = 2;
  assembly.files.config.hidden = 16;
  assembly.files.config.num_heads = assembly.files.config.num_kv_heads = 1;
  assembly.files.config.head_dim = 16;
  assembly.files.config.linear_key_heads = assembly.files.config.linear_value_heads = 1;
  assembly.files.config.linear_key_dim = assembly.files.config.linear_value_dim = 16;
  assembly.files.config.conv_kernel = 4;
  assembly.files.config.intermediate = 32;
  assembly.files.config.vocab_rows = 64;
  assembly.files.config.max_positions = 4096;
  assembly.files.dtype_note = "auto: float16 weights widened exactly to f32";
  assembly.plan = {.available_bytes = size_t{30} << 30,
                   .weights_bytes = size_t{3} << 29,
                   .slot_bytes = size_t{19} << 20,
                   .page_bytes = size_t{768} << 10,
                   .num_slots = 32,
                   .num_pages = 1920,
                   .page_tokens = 64,
                   .max_model_len = 5000,
                   .max_num_seqs = 32,
                   .max_num_batched_tokens = 2048,
                   .notes = {"max-num-seqs lowered from 256 to 32: because"}};
  assembly.load = {.file_bytes = size_t{3} << 29,
                   .packed_bytes = size_t{3} << 29,
                   .seconds = 0.5,
                   .copy_gb_per_s = 6,
                   .unused = {"153 vision tensors", "15 mtp tensors"},
                   .conversions = {"f16 matrices widened to f32 (exact)"}};
  return assembly;
}

std::string Report(const std::vector<std::string>& words, const EnvReport& environment = {}) {
  const Result<CommandLine> line = ParseCommandLine(Command::kServe, words);
  EXPECT_TRUE(line);
  const Assembly assembly = MakeAssembly();
  std::string text;
  for (const std::string& row : DescribeStart({*line, environment, assembly, 12, 1.25})) text += row + "\n";
  return text;
}

TEST(StartReport, EverySection_SaysItsPart) {
  const std::string text = Report({"/models/m", "--port", "8010"});
  EXPECT_THAT(text, HasSubstr("options   model=/models/m port=8010\n"));
  EXPECT_THAT(text, HasSubstr("Test CPU, 1 NUMA node, 64.0 GiB of memory (32.0 usable, 30.0 available now)"));
  EXPECT_THAT(text, HasSubstr("1 compute threads on CPUs 0; 2 cores and 4 logical CPUs in the affinity mask, container quota 1.50 cores"));
  EXPECT_THAT(text, HasSubstr("ref: chosen"));
  EXPECT_THAT(text, HasSubstr("avx2: "));
  EXPECT_THAT(text, HasSubstr("Qwen3_5ForConditionalGeneration"));
  EXPECT_THAT(text,
              HasSubstr("1.50 GiB read and packed to 1.50 GiB in 0.50 s, 6.0 GB/s moved, 50% of a plain copy of the file (12.0 GB/s)"));
  EXPECT_THAT(text, HasSubstr("f16 matrices widened to f32 (exact)"));
  EXPECT_THAT(text, HasSubstr("present and not used: 153 vision tensors, 15 mtp tensors"));
  EXPECT_THAT(text, HasSubstr("GPU KV cache size: 122,880 tokens"));
  EXPECT_THAT(text, HasSubstr("Maximum concurrency for 5,000 tokens per request: 24.30x"));
  EXPECT_THAT(text, HasSubstr("max-num-seqs lowered from 256 to 32"));
  EXPECT_THAT(text, HasSubstr("ready     1.25 s"));
  EXPECT_THAT(text, Not(HasSubstr("no effect")));
}

TEST(StartReport, FlagsAndVariablesWithoutEffect_AreNamedWithReasons) {
  const std::string text = Report({"m", "-tp", "16", "--async-scheduling"}, {{}, {"OMP_NUM_THREADS=1: because"}});
  EXPECT_THAT(text, HasSubstr("no effect --tensor-parallel-size 16: the model runs as one rank"));
  EXPECT_THAT(text, HasSubstr("--async-scheduling: "));
  EXPECT_THAT(text, HasSubstr("OMP_NUM_THREADS=1: because"));
}

TEST(StartReport, DummyWeights_SaySo) {
  EXPECT_THAT(Report({"m", "--load-format", "dummy"}), HasSubstr("random ones (--load-format dummy)"));
}

TEST(StartReport, Warnings_AreRepeated) {
  EXPECT_THAT(Report({"m", "--port", "1", "--port", "2"}), HasSubstr("warnings  --port is given 2 times"));
}

TEST(StartReport, Lines_HaveNoControlCharacters) {
  const std::string text = Report({"m\x1b[2J\n", "--served-model-name", "a\tb"});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\t'), std::string::npos);
}

}  // namespace
}  // namespace avocet::cli
