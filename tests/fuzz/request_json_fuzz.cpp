// Bodies of requests: every one is prepared for the engine or refused with a 4xx (or 501) that is valid JSON. What is prepared keeps the
// promises that the engine relies on. The first byte chooses the route.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/json_input.h"
#include "server/prepared_request.h"

namespace avocet::server {
namespace {

constexpr int32_t kVocabulary = 257;
constexpr int32_t kMaxModelLen = 512;

// All bytes as tokens, and one special token.
std::shared_ptr<const tokenizer::Tokenizer> ByteTokenizer() {
  std::string vocabulary;
  int extra = 256;
  for (int byte = 0; byte < 256; ++byte) {
    // The letters of byte-level tokenizers: printable ones stand for themselves, the others follow from U+0100.
    const bool is_printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const int letter = is_printable ? byte : extra++;
    vocabulary += fmt::format("{}\"\\u{:04x}\":{}", byte == 0 ? "" : ",", letter, byte);
  }
  const std::string json = fmt::format(
      R"({{"added_tokens":[{{"id":256,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}}],
          "normalizer":{{"type":"NFC"}},"pre_tokenizer":{{"type":"Sequence","pretokenizers":[
              {{"type":"Split","pattern":{{"Regex":"\\p{{L}}+|\\s+"}},"behavior":"Isolated","invert":false}},
              {{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}}]}},
          "decoder":{{"type":"ByteLevel"}},"model":{{"type":"BPE","vocab":{{{}}},"merges":[]}}}})",
      vocabulary);
  auto tokenizer = tokenizer::Tokenizer::Parse(json, "");
  CHECK(tokenizer.has_value(), "the fuzzer's tokenizer: {}", tokenizer.error().message);
  return *tokenizer;
}

ServerOptions Options() {
  ServerOptions options;
  options.served_model_names = {"m"};
  options.max_model_len = kMaxModelLen;
  options.vocab_size = kVocabulary;
  options.trust_request_chat_template = true;
  options.priorities_allowed = true;
  options.tool_format = ToolFormat::kFunctionTags;
  options.reasoning_format = ReasoningFormat::kThinkTags;
  options.enable_auto_tool_choice = true;
  return options;
}

const Preparer& ThePreparer() {
  static const ServerOptions options = Options();
  static const auto* const preparer = [] {
    auto parsed = tokenizer::ChatTemplate::Parse(
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% "
        "endfor %}"
        "{{ tools | tojson if tools }}{% if add_generation_prompt %}>{% endif %}",
        "fuzz");
    CHECK(parsed.has_value(), "the fuzzer's template: {}", parsed.error().message);
    return new Preparer(options, ByteTokenizer(), *std::move(parsed));  // NOLINT: lives as long as the process
  }();
  return *preparer;
}

void CheckRefusal(const ApiError& error) {
  CHECK(error.status == 400 || error.status == 404 || error.status == 501, "status {}: {}", error.status, error.message);
  CHECK(!error.message.empty(), "an error without a message");
  CHECK(Json::accept(ErrorBody(error)), "an error body that is no JSON: {}", ErrorBody(error));
}

void CheckPrepared(const PreparedRequest& request) {
  CHECK(!request.prompts.empty() && request.fields.n >= 1, "nothing to generate");
  for (const PreparedPrompt& prompt : request.prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size());
    CHECK(length > 0 && prompt.max_tokens >= 1 && length + prompt.max_tokens <= kMaxModelLen, "{} + {} tokens", length, prompt.max_tokens);
    CHECK(request.sampling.min_tokens <= prompt.max_tokens, "min_tokens {}", request.sampling.min_tokens);
    CHECK(std::ranges::all_of(prompt.ids, [](int32_t id) { return id >= 0 && id < kVocabulary; }), "a prompt id out of range");
  }
  const engine::SamplingParams& p = request.sampling;
  CHECK(p.temperature >= 0 && p.top_p > 0 && p.top_p <= 1 && p.min_p >= 0 && p.min_p <= 1 && p.repetition_penalty > 0, "a sampling value");
}

}  // namespace
}  // namespace avocet::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace avocet::server;  // NOLINT(google-build-using-namespace): one function
  if (size == 0) return 0;
  const auto body = ParseJson({reinterpret_cast<const char*>(data) + 1, size - 1}, "the body");
  if (!body) {
    CheckRefusal(ToApiError(body.error()));
    return 0;
  }
  (void)DumpJson(*body);
  const auto check_answer = [](const ApiResult<Json>& answer) {
    answer.has_value() ? (void)DumpJson(*answer) : CheckRefusal(answer.error());
  };
  const auto check_request = [](const ApiResult<PreparedRequest>& request) {
    request.has_value() ? CheckPrepared(*request) : CheckRefusal(request.error());
  };
  switch (data[0] % 8) {
    case 4: check_request(ThePreparer().PrepareMessages(*body)); break;
    case 5: check_request(ThePreparer().PrepareResponse(*body)); break;
    case 6: check_answer(ThePreparer().CountTokens(*body)); break;
    case 7: check_request(ThePreparer().PrepareInvocation(*body)); break;
    case 0: check_request(ThePreparer().PrepareCompletion(*body)); break;
    case 1: check_request(ThePreparer().PrepareChat(*body)); break;
    case 2: check_answer(ThePreparer().Tokenize(*body)); break;
    default: check_answer(ThePreparer().Detokenize(*body)); break;
  }
  return 0;
}
