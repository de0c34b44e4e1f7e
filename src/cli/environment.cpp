#include "cli/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/printable.h"

namespace avocet::cli {
namespace {

constexpr auto kTable = std::to_array<EnvVariable>({
    {"AVOCET_ISA", true, "Lowers the kernel family: ref, avx2, avx512 or avx512_bf16"},
    {"AVOCET_DEMO_MODEL", true, "Folder of the demo model that is used when no MODEL is given"},
    {"VLLM_CPU_KVCACHE_SPACE", true, "GiB for the caches, if --kv-cache-memory-bytes is not given"},
    {"VLLM_CPU_OMP_THREADS_BIND", true,
     "CPUs of the compute threads: 0-7, 0-3,8-11, auto or nobind; '|' separates ranks, the first counts"},
    {"VLLM_ALLOW_LONG_MAX_MODEL_LEN", true, "1: --max-model-len may exceed the model's own limit"},
    {"VLLM_API_KEY", true, "A key for clients, as --api-key"},
    {"VLLM_LOGGING_LEVEL", true, "DEBUG, INFO, WARNING or ERROR: the least level that is logged"},
    {"VLLM_LOG_STATS_INTERVAL", true, "Seconds between two lines with throughput and load; 10 if not set"},
    {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE", true, "Seconds that an idle connection is kept; 5 if not set"},
    {"VLLM_SKIP_MODEL_NAME_VALIDATION", true, "1: a request may name any model"},
    {"VLLM_SERVER_DEV_MODE", true, "1: offer the routes for development, /server_info"},
    {"VLLM_ENABLE_RESPONSES_API_STORE", true, "1: keep responses of /v1/responses, for previous_response_id"},
    {"HF_HOME", true, "Local hub cache in which a model id is looked up (HF_HOME/hub); also HF_HUB_CACHE"},
    {"HF_HUB_CACHE", true, "Local hub cache in which a model id is looked up"},
    {"VLLM_USE_MODELSCOPE", true, "True: a model id is looked up in ModelScope's local cache first"},
    {"MODELSCOPE_CACHE", true, "ModelScope's local cache"},
    {"OMP_NUM_THREADS", false, "compute threads are the engine's own, see --num-threads; recipes export 1 for other reasons"},
    {"OMP_PROC_BIND", false, "compute threads are the engine's own"},
    {"MKL_NUM_THREADS", false, "compute threads are the engine's own"},
    {"LD_PRELOAD", false, "allocators may be swapped; a step allocates nothing"},
    {"ASCEND_RT_VISIBLE_DEVICES", false, "the engine runs on CPUs; VLLM_CPU_OMP_THREADS_BIND chooses cores"},
    {"CUDA_VISIBLE_DEVICES", false, "the engine runs on CPUs"},
    {"PYTORCH_NPU_ALLOC_CONF", false, "memory is planned once, in arenas"},
    {"PYTORCH_CUDA_ALLOC_CONF", false, "memory is planned once, in arenas"},
    {"HCCL_*", false, "there is one rank, so nothing is exchanged"},
    {"GLOO_SOCKET_IFNAME", false, "there is one rank, so nothing is exchanged"},
    {"TP_SOCKET_IFNAME", false, "there is one rank, so nothing is exchanged"},
    {"TASK_QUEUE_ENABLE", false, "steps are issued directly, there is no queue of operators"},
    {"VLLM_ASCEND_ENABLE_FUSED_MC2", false, "experts run in one way here, whatever it says"},
    {"VLLM_ASCEND_ENABLE_FLASHCOMM1", false, "there is one rank, so nothing is exchanged"},
    {"VLLM_ASCEND_*", false, "it steers another platform"},
    {"VLLM_WORKER_MULTIPROC_METHOD", false, "there are no worker processes"},
    {"VLLM_ENGINE_READY_TIMEOUT_S", false, "the start takes as long as reading the weights"},
    {"VLLM_RPC_TIMEOUT", false, "there are no remote workers"},
    {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", false, "there are no remote workers"},
    {"VLLM_USE_V1", false, "there is one engine"},
    {"VLLM_ATTENTION_BACKEND", false, "kernels are chosen from cpuid, see AVOCET_ISA"},
    {"VLLM_MAX_STOP_STRINGS", false, "the limit is fixed"},
    {"VLLM_MAX_COMPLETION_PROMPTS", false, "the limit is fixed"},
    {"VLLM_MEDIA_*", false, "pictures are not offered yet"},
    {"VLLM_IMAGE_FETCH_TIMEOUT", false, "pictures are not offered yet"},
    {"VLLM_VIDEO_FETCH_TIMEOUT", false, "pictures are not offered yet"},
    {"VLLM_AUDIO_FETCH_TIMEOUT", false, "the family has no audio"},
    {"PROMETHEUS_MULTIPROC_DIR", false, "one process serves HTTP"},
    {"HF_HUB_OFFLINE", false, "nothing is ever downloaded"},
    {"VLLM_*", false, "it is not known here"},
});

const EnvVariable* FindVariable(std::string_view name) {
  for (const EnvVariable& variable : kTable) {
    if (variable.name == name) return &variable;
    if (variable.name.ends_with('*') && name.starts_with(variable.name.substr(0, variable.name.size() - 1))) return &variable;
  }
  return nullptr;
}

bool IsTrue(std::string_view text) {
  return text == "1" || text == "true" || text == "True" || text == "TRUE";
}

Result<double> Number(std::string_view name, const std::string& text, double min, double max) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < min || value > max) {
    return Fail(Errc::kInvalidArgument, "{} takes a number from {} to {}, got '{}'", name, min, max, Printable(text));
  }
  return value;
}

Result<void> Apply(std::string_view name, const std::string& value, Options* options) {
  constexpr double kDay = 86400;
  if (name == "VLLM_CPU_KVCACHE_SPACE") {
    AVOCET_TRY(const double gib, Number(name, value, 0, 1 << 20));
    if (gib > 0) options->kvcache_space_gib = gib;  // 0 is the reference's own default
  } else if (name == "VLLM_CPU_OMP_THREADS_BIND") {
    options->threads_bind = value;
  } else if (name == "VLLM_ALLOW_LONG_MAX_MODEL_LEN") {
    options->allow_long_max_model_len = IsTrue(value);
  } else if (name == "VLLM_API_KEY") {
    options->api_key.push_back(value);
  } else if (name == "VLLM_LOGGING_LEVEL") {
    options->logging_level = value;
  } else if (name == "VLLM_LOG_STATS_INTERVAL") {
    AVOCET_TRY(options->log_stats_interval_s, Number(name, value, 0.1, kDay));
  } else if (name == "VLLM_HTTP_TIMEOUT_KEEP_ALIVE") {
    AVOCET_TRY(options->keep_alive_s, Number(name, value, 0.1, kDay));
  } else if (name == "VLLM_SKIP_MODEL_NAME_VALIDATION") {
    options->skip_model_name_validation = IsTrue(value);
  } else if (name == "VLLM_SERVER_DEV_MODE") {
    options->server_dev_mode = IsTrue(value);
  } else if (name == "VLLM_ENABLE_RESPONSES_API_STORE") {
    options->store_responses = IsTrue(value);
  }
  return {};  // the others are read where they are used: they name places and kernel families
}

}  // namespace

std::span<const EnvVariable> EnvTable() {
  return kTable;
}

Environment CurrentEnvironment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::sort(environment.begin(), environment.end());
  return environment;
}

Result<EnvReport> ApplyEnvironment(const Environment& environment, Options* options) {
  EnvReport report;
  for (const auto& [name, value] : environment) {
    const EnvVariable* variable = FindVariable(name);
    if (variable == nullptr || value.empty()) continue;
    const std::string shown = fmt::format("{}={}", name, name == "VLLM_API_KEY" ? "(hidden)" : Printable(value));
    if (variable->acts) {
      AVOCET_TRY_VOID(Apply(name, value, options));
      report.acting.push_back(shown);
    } else {
      report.without_effect.push_back(fmt::format("{}: {}", shown, variable->help));
    }
  }
  return report;
}

}  // namespace avocet::cli
