#include "cli/serve.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "base/log.h"
#include "cli/assembly.h"
#include "cli/human_number.h"
#include "cli/json_text.h"
#include "cli/machine_rates.h"
#include "cli/signals.h"
#include "cli/start_report.h"
#include "engine/engine.h"
#include "server/server.h"
#include "weights/model_folder.h"

namespace avocet::cli {
namespace {

using Clock = std::chrono::steady_clock;

// A start that cannot be ends at once: a loader of a large checkpoint may still be at work on its own thread.
[[noreturn]] void FailAtOnce(const Error& error) {
  LogError("{}", error.message);
  std::fflush(stderr);
  _exit(1);
}

template <typename T>
T OrFail(Result<T> result) {
  if (!result) FailAtOnce(result.error());
  return *std::move(result);
}
void OrFail(const Result<void>& result) {
  if (!result) FailAtOnce(result.error());
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// The flag was checked to be a JSON list; items that are no text are shown as JSON.
std::vector<std::string> TextList(const std::string& json) {
  std::vector<std::string> list;
  const Result<Json> parsed = ParseJson(json);
  if (!parsed) return list;
  for (const Json& item : *parsed) list.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  return list;
}

std::vector<std::string> ServedNames(const Options& options, const ModelPath& path) {
  return options.served_model_name.empty() ? std::vector<std::string>{path.name} : options.served_model_name;
}

void FillHttp(const Options& options, server::ServerOptions* out) {
  out->listen = {.host = options.host, .port = static_cast<uint16_t>(options.port), .uds = options.uds, .tls = {}};
  out->listen.tls = {.certfile = options.ssl_certfile,
                     .keyfile = options.ssl_keyfile,
                     .ca_certs = options.ssl_ca_certs,
                     .client_certificates = static_cast<server::ClientCertificates>(options.ssl_cert_reqs),
                     .ciphers = options.ssl_ciphers,
                     .refresh = options.enable_ssl_refresh};
  out->http.header_bytes_max = static_cast<uint32_t>(options.h11_max_incomplete_event_size);
  out->http.header_count_max = options.h11_max_header_count;
  out->http.keep_alive = Milliseconds(options.keep_alive_s);
  out->api_keys = options.api_key;
  out->require_key_everywhere = options.require_api_key_everywhere;
  out->root_path = options.root_path;
  out->enable_request_id_headers = options.enable_request_id_headers;
  out->enable_load_tracking = options.enable_server_load_tracking;
  out->cors = {.allowed_origins = TextList(options.allowed_origins),
               .allowed_methods = TextList(options.allowed_methods),
               .allowed_headers = TextList(options.allowed_headers),
               .allow_credentials = options.allow_credentials};
}

void FillLogs(const Options& options, server::ServerOptions* out) {
  out->log_stats = !options.disable_log_stats;
  out->log_stats_interval = Milliseconds(options.log_stats_interval_s);
  out->log_requests = options.enable_log_requests;
  out->log_outputs = options.enable_log_outputs;
  if (options.max_log_len) out->log_text_bytes_max = static_cast<size_t>(*options.max_log_len);
  const std::string& level = options.uvicorn_log_level;
  out->access_log = !options.disable_uvicorn_access_log && (level == "info" || level == "debug" || level == "trace");
  for (const std::string_view path : SplitWords(options.disable_access_log_for_endpoints, ',')) out->access_log_skips.emplace_back(path);
}

void FillModel(const Options& options, const Assembly& assembly, server::ServerOptions* out) {
  const model::GenerationConfig& generation = assembly.files.generation;
  out->served_model_names = ServedNames(options, assembly.files.path);
  out->model_root = assembly.files.path.is_demo ? assembly.files.path.dir : assembly.files.path.name;
  out->accept_any_model_name = options.skip_model_name_validation;
  out->max_model_len = assembly.plan.max_model_len;
  out->vocab_size = assembly.files.config.vocab_rows;
  out->eos_token_ids = EndTokenIds(assembly);
  out->sampling = {.temperature = generation.temperature,
                   .top_p = generation.top_p,
                   .top_k = generation.top_k,
                   .min_p = generation.min_p,
                   .repetition_penalty = generation.repetition_penalty,
                   .max_new_tokens = generation.max_new_tokens};
  out->cache_config = {{"block_size", fmt::format("{}", assembly.plan.page_tokens)},
                       {"cache_dtype", assembly.files.precision == model::Precision::kF32 ? "float32" : "bfloat16"},
                       {"enable_prefix_caching", "False"},
                       {"gpu_memory_utilization", fmt::format("{}", options.gpu_memory_utilization)},
                       {"num_gpu_blocks", fmt::format("{}", assembly.plan.num_pages)}};
}

// Answers of servers with the same fingerprint can be compared: the same program, model and numbers.
std::string FingerprintOf(const Options& options, const Assembly& assembly) {
  if (options.fingerprint_mode == "none") return {};
  if (options.fingerprint_mode == "custom") return options.fingerprint_value;
  uint32_t hash = 2166136261u;  // FNV-1a: a name, not a secret
  for (const std::string& part : {assembly.files.path.name, options.dtype, options.quantization, assembly.files.dtype_note}) {
    for (const char c : part + '\n') hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  }
  return options.fingerprint_mode == "hash" ? fmt::format("{:08x}", hash) : fmt::format("avocet-{}-{:08x}", AVOCET_VERSION, hash);
}

void FillInfo(const Options& options, const Assembly& assembly, server::ServerOptions* out) {
  out->system_fingerprint = FingerprintOf(options, assembly);
  out->server_info = {{"model", assembly.files.path.name},
                      {"dtype", assembly.files.dtype_note},
                      {"max_model_len", fmt::format("{}", assembly.plan.max_model_len)},
                      {"max_num_seqs", fmt::format("{}", assembly.plan.max_num_seqs)},
                      {"max_num_batched_tokens", fmt::format("{}", assembly.plan.max_num_batched_tokens)},
                      {"num_pages", fmt::format("{}", assembly.plan.num_pages)},
                      {"page_tokens", fmt::format("{}", assembly.plan.page_tokens)},
                      {"scheduling_policy", options.scheduling_policy}};
}

void FillApi(const Options& options, server::ServerOptions* out) {
  out->drafts_are_on = !options.speculative_config.empty() && options.speculative_config != "{}";
  out->priorities_allowed = options.scheduling_policy == "priority";
  if (!options.default_chat_template_kwargs.empty()) {
    if (Result<Json> kwargs = ParseJson(options.default_chat_template_kwargs)) out->chat_template_kwargs = *std::move(kwargs);
  }
  const std::string& format = options.chat_template_content_format;
  out->content_format = format == "openai"   ? server::ContentFormat::kParts
                        : format == "string" ? server::ContentFormat::kString
                                             : server::ContentFormat::kAuto;
  out->trust_request_chat_template = options.trust_request_chat_template;
  out->response_role = options.response_role;
  out->enable_tokenizer_info = options.enable_tokenizer_info_endpoint;
  out->dev_mode = options.server_dev_mode;
  out->enable_docs = !options.disable_fastapi_docs;
  out->store_responses = options.store_responses;
  if (!options.reasoning_parser.empty()) out->reasoning_format = server::ReasoningFormat::kThinkTags;
  const std::string& parser = options.tool_call_parser;
  out->tool_format = parser.empty()                            ? server::ToolFormat::kNone
                     : parser == "hermes" || parser == "qwen3" ? server::ToolFormat::kJsonTags
                                                               : server::ToolFormat::kFunctionTags;
  out->enable_auto_tool_choice = options.enable_auto_tool_choice;
  out->exclude_tools_when_none = options.exclude_tools_when_tool_choice_none;
  out->sends_reasoning_content = options.enable_reasoning_content;
  out->max_logprobs = options.max_logprobs;
  out->return_tokens_as_token_ids = options.return_tokens_as_token_ids;
  out->enable_prompt_tokens_details = options.enable_prompt_tokens_details;
  out->enable_force_include_usage = options.enable_force_include_usage;
  out->stream_interval = options.stream_interval;
}

server::ServerOptions ServerOptionsFor(const Options& options, const Assembly& assembly) {
  server::ServerOptions out;
  FillHttp(options, &out);
  FillLogs(options, &out);
  FillModel(options, assembly, &out);
  FillInfo(options, assembly, &out);
  FillApi(options, &out);
  return out;
}

// Only worth its time when the load was worth timing.
double CopyRateFor(Assembly& assembly) {
  constexpr size_t kLargeBytes = size_t{64} << 20;
  if (assembly.load.file_bytes <= kLargeBytes) return 0;
  const Result<weights::ModelFolder> folder = weights::ModelFolder::Open(assembly.files.path.dir);
  const Result<std::vector<std::string>> names = folder ? folder->List(".safetensors") : std::vector<std::string>{};
  if (!names || names->empty()) return 0;
  const Result<std::string> path = folder->Resolve(names->front());
  double rate = 0;
  if (path) std::thread([&] { rate = MeasureFileCopyRate(*path, *assembly.pool); }).join();
  return rate;
}

void Report(const StartFacts& facts, const server::Server& server) {
  std::string screen;
  for (const std::string& line : DescribeStart(facts)) screen += "\n" + line;
  const ModelPath& path = facts.assembly.files.path;
  LogInfo("avocet {}: serving {} as {}{}{}", AVOCET_VERSION, path.dir, ServedNames(facts.line.options, path)[0],
          path.is_demo ? " (no MODEL was given: the bundled demo)" : "", screen);
  LogInfo("Application startup complete.");
  LogInfo("Listening on {}", server.url());
}

}  // namespace

int Serve(const CommandLine& line, const EnvReport& environment_report, const Environment& environment) {
  const Clock::time_point start = Clock::now();
  const Options& options = line.options;
  const std::unique_ptr<SignalWatch> signals = OrFail(SignalWatch::Start());

  // Bottom to top. The port is taken while the weights are read: a server that cannot listen says so before.
  const std::unique_ptr<Assembly> assembly = OrFail(Prepare(options, environment));
  WeightLoading weights(options, assembly.get());
  OrFail(LoadText(options, assembly.get()));
  const std::unique_ptr<server::Server> server =
      OrFail(server::Server::Create(ServerOptionsFor(options, *assembly), assembly->tokenizer, std::move(assembly->chat_template)));
  OrFail(weights.Finish());
  const double copy_rate = CopyRateFor(*assembly);
  std::unique_ptr<engine::Engine> engine =
      OrFail(engine::Engine::Create(EngineOptionsFor(options, *assembly), *assembly->model, server->sink()));
  server->Attach(std::make_unique<server::EngineBackend>(*engine));
  engine->Start();
  signals->StartServing();
  OrFail(server->Start());
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  Report({line, environment_report, *assembly, copy_rate, seconds}, *server);

  const int signal = signals->Wait();
  LogInfo("{}: finishing running requests, for at most {} s; a second signal ends at once", signal == SIGINT ? "SIGINT" : "SIGTERM",
          options.shutdown_timeout);

  // Top to bottom.
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(options.shutdown_timeout);
  server->Drain(deadline);
  engine->Drain(deadline);
  server->Stop();
  engine.reset();
  LogInfo("stopped");
  return 0;
}

}  // namespace avocet::cli
