#include "server/prepared_request.h"

#include <algorithm>
#include <utility>

#include "server/messages_api.h"
#include "server/responses_api.h"

namespace avocet::server {

namespace {

constexpr int32_t kCompletionMaxTokens = 16;  // of /v1/completions when the request does not say
// Normalisation (NFC) can compose three characters of three bytes into one; a text may have this many times the bytes of its tokens.
constexpr size_t kNormalizationShrinkMax = 4;

std::string JoinParts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) text += part.at("text").get_ref<const std::string&>();
  return text;
}

// Message content in the form that the template reads.
void FormatContent(Json& messages, ContentFormat format) {
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end()) continue;
    if (format == ContentFormat::kString && content->is_array()) *content = JoinParts(*content);
    if (format == ContentFormat::kParts && content->is_string()) {
      *content = Json::array({Json::object({{"type", "text"}, {"text", *content}})});
    }
  }
}

std::string TextOfContent(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return {};
  if (content->is_string()) return content->get<std::string>();
  return content->is_array() ? JoinParts(*content) : std::string();
}

void Truncate(std::vector<int32_t>& ids, size_t keep, TruncationSide side) {
  if (ids.size() <= keep) return;
  if (side == TruncationSide::kRight) {
    ids.resize(keep);
  } else {
    ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(keep));
  }
}

// The prompt ends inside a think block: what comes next continues the thoughts.
bool EndsInReasoning(std::string_view prompt) {
  const size_t turn = prompt.rfind("<|im_start|>");
  if (turn != std::string_view::npos) prompt.remove_prefix(turn);
  const size_t open = prompt.rfind("<think>");
  const size_t close = prompt.rfind("</think>");
  return open != std::string_view::npos && (close == std::string_view::npos || close < open);
}

}  // namespace

Preparer::Preparer(const ServerOptions& options, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                   std::optional<tokenizer::ChatTemplate> chat_template, const ResponseStore* store)
    : options_(options),
      tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      grammars_(std::make_unique<grammar::GrammarCache>(tokenizer_, options.vocab_size, options.eos_token_ids)),
      store_(store) {}

ApiResult<std::vector<int32_t>> Preparer::Encode(std::string_view text) const {
  if (tokenizer_ == nullptr)
    return Refuse(400, "prompt", "this server has no tokenizer (--skip-tokenizer-init): send token ids to /v1/completions");
  return tokenizer_->Encode(text);
}

ApiResult<std::string> Preparer::Render(const ChatInput& input) const {
  if (tokenizer_ == nullptr)
    return Refuse(400, "messages", "this server has no tokenizer (--skip-tokenizer-init): send token ids to /v1/completions");
  std::optional<tokenizer::ChatTemplate> own;
  if (input.chat_template.has_value()) {
    auto parsed = tokenizer::ChatTemplate::Parse(*input.chat_template, "chat_template");
    if (!parsed) return Refuse(400, "chat_template", "{}", parsed.error().message);
    own = *std::move(parsed);
  } else if (!chat_template_.has_value()) {
    return Refuse(400, "messages", "the model has no chat template; give one with --chat-template, or use /v1/completions");
  }
  const tokenizer::ChatTemplate& chat_template = own.has_value() ? *own : *chat_template_;

  tokenizer::ChatRender render;
  render.messages = input.messages;
  ContentFormat format = options_.content_format;
  if (format == ContentFormat::kAuto && !chat_template.wants_content_parts()) format = ContentFormat::kString;
  FormatContent(render.messages, format);
  render.tools = input.tools;
  render.add_generation_prompt = input.add_generation_prompt;
  render.continue_final_message = input.continue_final_message;
  render.kwargs = options_.chat_template_kwargs;
  render.kwargs.update(input.kwargs);
  render.eos_token = tokenizer_->eos_token();
  render.pad_token = tokenizer_->pad_token();
  render.bos_token = tokenizer_->bos_token();
  auto text = tokenizer::RenderChat(chat_template, render);
  if (!text) {
    ApiError error = ToApiError(text.error());
    if (error.param.empty()) error.param = "messages";
    return std::unexpected(std::move(error));
  }
  if (text->empty()) return Refuse(400, "messages", "the conversation renders to an empty prompt");
  return *std::move(text);
}

// Rejects what cannot fit before spending time on it.
ApiResult<void> Preparer::CheckTextLength(std::string_view text, const SamplingFields& fields) const {
  if (tokenizer_ == nullptr || fields.truncate_prompt_tokens.has_value()) return {};
  const size_t bytes_max =
      static_cast<size_t>(options_.max_model_len) * static_cast<size_t>(tokenizer_->max_token_bytes()) * kNormalizationShrinkMax;
  if (text.size() <= bytes_max) return {};
  return Refuse(
      400, "input_text",
      "the model's maximum context length is {} tokens, which cannot hold the {} bytes of the prompt; reduce the length of the input",
      options_.max_model_len, text.size());
}

ApiResult<PreparedPrompt> Preparer::PreparePrompt(std::string text, std::vector<int32_t> ids, const SamplingFields& fields,
                                                  AnswerKind kind) const {
  const int64_t length_max = options_.max_model_len;
  const int64_t wanted = std::max<int64_t>(fields.max_tokens.value_or(1), 1);
  if (fields.truncate_prompt_tokens.has_value()) {
    const int64_t keep = *fields.truncate_prompt_tokens == -1 ? std::max<int64_t>(length_max - wanted, 1) : *fields.truncate_prompt_tokens;
    Truncate(ids, static_cast<size_t>(keep), fields.truncation_side);
  }
  const int64_t num_prompt = static_cast<int64_t>(ids.size());
  if (num_prompt == 0) return Refuse(400, "prompt", "a prompt is empty: it has no tokens");
  if (num_prompt >= length_max) {
    return Refuse(400, "input_tokens", "the model's maximum context length is {} tokens, the prompt has {}; reduce the length of the input",
                  length_max, num_prompt);
  }
  if (fields.max_tokens.has_value() && num_prompt + wanted > length_max) {
    return Refuse(
        400, "input_tokens",
        "the model's maximum context length is {} tokens, but {} output tokens were requested and the prompt has {}, {} in total; "
        "reduce the length of the input or the requested output",
        length_max, wanted, num_prompt, num_prompt + wanted);
  }
  int64_t max_tokens = length_max - num_prompt;
  if (fields.max_tokens.has_value()) {
    max_tokens = wanted;
  } else if (kind == AnswerKind::kCompletion) {
    max_tokens = std::min<int64_t>(max_tokens, kCompletionMaxTokens);
  }
  if (options_.sampling.max_new_tokens.has_value()) max_tokens = std::min<int64_t>(max_tokens, *options_.sampling.max_new_tokens);
  if (max_tokens < fields.min_tokens) {
    return Refuse(400, "min_tokens", "min_tokens {} is above the {} tokens that the answer may have", fields.min_tokens, max_tokens);
  }
  return PreparedPrompt{std::move(ids), std::move(text), static_cast<int32_t>(max_tokens)};
}

ApiResult<void> Preparer::CheckAllowedTokens(const SamplingFields& fields) const {
  if (fields.allowed_token_ids.empty() || tokenizer_ == nullptr) return {};
  if (std::ranges::any_of(fields.allowed_token_ids, [this](int32_t id) { return tokenizer_->HasToken(id); })) return {};
  return Refuse(400, "allowed_token_ids", "none of the {} ids is a token", fields.allowed_token_ids.size());
}

void Preparer::FillShared(PreparedRequest& prepared) const {
  const SamplingFields& fields = prepared.fields;
  prepared.sampling = ResolveSampling(fields, options_, tokenizer_.get());
  prepared.prompt_logprobs = fields.prompt_logprobs;
  prepared.token_names = fields.return_tokens_as_token_ids ? TokenNames::kIds : TokenNames::kText;
  prepared.text_rules.stops = StopSet(fields.stop);
  prepared.text_rules.stop_text = fields.include_stop_str_in_output ? StopText::kKeep : StopText::kDrop;
  prepared.text_rules.special = fields.skip_special_tokens ? tokenizer::SpecialTokens::kSkip : tokenizer::SpecialTokens::kKeep;
  prepared.text_rules.min_tokens = fields.min_tokens;
}

ApiResult<void> Preparer::FillRules(const grammar::Source* source, const std::string& field, Thoughts thoughts,
                                    PreparedRequest& prepared) const {
  const std::optional<int32_t> budget = prepared.fields.thinking_token_budget;
  const bool limits_thoughts = budget.has_value() && thoughts == Thoughts::kOpen;
  if (source == nullptr && !limits_thoughts) return {};
  if (tokenizer_ == nullptr)
    return Refuse(400, field, "{} needs a tokenizer, which this server does without (--skip-tokenizer-init)", field);
  if (source != nullptr) {
    auto compiled = grammars_->Get(*source);
    if (!compiled) return Refuse(400, field, "{}: {}", field, compiled.error().message);
    prepared.rules.grammar = *std::move(compiled);
  }
  // Who splits the thoughts off wants the answer constrained, not them.
  const bool waits = thoughts == Thoughts::kOpen && (limits_thoughts || options_.reasoning_format != ReasoningFormat::kNone);
  prepared.rules.begin = waits ? grammar::Begin::kAfterThinking : grammar::Begin::kAtOnce;
  if (limits_thoughts) prepared.rules.thinking_budget = *budget;
  prepared.vocabulary = &grammars_->vocabulary();
  prepared.output.drops_gap = source != nullptr;
  return {};
}

grammar::Source Preparer::ToolSource(const ChatRequest& request) const {
  grammar::Source source{.kind = grammar::SourceKind::kToolCalls};
  source.markup = options_.tool_format == ToolFormat::kJsonTags ? grammar::CallMarkup::kJsonTags : grammar::CallMarkup::kFunctionTags;
  const bool is_named = request.tool_choice.kind == ToolChoiceKind::kNamed;
  if (is_named || !request.parallel_tool_calls) source.count = grammar::CallCount::kOne;
  for (const Json& tool : request.input.tools) {
    const Json& function = tool.at("function");
    std::string name = function.at("name").get<std::string>();
    if (is_named && name != request.tool_choice.name) continue;
    source.tools.push_back({std::move(name), function.contains("parameters") ? function.at("parameters") : Json(nullptr)});
  }
  return source;
}

ApiResult<void> Preparer::FillChatRules(const ChatRequest& request, Thoughts thoughts, PreparedRequest& prepared) const {
  const std::optional<Structure>& structure = prepared.fields.structure;
  const bool must_call = request.tool_choice.kind == ToolChoiceKind::kRequired || request.tool_choice.kind == ToolChoiceKind::kNamed;
  if (must_call && structure.has_value()) {
    return Refuse(400, structure->field, "{} and a tool_choice that asks for a call exclude each other", structure->field);
  }
  if (must_call) {
    const grammar::Source source = ToolSource(request);
    return FillRules(&source, "tools", thoughts, prepared);
  }
  return FillRules(structure.has_value() ? &structure->source : nullptr, structure.has_value() ? structure->field : "thinking_token_budget",
                   thoughts, prepared);
}

ApiResult<PreparedRequest> Preparer::PrepareCompletion(const Json& body) const {
  AVOCET_TRY(CompletionRequest request, ReadCompletionRequest(body, options_));
  AVOCET_TRY_VOID(CheckAllowedTokens(request.sampling));
  PreparedRequest prepared;
  prepared.kind = AnswerKind::kCompletion;
  prepared.fields = std::move(request.sampling);
  prepared.logprobs = request.logprobs;
  prepared.has_echo = request.has_echo;
  prepared.has_no_output = prepared.fields.max_tokens == 0;
  FillShared(prepared);
  if (const auto& structure = prepared.fields.structure) {
    AVOCET_TRY_VOID(FillRules(&structure->source, structure->field, Thoughts::kNone, prepared));
  }
  if (request.has_echo && request.logprobs.has_value()) {
    prepared.prompt_logprobs = std::max(prepared.prompt_logprobs.value_or(0), *request.logprobs);
  }
  for (PromptInput& input : request.prompts) {
    std::string text;
    std::vector<int32_t> ids;
    if (auto* given = std::get_if<std::string>(&input)) {
      text = std::move(*given);
      AVOCET_TRY_VOID(CheckTextLength(text, prepared.fields));
      AVOCET_TRY(ids, Encode(text));
    } else {
      ids = std::move(std::get<std::vector<int32_t>>(input));
    }
    const size_t num_given = ids.size();
    AVOCET_TRY(PreparedPrompt prompt, PreparePrompt(std::move(text), std::move(ids), prepared.fields, AnswerKind::kCompletion));
    const bool needs_text = request.has_echo && (prompt.text.empty() || prompt.ids.size() != num_given);
    if (needs_text && tokenizer_ != nullptr) prompt.text = tokenizer_->Decode(prompt.ids, prepared.text_rules.special);
    prepared.prompts.push_back(std::move(prompt));
  }
  return prepared;
}

void Preparer::FillOutput(const ChatRequest& request, std::string_view prompt, PreparedRequest& prepared) const {
  prepared.tool_choice = request.tool_choice;
  prepared.keeps_one_call = !request.parallel_tool_calls;
  prepared.shows_reasoning = request.include_reasoning;
  prepared.output.reasoning = options_.reasoning_format;
  prepared.output.starts_in_reasoning = options_.reasoning_format != ReasoningFormat::kNone && EndsInReasoning(prompt);
  if (request.tool_choice.kind == ToolChoiceKind::kNone) return;
  prepared.output.tools = options_.tool_format;
  for (const Json& tool : request.input.tools) {
    const Json& function = tool.at("function");
    const auto parameters = function.find("parameters");
    if (parameters != function.end()) prepared.output.schemas[function.at("name").get<std::string>()] = *parameters;
  }
}

ApiResult<PreparedRequest> Preparer::PrepareChat(const Json& body) const {
  AVOCET_TRY(ChatRequest request, ReadChatRequest(body, options_));
  if (request.tool_choice.kind == ToolChoiceKind::kNone && options_.exclude_tools_when_none) request.input.tools = nullptr;
  AVOCET_TRY_VOID(CheckAllowedTokens(request.sampling));
  AVOCET_TRY(std::string text, Render(request.input));
  AVOCET_TRY_VOID(CheckTextLength(text, request.sampling));
  AVOCET_TRY(std::vector<int32_t> ids, Encode(text));
  PreparedRequest prepared;
  prepared.kind = AnswerKind::kChat;
  FillOutput(request, text, prepared);
  const Thoughts thoughts = EndsInReasoning(text) ? Thoughts::kOpen : Thoughts::kNone;
  AVOCET_TRY(PreparedPrompt prompt, PreparePrompt(std::move(text), std::move(ids), request.sampling, AnswerKind::kChat));
  prepared.fields = std::move(request.sampling);
  prepared.logprobs = request.logprobs;
  FillShared(prepared);
  AVOCET_TRY_VOID(FillChatRules(request, thoughts, prepared));
  const Json& last = request.input.messages.back();
  prepared.role = request.input.add_generation_prompt ? options_.response_role : last.at("role").get<std::string>();
  prepared.has_echo = request.has_echo && last.at("role") == prepared.role;
  prepared.prompts.push_back(std::move(prompt));
  if (prepared.has_echo) prepared.prompts.front().text = TextOfContent(last);
  return prepared;
}

ApiResult<Json> Preparer::Tokenize(const Json& body) const {
  AVOCET_TRY(TokenizeRequest request, ReadTokenizeRequest(body, options_));
  std::string text;
  if (auto* given = std::get_if<std::string>(&request.input)) {
    text = std::move(*given);
  } else {
    AVOCET_TRY(text, Render(std::get<ChatInput>(request.input)));
  }
  AVOCET_TRY(const std::vector<int32_t> ids, Encode(text));
  Json answer = Json::object();
  answer["count"] = ids.size();
  answer["max_model_len"] = options_.max_model_len;
  answer["tokens"] = ids;
  answer["token_strs"] = nullptr;
  if (request.return_token_strs) {
    Json strings = Json::array();
    for (const int32_t id : ids) strings.push_back(tokenizer_->TokenString(id));
    answer["token_strs"] = std::move(strings);
  }
  return answer;
}

ApiResult<Json> Preparer::Detokenize(const Json& body) const {
  AVOCET_TRY(const DetokenizeRequest request, ReadDetokenizeRequest(body, options_));
  if (tokenizer_ == nullptr) return Refuse(400, "tokens", "this server has no tokenizer (--skip-tokenizer-init)");
  Json answer = Json::object();
  answer["prompt"] = tokenizer_->Decode(request.tokens, tokenizer::SpecialTokens::kKeep);
  return answer;
}

ApiResult<PreparedRequest> Preparer::PrepareMessages(const Json& body) const {
  AVOCET_TRY(const Json chat, ChatBodyOfMessages(body, MessagesUse::kGenerate));
  AVOCET_TRY(PreparedRequest prepared, PrepareChat(chat));
  prepared.kind = AnswerKind::kMessages;
  prepared.output.drops_gap = true;
  return prepared;
}

ApiResult<PreparedRequest> Preparer::PrepareResponse(const Json& body) const {
  AVOCET_TRY(ResponseRequest request, ReadResponseRequest(body, store_));
  AVOCET_TRY(PreparedRequest prepared, PrepareChat(request.chat));
  prepared.kind = AnswerKind::kResponse;
  prepared.output.drops_gap = true;
  prepared.echo = std::move(request.echo);
  prepared.is_stored = request.is_stored;
  if (request.is_stored) prepared.conversation = std::move(request.chat["messages"]);
  return prepared;
}

ApiResult<PreparedRequest> Preparer::PrepareInvocation(const Json& body) const {
  const bool is_object = body.is_object();
  if (is_object && body.contains("messages")) return PrepareChat(body);
  if (is_object && body.contains("prompt")) return PrepareCompletion(body);
  return Refuse(400, "", "the body has neither messages nor a prompt");
}

ApiResult<Json> Preparer::CountTokens(const Json& body) const {
  AVOCET_TRY(const Json chat, ChatBodyOfMessages(body, MessagesUse::kCount));
  AVOCET_TRY(ChatRequest request, ReadChatRequest(chat, options_));
  AVOCET_TRY(const std::string text, Render(request.input));
  AVOCET_TRY(const std::vector<int32_t> ids, Encode(text));
  return Json::object({{"input_tokens", ids.size()}});
}

namespace {

Json RenderedJson(const PreparedRequest& request, const PreparedPrompt& prompt, const ServerOptions& options) {
  const engine::SamplingParams& sampling = request.sampling;
  Json params = Json::object({{"n", request.fields.n},
                              {"temperature", sampling.temperature},
                              {"top_p", sampling.top_p},
                              {"top_k", sampling.top_k},
                              {"min_p", sampling.min_p},
                              {"max_tokens", prompt.max_tokens}});
  return Json::object({{"model", options.served_model_names.front()},
                       {"prompt", prompt.text},
                       {"token_ids", prompt.ids},
                       {"sampling_params", std::move(params)}});
}

}  // namespace

ApiResult<Json> Preparer::RenderedChat(const Json& body) const {
  AVOCET_TRY(const PreparedRequest request, PrepareChat(body));
  Json rendered = RenderedJson(request, request.prompts.front(), options_);
  if (tokenizer_ != nullptr) rendered["prompt"] = tokenizer_->Decode(request.prompts.front().ids, tokenizer::SpecialTokens::kKeep);
  return rendered;
}

ApiResult<Json> Preparer::RenderedPrompts(const Json& body) const {
  AVOCET_TRY(const PreparedRequest request, PrepareCompletion(body));
  Json list = Json::array();
  for (const PreparedPrompt& prompt : request.prompts) list.push_back(RenderedJson(request, prompt, options_));
  return list;
}

Json Preparer::TokenizerInfo() const {
  Json info = Json::object({{"model_max_length", options_.max_model_len}, {"vocab_size", options_.vocab_size}});
  if (tokenizer_ == nullptr) return info;
  info["num_tokens"] = tokenizer_->vocab_size();
  info["eos_token"] = tokenizer_->eos_token();
  info["pad_token"] = tokenizer_->pad_token();
  info["bos_token"] = tokenizer_->bos_token();
  return info;
}

}  // namespace avocet::server
