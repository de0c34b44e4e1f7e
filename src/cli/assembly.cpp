#include "cli/assembly.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/human_number.h"
#include "cli/json_text.h"
#include "cli/progress.h"
#include "weights/model_folder.h"

namespace avocet::cli {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<model::ModelConfig> ReadConfig(const Options& options, const std::string& dir) {
  if (options.hf_overrides.empty() || options.hf_overrides == "{}") return model::LoadConfig(dir);
  AVOCET_TRY(const weights::ModelFolder folder, weights::ModelFolder::Open(dir));
  AVOCET_TRY(const std::string text, weights::ReadModelFile(folder, "config.json", limits::kConfigBytesMax));
  Result<Json> config = ParseJson(text);
  if (!config || !config->is_object()) return Fail(Errc::kCorrupt, "{}/config.json holds no JSON object", Printable(dir));
  AVOCET_TRY(const Json overrides, ParseJson(options.hf_overrides));
  MergeJson(overrides, Lists::kReplace, &*config);
  Result<model::ModelConfig> parsed = model::ParseConfig(config->dump());
  if (!parsed) return Fail(parsed.error().code, "config.json with --hf-overrides: {}", parsed.error().message);
  return parsed;
}

// What the request's defaults and the server-wide limit come from.
Result<model::GenerationConfig> ReadGenerationConfig(const Options& options, const std::string& dir) {
  model::GenerationConfig config;
  if (options.generation_config == "auto") {
    AVOCET_TRY(config, model::LoadGenerationConfig(dir));
  } else if (options.generation_config != "vllm") {
    std::error_code error;
    if (!std::filesystem::is_directory(options.generation_config, error)) {
      return FailParam("generation-config", "--generation-config takes auto, vllm or a folder, got {}",
                       Printable(options.generation_config));
    }
    AVOCET_TRY(config, model::LoadGenerationConfig(options.generation_config));
  }
  if (options.override_generation_config.empty()) return config;
  Result<model::GenerationConfig> over = model::ParseGenerationConfig(options.override_generation_config);
  if (!over) return FailParam("override-generation-config", "--override-generation-config: {}", over.error().message);
  const auto take = [](auto& target, auto& source) {
    if (source) target = std::move(source);
  };
  take(config.temperature, over->temperature);
  take(config.top_p, over->top_p);
  take(config.min_p, over->min_p);
  take(config.repetition_penalty, over->repetition_penalty);
  take(config.top_k, over->top_k);
  take(config.max_new_tokens, over->max_new_tokens);
  if (!over->eos_token_ids.empty()) config.eos_token_ids = std::move(over->eos_token_ids);
  return config;
}

// The folder decides how weights are quantised; a flag may only agree, or ask for int8 where they are float.
Result<void> ReadQuantization(const Options& options, ModelFiles* files) {
  const std::string& wanted = options.quantization;
  const bool is_automatic = wanted.empty() || wanted == "none" || wanted == "None" || wanted == "auto";
  if (!is_automatic && wanted != "ascend" && wanted != "int8" && wanted != "compressed-tensors" && wanted != "fp8") {
    return Fail(Errc::kUnsupported,
                "--quantization {} is not offered yet; offered are ascend (int8 from msModelSlim), compressed-tensors (int8), "
                "fp8 (in blocks) and int8 (at load)",
                Printable(wanted));
  }
  if (options.load_format != "dummy") {
    AVOCET_TRY(files->description, weights::QuantDescription::Load(files->path.dir));
  }
  if (wanted == "ascend" && !files->description && options.load_format != "dummy") {
    return Fail(Errc::kUnsupported,
                "--quantization ascend contradicts {}: without a {} its weights are not quantised; leave the flag out, or say "
                "--quantization int8 to round them at load",
                Printable(files->path.dir), weights::QuantDescription::kFileName);
  }
  if (wanted == "compressed-tensors" && !files->config.int8_by_dtype) {
    return Fail(Errc::kUnsupported, "--quantization compressed-tensors contradicts {}: its config.json has no such quantization_config",
                Printable(files->path.dir));
  }
  if (wanted == "fp8" && files->config.fp8_block == 0) {
    return Fail(Errc::kUnsupported, "--quantization fp8 contradicts {}: its config.json has no such quantization_config",
                Printable(files->path.dir));
  }
  if (wanted == "int8" && (files->description || files->config.int8_by_dtype)) {
    return Fail(Errc::kUnsupported, "--quantization int8 contradicts {}: its weights are quantised already; leave the flag out",
                Printable(files->path.dir));
  }
  files->rounds_to_int8 = wanted == "int8" || (wanted == "ascend" && options.load_format == "dummy");
  if (files->description) files->quantization_note = "ascend: int8 products (W8A8) where quant_model_description.json says so";
  if (files->config.int8_by_dtype) files->quantization_note = "compressed-tensors: int8 products (W8A8) where the tensors are int8";
  if (files->config.fp8_block > 0) {
    files->quantization_note = "fp8: matrices become bf16 at load (this machine has no fp8 products); --quantization int8 halves that";
  }
  if (files->rounds_to_int8) {
    files->quantization_note = "int8: matrices of products rounded per channel, their inputs per token; routers and gates stay float";
  }
  return {};
}

// --speculative-config: which drafter and how many drafts. Everything that would need another drafter is refused by name.
class DraftChoice {
 public:
  explicit DraftChoice(ModelFiles* files) : files_(files) {}

  Result<void> Take(const std::string& text) {
    if (text.empty() || text == "{}") return {};
    AVOCET_TRY(const Json json, ParseJson(text));
    if (!json.is_object()) return FailParam(kFlag, "--speculative-config takes a JSON object, got {}", Printable(text));
    model::ModelConfig& config = files_->config;
    if (config.num_mtp_layers == 0) {
      return FailParam(
          kFlag,
          "--speculative-config: the checkpoint has no draft layer (mtp_num_hidden_layers in config.json is 0 or absent); leave "
          "the flag out or serve a checkpoint with mtp tensors");
    }
    if (config.num_mtp_layers > 1) {
      return FailParam(kFlag, "--speculative-config: the checkpoint has {} draft layers, only one is offered", config.num_mtp_layers);
    }
    config.num_drafts = config.num_mtp_layers;
    for (const auto& [key, value] : json.items()) AVOCET_TRY_VOID(TakeKey(key, value));
    return {};
  }

 private:
  static constexpr const char* kFlag = "speculative-config";

  Result<void> TakeKey(const std::string& key, const Json& value) {
    if (key == "method")
      return OneOf(key, value, {"qwen3_5_mtp", "qwen3_next_mtp", "mtp"}, "drafts come from the checkpoint's own draft layer");
    if (key == "num_speculative_tokens") return TakeCount(value);
    if (key == "draft_sample_method")
      return OneOf(key, value, {"greedy"}, "the likeliest token is drafted; answers are distributed the same");
    if (key == "rejection_sample_method") return OneOf(key, value, {"standard"}, "drafts are verified exactly");
    if (key == "draft_depth") {
      AVOCET_TRY_VOID(OneOf(key, value, {"measured", "fixed"}, "measured takes as many drafts as pay"));
      if (value == "fixed") files_->draft_depth = engine::DraftDepthPolicy::kMost;
      return {};
    }
    // Of another platform's drafter: nothing here is captured, padded or sharded, whatever they say.
    for (const char* known : {"enforce_eager", "disable_padded_drafter_batch", "draft_tensor_parallel_size", "max_model_len",
                              "use_local_argmax_reduction", "quantization"}) {
      if (key == known) return {};
    }
    return FailParam(kFlag,
                     "--speculative-config: {} is not offered; known are method, num_speculative_tokens, draft_depth, draft_sample_method, "
                     "rejection_sample_method",
                     Printable(key));
  }

  Result<void> TakeCount(const Json& value) {
    if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > limits::kDraftsMax) {
      return FailParam(kFlag, "--speculative-config: num_speculative_tokens must be 1 to {}, got {}", limits::kDraftsMax,
                       Printable(value.dump()));
    }
    files_->config.num_drafts = value.get<int32_t>();
    return {};
  }

  static Result<void> OneOf(const std::string& key, const Json& value, std::initializer_list<const char*> known, const char* reason) {
    for (const char* one : known) {
      if (value == one) return {};
    }
    std::string names;
    for (const char* one : known) names += (names.empty() ? "" : ", ") + std::string(one);
    return FailParam(kFlag, "--speculative-config: {} {} is not offered ({}); known: {}", key, Printable(value.dump()), reason, names);
  }

  ModelFiles* files_;
};

void ChooseNumbers(const Options& options, ModelFiles* files) {
  const std::string& dtype = options.dtype;
  if (dtype == "float32" || dtype == "float") {
    files->precision = model::Precision::kF32;
    files->policy = weights::WeightPolicy::kF32;
    files->dtype_note = "float32: weights, activations and K/V in f32";
  } else if (dtype == "bfloat16") {
    files->policy = weights::WeightPolicy::kBf16;
    files->dtype_note = fmt::format("bfloat16: {} weights as bf16, K/V bf16, activations f32", files->config.dtype);
  } else {
    files->dtype_note = fmt::format("{}: {} weights {}, K/V bf16, activations f32", dtype, files->config.dtype,
                                    files->config.dtype == "bfloat16" ? "as they are" : "widened exactly to f32");
  }
}

Result<std::string> ReadTextFile(const std::string& path, size_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(Errc::kIo, "cannot read {}", Printable(path));
  std::string text(bytes_max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Fail(Errc::kIo, "cannot read {}", Printable(path));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > bytes_max) return Fail(Errc::kInvalidArgument, "{} has more than {} bytes", Printable(path), bytes_max);
  return text;
}

// --chat-template: a file, or the template itself, which has at least one brace.
Result<void> TakeGivenTemplate(const std::string& given, Assembly* assembly) {
  std::error_code error;
  std::string source = given;
  std::string name = "--chat-template";
  if (std::filesystem::is_regular_file(given, error)) {
    AVOCET_TRY(source, ReadTextFile(given, limits::kTemplateBytesMax));
    name = given;
  } else if (given.find('{') == std::string::npos) {
    return FailParam("chat-template", "--chat-template: there is no file {}", Printable(given));
  }
  AVOCET_TRY(assembly->chat_template, tokenizer::ChatTemplate::Parse(source, name));
  assembly->chat_template_source = name;
  return {};
}

Result<model::ModelWeights> LoadWeights(const Options& options, Assembly* assembly) {
  Progress progress(fmt::format("loading {}", assembly->files.path.name));
  const model::LoadOptions load{.policy = assembly->files.policy,
                                .quantization = assembly->files.quantization(),
                                .progress = [&progress](size_t done, size_t total) { progress.Update(done, total); }};
  if (options.load_format == "dummy") {
    return model::MakeDummyWeights(assembly->files.config, static_cast<uint64_t>(options.seed), *assembly->pool, load, &assembly->load);
  }
  return model::LoadModelWeights(assembly->files.config, assembly->files.path.dir, *assembly->pool, load, &assembly->load);
}

model::ModelOptions ModelOptionsFor(const ModelFiles& files, const MemoryPlan& plan) {
  return {.precision = files.precision,
          .max_rows = plan.max_num_batched_tokens,
          .max_logit_rows = plan.max_logit_rows,
          .max_context = plan.max_model_len,
          .page_tokens = plan.page_tokens,
          .num_pages = plan.num_pages,
          .num_slots = plan.num_slots,
          .has_int8 = files.quantization().has_int8()};
}

}  // namespace

Result<Machine> PrepareMachine(const Options& options) {
  Machine machine;
  AVOCET_TRY(machine.topology, device::DetectTopology());
  machine.cpu = device::DetectCpu();
  AVOCET_TRY(machine.isa, device::ChooseIsa(machine.cpu));
  machine.kernels = &ops::KernelsFor(machine.isa);
  AVOCET_TRY(machine.worker_cpus, device::ChooseWorkerCpus(machine.topology, options.num_threads, options.threads_bind));
  return machine;
}

Result<ModelFiles> ReadModelFiles(const Options& options, const Environment& environment) {
  ModelFiles files;
  AVOCET_TRY(files.path, FindModel(options, environment));
  AVOCET_TRY(files.config, ReadConfig(options, files.path.dir));
  AVOCET_TRY_VOID(ReadQuantization(options, &files));
  AVOCET_TRY_VOID(DraftChoice(&files).Take(options.speculative_config));
  AVOCET_TRY(files.generation, ReadGenerationConfig(options, files.path.dir));
  ChooseNumbers(options, &files);
  return files;
}

ops::WeightFormat WeightFormatFor(const ModelFiles& files) {
  if (files.policy == weights::WeightPolicy::kF32) return ops::WeightFormat::kF32;
  const bool is_bf16 = files.config.dtype == "bfloat16" || files.policy == weights::WeightPolicy::kBf16;
  return is_bf16 ? ops::WeightFormat::kBf16 : ops::WeightFormat::kF32;
}

Result<MemoryPlan> PlanFor(const Options& options, const Machine& machine, const ModelFiles& files) {
  const auto num_workers = static_cast<int32_t>(machine.worker_cpus.size());
  const int32_t page_tokens = options.block_size.value_or(kDefaultPageTokens);
  const auto footprint = [&](int32_t rows, int32_t logit_rows, int32_t context) {
    const model::ModelOptions shape{.precision = files.precision,
                                    .max_rows = rows,
                                    .max_logit_rows = logit_rows,
                                    .max_context = context,
                                    .page_tokens = page_tokens,
                                    .has_int8 = files.quantization().has_int8()};
    return model::Model::Footprint(files.config, shape, *machine.kernels, num_workers);
  };
  const model::ModelFootprint smallest = footprint(1, 1, 1);
  const MemoryNeeds needs{.weights_bytes = model::PackedModelBytes(files.config, WeightFormatFor(files), files.quantization()),
                          .page_bytes = smallest.page_bytes,
                          .slot_bytes = smallest.slot_bytes,
                          .num_drafts = files.config.num_drafts,
                          .model_max_len = files.config.max_positions,
                          .workspace_bytes = [&](int32_t rows, int32_t logit_rows, int32_t context) {
                            return footprint(rows, logit_rows, context).workspace_bytes;
                          }};

  MemoryWishes wishes{.available_bytes = machine.topology.memory_available_bytes,
                      .utilization = options.gpu_memory_utilization,
                      .num_pages = options.num_gpu_blocks_override,
                      .page_tokens = page_tokens,
                      .max_model_len = options.max_model_len,
                      .allow_longer_than_model = options.allow_long_max_model_len,
                      .max_num_seqs = options.max_num_seqs};
  if (options.max_num_batched_tokens) wishes.max_num_batched_tokens = static_cast<int32_t>(*options.max_num_batched_tokens);
  if (options.kv_cache_memory_bytes) {
    wishes.cache_bytes = static_cast<size_t>(*options.kv_cache_memory_bytes);
  } else if (options.kvcache_space_gib) {
    wishes.cache_bytes = static_cast<size_t>(*options.kvcache_space_gib * static_cast<double>(size_t{1} << 30));
  }
  return PlanMemory(needs, wishes);
}

Result<std::unique_ptr<Assembly>> Prepare(const Options& options, const Environment& environment) {
  auto assembly = std::make_unique<Assembly>();
  AVOCET_TRY(assembly->machine, PrepareMachine(options));
  AVOCET_TRY(assembly->files, ReadModelFiles(options, environment));
  AVOCET_TRY(assembly->plan, PlanFor(options, assembly->machine, assembly->files));
  AVOCET_TRY(assembly->pool, device::WorkerPool::Create({.cpus = assembly->machine.worker_cpus}));
  return assembly;
}

Result<void> LoadText(const Options& options, Assembly* assembly) {
  const Clock::time_point start = Clock::now();
  const std::string& dir = options.tokenizer.empty() ? assembly->files.path.dir : options.tokenizer;
  AVOCET_TRY(const weights::ModelFolder folder, weights::ModelFolder::Open(dir));
  const Result<std::string> file = folder.Resolve("tokenizer.json");
  const bool is_absent = !file && file.error().code == Errc::kNotFound;
  // Dummy weights are for measuring: a config.json is all that they ask for.
  const bool can_do_without = options.load_format == "dummy" && options.tokenizer.empty();
  if (options.skip_tokenizer_init) {
    assembly->no_tokenizer_reason = "--skip-tokenizer-init";
  } else if (is_absent && can_do_without) {
    assembly->no_tokenizer_reason = "dummy weights, and the folder has no tokenizer.json";
  } else if (is_absent) {
    return Fail(Errc::kNotFound,
                "{} has no tokenizer.json; name another folder with --tokenizer, or serve token ids with --skip-tokenizer-init",
                Printable(dir));
  } else {
    AVOCET_TRY(assembly->tokenizer, tokenizer::Tokenizer::Load(dir));
  }
  if (!options.chat_template.empty()) {
    AVOCET_TRY_VOID(TakeGivenTemplate(options.chat_template, assembly));
  } else if (assembly->tokenizer != nullptr) {
    Result<std::string> source = weights::ReadModelFile(folder, "chat_template.jinja", limits::kTemplateBytesMax);
    if (source) {
      AVOCET_TRY(assembly->chat_template, tokenizer::ChatTemplate::Parse(*source, "chat_template.jinja"));
      assembly->chat_template_source = "chat_template.jinja";
    } else if (source.error().code != Errc::kNotFound) {
      return std::unexpected(std::move(source).error());
    } else if (const auto& in_config = assembly->tokenizer->config_chat_template()) {
      AVOCET_TRY(assembly->chat_template, tokenizer::ChatTemplate::Parse(*in_config, "chat_template of tokenizer_config.json"));
      assembly->chat_template_source = "tokenizer_config.json";
    }
  }
  assembly->tokenizer_seconds = SecondsSince(start);
  return {};
}

WeightLoading::WeightLoading(const Options& options, Assembly* assembly)
    : assembly_(assembly),
      weights_(Fail(Errc::kInternal, "weights were not loaded")),
      thread_([this, &options] { weights_ = LoadWeights(options, assembly_); }) {}

WeightLoading::~WeightLoading() {
  if (thread_.joinable()) thread_.join();
}

Result<void> WeightLoading::Finish() {
  thread_.join();
  AVOCET_TRY(model::ModelWeights weights, std::move(weights_));
  AVOCET_TRY(assembly_->model,
             model::Model::Create(assembly_->files.config, std::move(weights), ModelOptionsFor(assembly_->files, assembly_->plan),
                                  *assembly_->machine.kernels, *assembly_->pool));
  return {};
}

Result<std::unique_ptr<Assembly>> Assemble(const Options& options, const Environment& environment) {
  AVOCET_TRY(std::unique_ptr<Assembly> assembly, Prepare(options, environment));
  WeightLoading weights(options, assembly.get());
  AVOCET_TRY_VOID(LoadText(options, assembly.get()));
  AVOCET_TRY_VOID(weights.Finish());
  return assembly;
}

engine::EngineOptions EngineOptionsFor(const Options& options, const Assembly& assembly) {
  return {.max_num_seqs = assembly.plan.max_num_seqs,
          .max_num_batched_tokens = assembly.plan.max_num_batched_tokens,
          .max_model_len = assembly.plan.max_model_len,
          .long_prefill_token_threshold = options.long_prefill_token_threshold,
          .max_waiting = options.max_waiting,
          .policy = options.scheduling_policy == "priority" ? engine::SchedulingPolicy::kPriority : engine::SchedulingPolicy::kFcfs,
          .num_drafts = assembly.files.config.num_drafts,
          .draft_depth = assembly.files.draft_depth,
          .seed = static_cast<uint64_t>(options.seed),
          .vocab_size = assembly.tokenizer != nullptr ? std::min(assembly.tokenizer->vocab_size(), assembly.files.config.vocab_rows)
                                                      : assembly.files.config.vocab_rows};
}

std::vector<int32_t> EndTokenIds(const Assembly& assembly) {
  std::vector<int32_t> ids = assembly.files.config.eos_token_ids;
  const std::vector<int32_t>& more = assembly.files.generation.eos_token_ids;
  ids.insert(ids.end(), more.begin(), more.end());
  if (assembly.tokenizer != nullptr && !assembly.tokenizer->eos_token().empty()) {
    if (const auto id = assembly.tokenizer->FindAdded(assembly.tokenizer->eos_token())) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace avocet::cli
