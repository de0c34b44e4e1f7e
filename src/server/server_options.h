// Everything the server is told at start. Filled by cli from flags, environment and the model folder; read-only afterwards.
// Plain data: no knowledge of the model beyond what is spelled out here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "server/output_format.h"
#include "tokenizer/chat_template.h"

namespace avocet::server {

enum class ClientCertificates : uint8_t { kNone, kOptional, kRequired };  // --ssl-cert-reqs 0, 1, 2

struct TlsOptions {
  std::string certfile;  // empty: plain HTTP
  std::string keyfile;   // empty: in certfile
  std::string ca_certs;  // of clients' certificates
  ClientCertificates client_certificates = ClientCertificates::kNone;
  std::string ciphers;   // empty: the library's choice
  bool refresh = false;  // read the files again when they change
};

struct ListenOptions {
  std::string host;      // empty: all interfaces, IPv6 and IPv4
  uint16_t port = 8000;  // 0: any free port, see Server::port()
  std::string uds;       // a Unix socket path instead of host and port
  TlsOptions tls = {};
};

struct HttpLimits {
  uint32_t header_bytes_max = 4u << 20;  // request line and headers; --h11-max-incomplete-event-size
  int32_t header_count_max = 256;        // --h11-max-header-count
  size_t body_bytes_max = limits::kBodyBytesMax;
  int32_t connections_max = 4096;                    // more are answered 503 and closed
  std::chrono::milliseconds header_timeout{30'000};  // from the first byte of a request to the end of its headers
  std::chrono::milliseconds read_timeout{60'000};    // without any byte of the body
  std::chrono::milliseconds write_timeout{60'000};   // without the peer taking any byte of the answer
  std::chrono::milliseconds keep_alive{5'000};       // idle between two requests; VLLM_HTTP_TIMEOUT_KEEP_ALIVE
  size_t queued_bytes_max = size_t{4} << 20;         // of a stream that the peer does not read; beyond it the request is cancelled
};

// generation_config.json after its overrides; what is absent there has the built-in default (serving.md 2.6).
struct SamplingDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int32_t> max_new_tokens;  // also the most that a request may ask for
};

struct CorsOptions {
  std::vector<std::string> allowed_origins;  // empty: no CORS headers; "*": any
  std::vector<std::string> allowed_methods{"*"};
  std::vector<std::string> allowed_headers{"*"};
  bool allow_credentials = false;
};

enum class ContentFormat : uint8_t { kAuto, kString, kParts };  // --chat-template-content-format auto, string, openai

struct ServerOptions {
  ListenOptions listen;
  HttpLimits http;
  int32_t num_io_threads = 2;
  int32_t num_helper_threads = 2;  // parse, render and tokenise what is long

  // The model, as clients see it.
  std::vector<std::string> served_model_names;  // at least one; the first is echoed in answers
  std::string model_root;                       // `root` in /v1/models: the MODEL as written
  bool accept_any_model_name = false;           // VLLM_SKIP_MODEL_NAME_VALIDATION
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;              // rows of the embedding; every id of a request is below it
  std::vector<int32_t> eos_token_ids;  // of the tokenizer and generation_config.json together
  SamplingDefaults sampling;
  bool drafts_are_on = false;       // --speculative-config: min_p and logit_bias are refused, as vllm serve does
  bool priorities_allowed = false;  // the engine runs --scheduling-policy priority

  // The chat template.
  tokenizer::Json chat_template_kwargs = tokenizer::Json::object();  // --default-chat-template-kwargs
  ContentFormat content_format = ContentFormat::kAuto;
  bool trust_request_chat_template = false;
  std::string response_role = "assistant";

  // Reasoning and tool calls in answers.
  ReasoningFormat reasoning_format = ReasoningFormat::kNone;  // --reasoning-parser
  ToolFormat tool_format = ToolFormat::kNone;                 // --tool-call-parser
  bool enable_auto_tool_choice = false;
  bool exclude_tools_when_none = false;  // --exclude-tools-when-tool-choice-none
  bool sends_reasoning_content = false;  // --enable-reasoning-content: `reasoning` under its former name too

  // The API.
  int32_t max_logprobs = 20;  // -1: the whole vocabulary
  bool return_tokens_as_token_ids = false;
  bool enable_prompt_tokens_details = false;
  bool enable_force_include_usage = false;
  int32_t stream_interval = 1;
  std::vector<std::string> api_keys;    // empty: no check
  bool require_key_everywhere = false;  // but for /health and /ping
  std::string root_path;
  bool enable_request_id_headers = false;
  std::string system_fingerprint;  // empty: none
  bool enable_tokenizer_info = false;
  bool enable_docs = true;                         // /openapi.json
  bool dev_mode = false;                           // VLLM_SERVER_DEV_MODE: routes for development
  bool store_responses = false;                    // VLLM_ENABLE_RESPONSES_API_STORE
  std::map<std::string, std::string> server_info;  // for /server_info
  bool enable_load_tracking = false;               // --enable-server-load-tracking
  CorsOptions cors;

  // Logs and metrics.
  bool log_stats = true;  // the periodic line and the engine's metrics
  std::chrono::milliseconds log_stats_interval{10'000};
  bool log_requests = false;
  bool log_outputs = false;
  std::optional<size_t> log_text_bytes_max;  // --max-log-len
  bool access_log = true;
  std::vector<std::string> access_log_skips;        // paths: --disable-access-log-for-endpoints
  std::map<std::string, std::string> cache_config;  // labels of vllm:cache_config_info
};

}  // namespace avocet::server
