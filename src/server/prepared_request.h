// A request made ready for the engine: text became tokens, defaults were filled in, every length was checked (serving.md 2.5).
// Prepare is pure: any thread may run it, io threads for short bodies, helpers for long ones.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "grammar/grammar_cache.h"
#include "server/api_error.h"
#include "server/completion_stream.h"
#include "server/logprob_format.h"
#include "server/openai.h"
#include "server/output_parser.h"
#include "server/response_store.h"
#include "server/server_options.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace avocet::server {

// kMessages and kResponse are chats in another dress.
enum class AnswerKind : uint8_t { kChat, kCompletion, kMessages, kResponse };

struct PreparedPrompt {
  std::vector<int32_t> ids;
  std::string text;        // for the echo and the log
  int32_t max_tokens = 0;  // what fits behind it
};

struct PreparedRequest {
  AnswerKind kind = AnswerKind::kCompletion;
  SamplingFields fields;  // as asked for
  std::vector<PreparedPrompt> prompts;
  engine::SamplingParams sampling;                  // of every sequence; seed and max_tokens are set one by one
  std::optional<int32_t> logprobs;                  // alternatives per token in the answer
  std::optional<int32_t> prompt_logprobs;           // what the engine is asked for, also for the echo's sake
  grammar::SequenceConstraint::Rules rules;         // what the answer must follow
  const grammar::Vocabulary* vocabulary = nullptr;  // null: nothing; else the server's
  bool has_echo = false;
  bool has_no_output = false;  // echo with max_tokens 0: only the prompt is of interest
  TokenNames token_names = TokenNames::kText;
  // Of a chat answer:
  std::string role;
  OutputParserOptions output;  // how its text is split
  ToolChoice tool_choice;
  bool keeps_one_call = false;  // parallel_tool_calls is false
  bool shows_reasoning = true;

  // Of a response:
  Json echo;          // fields of the request that the answer repeats
  Json conversation;  // for the store
  bool is_stored = false;

  TextRules text_rules;

  // Prompt `i / n`, sample `i % n`.
  size_t num_sequences() const { return prompts.size() * static_cast<size_t>(fields.n); }
};

class Preparer {
 public:
  // options: borrowed. tokenizer: null with token ids only.
  // store: of responses that a request may go on with; borrowed, null: there is none.
  Preparer(const ServerOptions& options, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
           std::optional<tokenizer::ChatTemplate> chat_template, const ResponseStore* store = nullptr);

  ApiResult<PreparedRequest> PrepareCompletion(const Json& body) const;
  ApiResult<PreparedRequest> PrepareChat(const Json& body) const;
  ApiResult<PreparedRequest> PrepareMessages(const Json& body) const;
  ApiResult<PreparedRequest> PrepareResponse(const Json& body) const;
  // /invocations: what the body looks like decides.
  ApiResult<PreparedRequest> PrepareInvocation(const Json& body) const;
  ApiResult<Json> Tokenize(const Json& body) const;         // the answer of /tokenize
  ApiResult<Json> Detokenize(const Json& body) const;       // the answer of /detokenize
  ApiResult<Json> CountTokens(const Json& body) const;      // the answer of /v1/messages/count_tokens
  ApiResult<Json> RenderedChat(const Json& body) const;     // the answer of /v1/chat/completions/render
  ApiResult<Json> RenderedPrompts(const Json& body) const;  // the answer of /v1/completions/render
  Json TokenizerInfo() const;                               // the answer of /tokenizer_info

 private:
  ApiResult<std::string> Render(const ChatInput& input) const;
  ApiResult<std::vector<int32_t>> Encode(std::string_view text) const;
  ApiResult<PreparedPrompt> PreparePrompt(std::string text, std::vector<int32_t> ids, const SamplingFields& fields, AnswerKind kind) const;
  ApiResult<void> CheckTextLength(std::string_view text, const SamplingFields& fields) const;
  void FillShared(PreparedRequest& prepared) const;
  void FillOutput(const ChatRequest& request, std::string_view prompt, PreparedRequest& prepared) const;
  // Compiles what the answer must follow. kOpen: the prompt ends inside a think block.
  enum class Thoughts : uint8_t { kNone, kOpen };
  ApiResult<void> FillRules(const grammar::Source* source, const std::string& field, Thoughts thoughts, PreparedRequest& prepared) const;
  grammar::Source ToolSource(const ChatRequest& request) const;
  ApiResult<void> FillChatRules(const ChatRequest& request, Thoughts thoughts, PreparedRequest& prepared) const;
  ApiResult<void> CheckAllowedTokens(const SamplingFields& fields) const;

  const ServerOptions& options_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::optional<tokenizer::ChatTemplate> chat_template_;
  std::unique_ptr<grammar::GrammarCache> grammars_;
  const ResponseStore* store_;
};

}  // namespace avocet::server
