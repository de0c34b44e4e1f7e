#include "cli/options.h"

namespace avocet::cli {

std::string_view CommandName(Command command) {
  switch (command) {
    case Command::kServe: return "serve";
    case Command::kChat: return "chat";
    case Command::kInspect: return "inspect";
    case Command::kBenchLatency: return "bench latency";
    case Command::kBenchThroughput: return "bench throughput";
  }
  return "";
}

Result<void> CheckOptions(Command command, const Options& options) {
  if (command == Command::kServe && options.model.empty() && !options.served_model_name.empty()) {
    return FailParam("served-model-name",
                     "--served-model-name names a MODEL, but none is given; write it first: avocet serve MODEL --served-model-name {}",
                     options.served_model_name[0]);
  }
  if (options.enable_auto_tool_choice && options.tool_call_parser.empty()) {
    return FailParam("enable-auto-tool-choice", "--enable-auto-tool-choice needs --tool-call-parser; qwen3_coder fits this family");
  }
  if (options.ssl_certfile.empty() && !(options.ssl_keyfile + options.ssl_ca_certs + options.ssl_ciphers).empty()) {
    return FailParam("ssl-certfile", "TLS needs --ssl-certfile beside the other --ssl flags");
  }
  if (options.ssl_cert_reqs != 0 && options.ssl_ca_certs.empty()) {
    return FailParam("ssl-cert-reqs", "--ssl-cert-reqs {} needs --ssl-ca-certs to check clients' certificates against",
                     options.ssl_cert_reqs);
  }
  if (options.enable_log_outputs && !options.enable_log_requests) {
    return FailParam("enable-log-outputs", "--enable-log-outputs needs --enable-log-requests");
  }
  if (options.max_num_seqs && options.max_num_batched_tokens && *options.max_num_batched_tokens < *options.max_num_seqs) {
    return FailParam("max-num-batched-tokens",
                     "--max-num-batched-tokens {} is below --max-num-seqs {}: a step must have room for one token of every sequence",
                     *options.max_num_batched_tokens, *options.max_num_seqs);
  }
  if (command == Command::kChat && options.skip_tokenizer_init) {
    return FailParam("skip-tokenizer-init", "a conversation needs the tokenizer; leave out --skip-tokenizer-init");
  }
  return {};
}

}  // namespace avocet::cli
