// Everything a command line can say, in one struct; the flag table (flag_table.h) names the member behind each flag. Values are checked
// one by one when parsed and against each other by CheckOptions; what they need of the model or machine is decided later (assembly.h).
// Filled once by the main thread, read by all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace avocet::cli {

enum class Command : uint8_t { kServe, kChat, kInspect, kBenchLatency, kBenchThroughput };
std::string_view CommandName(Command command);  // "serve", "bench latency"

struct Options {
  // The model and its files.
  std::string model;  // a folder or the id of one in a local cache; empty: the bundled demo model
  std::string tokenizer;
  std::string revision;
  std::string download_dir;
  bool skip_tokenizer_init = false;
  std::string dtype = "auto";
  std::string quantization;
  std::string load_format = "auto";
  std::string generation_config = "auto";
  std::string override_generation_config;  // JSON
  std::string hf_overrides;                // JSON
  int64_t seed = 0;

  // The machine.
  int32_t num_threads = 0;  // 0: every core this process may really use

  // Memory.
  int64_t max_model_len = 0;  // 0: the model's own; -1: the longest that fits
  double gpu_memory_utilization = 0.9;
  std::optional<int64_t> kv_cache_memory_bytes;
  std::optional<int32_t> num_gpu_blocks_override;
  std::optional<int32_t> block_size;

  // The scheduler.
  std::optional<int32_t> max_num_seqs;
  std::optional<int64_t> max_num_batched_tokens;
  int32_t long_prefill_token_threshold = 0;
  std::string scheduling_policy = "fcfs";
  int32_t max_waiting = 0;

  // Features.
  std::string speculative_config;  // JSON

  // HTTP.
  std::vector<std::string> served_model_name;
  std::string host;
  int32_t port = 8000;
  std::string uds;
  std::vector<std::string> api_key;
  bool require_api_key_everywhere = false;
  std::string ssl_certfile, ssl_keyfile, ssl_ca_certs, ssl_ciphers;
  int32_t ssl_cert_reqs = 0;
  bool enable_ssl_refresh = false;
  bool disable_fastapi_docs = false;
  std::string root_path;
  bool enable_request_id_headers = false;
  int64_t h11_max_incomplete_event_size = 4 << 20;
  int32_t h11_max_header_count = 256;
  int32_t shutdown_timeout = 30;
  bool allow_credentials = false;
  std::string allowed_origins = "[]";  // JSON lists
  std::string allowed_methods = "[\"*\"]";
  std::string allowed_headers = "[\"*\"]";
  bool enable_server_load_tracking = false;

  // The API.
  std::string chat_template;
  std::string default_chat_template_kwargs;  // JSON
  std::string chat_template_content_format = "auto";
  bool trust_request_chat_template = false;
  std::string response_role = "assistant";
  int32_t max_logprobs = 20;
  bool return_tokens_as_token_ids = false;
  bool enable_prompt_tokens_details = false;
  bool enable_force_include_usage = false;
  int32_t stream_interval = 1;
  bool enable_auto_tool_choice = false;
  std::string tool_call_parser;
  bool enable_tokenizer_info_endpoint = false;
  std::string fingerprint_mode = "full";
  std::string fingerprint_value;
  std::string reasoning_parser;
  bool enable_reasoning_content = false;
  bool exclude_tools_when_tool_choice_none = false;

  // Logs.
  bool disable_log_stats = false;
  bool enable_log_requests = false;
  bool enable_log_outputs = false;
  std::optional<int32_t> max_log_len;
  std::string uvicorn_log_level = "info";
  bool disable_uvicorn_access_log = false;
  std::string disable_access_log_for_endpoints;

  // avocet chat.
  std::string system_prompt;
  std::string quick;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> top_k;
  std::optional<double> min_p;
  std::optional<double> presence_penalty;
  std::optional<double> repetition_penalty;
  std::optional<int32_t> max_tokens;

  // avocet inspect.
  bool list_tensors = false;
  bool list_kernels = false;
  bool list_isas = false;

  // avocet bench.
  std::optional<int32_t> input_len;
  std::optional<int32_t> output_len;
  int32_t batch_size = 8;
  int32_t num_iters = 30;
  int32_t num_iters_warmup = 10;
  int32_t num_prompts = 1000;
  int32_t n = 1;
  std::string dataset_name;
  std::string dataset_path;
  double random_range_ratio = 0;
  int32_t prefix_len = 0;
  bool disable_detokenize = false;
  std::string output_json;

  // From the environment only (environment.h).
  std::optional<double> kvcache_space_gib;  // VLLM_CPU_KVCACHE_SPACE
  std::string threads_bind;                 // VLLM_CPU_OMP_THREADS_BIND
  bool allow_long_max_model_len = false;    // VLLM_ALLOW_LONG_MAX_MODEL_LEN
  std::string logging_level;                // VLLM_LOGGING_LEVEL
  double log_stats_interval_s = 10;         // VLLM_LOG_STATS_INTERVAL
  double keep_alive_s = 5;                  // VLLM_HTTP_TIMEOUT_KEEP_ALIVE
  bool skip_model_name_validation = false;  // VLLM_SKIP_MODEL_NAME_VALIDATION
  bool server_dev_mode = false;             // VLLM_SERVER_DEV_MODE
  bool store_responses = false;             // VLLM_ENABLE_RESPONSES_API_STORE
};

// Rules between options that no single value breaks; the error names the flags.
Result<void> CheckOptions(Command command, const Options& options);

}  // namespace avocet::cli
