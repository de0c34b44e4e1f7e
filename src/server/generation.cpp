#include "server/generation.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/printable.h"
#include "server/random_id.h"

namespace avocet::server {

namespace {

// Logprob entries of an answer beyond which a helper thread writes it: about 1 us each.
constexpr size_t kHelperEntriesMin = 5000;

double Seconds(engine::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string_view IdPrefix(AnswerKind kind) {
  switch (kind) {
    case AnswerKind::kCompletion: return "cmpl-";
    case AnswerKind::kResponse: return "resp_";
    case AnswerKind::kChat:
    case AnswerKind::kMessages: break;
  }
  return "chatcmpl-";
}

size_t NumLogprobEntries(std::span<const ChoiceNews> choices) {
  size_t num = 0;
  for (const ChoiceNews& choice : choices) {
    for (const auto& position : choice.prompt_logprobs) num += position.has_value() ? position->top.size() : 0;
    for (const engine::OutputToken& token : choice.delta.tokens) num += token.logprobs.has_value() ? token.logprobs->top.size() : 0;
  }
  return num;
}

}  // namespace

Generation::Generation(ActiveRequests& owner, uint64_t serial, std::unique_ptr<PreparedRequest> request, std::string request_id,
                       engine::Clock::time_point arrival, std::shared_ptr<HttpExchange> exchange)
    : owner_(owner),
      parts_(owner.parts_),
      serial_(serial),
      request_(std::move(request)),
      arrival_(arrival),
      exchange_(std::move(exchange)) {
  response_id_ = std::string(IdPrefix(request_->kind)) + request_id;
  MakeAnswer();
  if (request_->output.reasoning != ReasoningFormat::kNone && parts_.tokenizer != nullptr) {
    think_end_ = parts_.tokenizer->FindAdded("</think>");
  }
  for (size_t i = 0; i < request_->num_sequences(); ++i) {
    auto choice = std::make_unique<Choice>(parts_.tokenizer, request_->text_rules);
    choice->news.index = static_cast<int32_t>(i);
    choice->news.prompt = &PromptOf(i);
    if (request_->kind != AnswerKind::kCompletion) choice->parser.emplace(request_->output);
    choices_.push_back(std::move(choice));
  }
}

void Generation::MakeAnswer() {
  const ServerOptions& options = *parts_.options;
  const tokenizer::Tokenizer* tokenizer = parts_.tokenizer.get();
  AnswerHead head{.id = response_id_,
                  .created = static_cast<int64_t>(std::time(nullptr)),
                  .model = options.served_model_names.front(),
                  .fingerprint = options.system_fingerprint,
                  .details = options.enable_prompt_tokens_details ? UsageDetails::kShow : UsageDetails::kOmit};
  const ReasoningNames names = options.sends_reasoning_content ? ReasoningNames::kBoth : ReasoningNames::kNew;
  switch (request_->kind) {
    case AnswerKind::kChat: answer_ = MakeChatAnswer(std::move(head), *request_, tokenizer, names); return;
    case AnswerKind::kCompletion: answer_ = MakeCompletionAnswer(std::move(head), *request_, tokenizer); return;
    case AnswerKind::kMessages: answer_ = MakeMessagesAnswer(std::move(head)); return;
    case AnswerKind::kResponse: answer_ = MakeResponsesAnswer(std::move(head), *request_, tokenizer, parts_.responses); return;
  }
}

engine::Request Generation::MakeRequest(size_t choice) const {
  const PreparedPrompt& prompt = PromptOf(choice);
  engine::Request request;
  request.id = choices_[choice]->id;
  request.prompt = prompt.ids;
  request.sampling = request_->sampling;
  request.sampling.max_tokens = prompt.max_tokens;
  // Sample i of a prompt has the seed plus i: repeating the request repeats every answer, and no two are the same.
  const uint64_t sample = choice % static_cast<size_t>(request_->fields.n);
  if (request.sampling.seed.has_value()) *request.sampling.seed += sample;
  request.logprobs = request_->logprobs.value_or(-1);
  request.prompt_logprobs = request_->prompt_logprobs.value_or(-1);
  request.priority = request_->fields.priority;
  if (request_->vocabulary != nullptr) {
    request.constraint = std::make_shared<grammar::SequenceConstraint>(*request_->vocabulary, request_->rules);
  }
  request.arrival = arrival_;
  return request;
}

bool Generation::Submit() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = *choices_[i];
    choice.id = owner_.Register(this, i);
    if (auto submitted = parts_.backend->Submit(MakeRequest(i)); !submitted) {
      owner_.Unregister(choice.id);
      Fail(ToApiError(submitted.error()));
      return false;
    }
    choice.is_live = true;
  }
  return true;
}

void Generation::EndSequence(Choice& choice) {
  if (!std::exchange(choice.is_live, false)) return;
  owner_.Unregister(choice.id);
}

void Generation::ObserveTokens(Choice& choice, size_t num_tokens, engine::Clock::time_point now) {
  if (num_tokens == 0) return;
  if (choice.has_first_output) {
    parts_.metrics->ObserveInterToken(Seconds(now - choice.last_output));
  } else {
    parts_.metrics->ObserveFirstToken(Seconds(now - arrival_), static_cast<int32_t>(choice.news.prompt->ids.size()));
  }
  choice.has_first_output = true;
  choice.last_output = now;
  parts_.metrics->AddOutputTokens(static_cast<int32_t>(num_tokens));
}

void Generation::ObserveEnd(const Choice& choice, engine::FinishReason reason, const engine::RequestTimes& times,
                            engine::Clock::time_point now) const {
  SequenceSummary summary{.finish = reason, .times = times, .ended = now};
  summary.times.arrival = arrival_;
  summary.num_prompt_tokens = static_cast<int32_t>(choice.news.prompt->ids.size());
  summary.num_output_tokens = choice.stream.num_tokens();
  summary.max_tokens = choice.news.prompt->max_tokens;
  parts_.metrics->ObserveSequence(summary);
}

bool Generation::OnEvent(size_t index, engine::RequestEvent& event, engine::Clock::time_point now) {
  Choice& choice = *choices_[index];
  ObserveTokens(choice, event.tokens.size(), now);
  if (!event.prompt_logprobs.empty()) choice.news.prompt_logprobs = std::move(event.prompt_logprobs);
  choice.cached_tokens = std::max(choice.cached_tokens, event.num_cached_tokens);
  ChoiceDelta delta = choice.stream.Push(event);
  if (event.finish.has_value()) {
    EndSequence(choice);
    if (*event.finish == engine::FinishReason::kError) {
      ObserveEnd(choice, engine::FinishReason::kError, event.times, now);
      Fail({500, std::string(ErrorType(500)), event.error, {}});
      return true;
    }
  } else if (delta.finish.has_value()) {
    parts_.backend->Cancel(choice.id);  // a stop string: what the engine samples from here on is not wanted
    EndSequence(choice);
  }
  if (request_->has_no_output) {
    delta.text.clear();
    delta.tokens.clear();
    if (delta.finish.has_value()) delta.finish = Finish{.reason = engine::FinishReason::kLength, .stop_reason = {}};
  }
  if (parts_.options->log_requests && parts_.options->log_outputs) logged_output_ += delta.text;
  if (choice.parser.has_value()) choice.news.piece.Append(SplitText(choice, delta));
  const bool is_finished = delta.finish.has_value();
  if (is_finished) ObserveEnd(choice, delta.finish->reason, event.times, now);
  choice.news.delta.Append(std::move(delta));
  if (request_->fields.is_stream) SendNews(choice);
  num_finished_ += is_finished ? 1 : 0;
  if (num_finished_ < choices_.size()) return false;
  Complete();
  return true;
}

// The thoughts end at their token; where a call ends them instead, or the vocabulary has no such token, the text tells, one event late.
void Generation::CountReasoning(Choice& choice, std::span<const engine::OutputToken> tokens) const {
  if (!choice.parser->in_reasoning()) return;
  for (const engine::OutputToken& token : tokens) {
    if (token.id == think_end_) return;
    ++choice.reasoning_tokens;
  }
}

OutputPiece Generation::SplitText(Choice& choice, ChoiceDelta& delta) const {
  CountReasoning(choice, delta.tokens);
  OutputPiece piece = choice.parser->Push(delta.text);
  if (delta.finish.has_value()) piece.Append(choice.parser->Finish());
  if (!request_->shows_reasoning) piece.reasoning.clear();
  if (request_->keeps_one_call) std::erase_if(piece.tool_calls, [](const ToolCallPiece& call) { return call.index > 0; });
  const bool has_short_ids = parts_.options->tool_format == ToolFormat::kFunctionTags;
  for (ToolCallPiece& call : piece.tool_calls) {
    if (!call.name.empty()) call.id = has_short_ids ? "call_" + RandomHex().substr(0, 24) : "chatcmpl-tool-" + RandomHex();
  }
  if (delta.finish.has_value() && delta.finish->reason == engine::FinishReason::kStop) {
    delta.finish->is_tool_calls = choice.parser->num_tool_calls() > 0 && request_->tool_choice.kind != ToolChoiceKind::kNamed;
  }
  return piece;
}

void Generation::SendNews(Choice& choice) {
  const size_t num_waiting = choice.news.delta.tokens.size();
  const bool is_due =
      !choice.has_sent || choice.news.delta.finish.has_value() || num_waiting >= static_cast<size_t>(request_->fields.stream_interval);
  if (!is_due) return;
  if (!std::exchange(has_begun_stream_, true)) exchange_->BeginStream("text/event-stream; charset=utf-8");
  choice.has_sent = true;
  std::string events;
  const Usage usage = CurrentUsage();
  answer_->AppendEvents(choice.news, request_->fields.continuous_usage ? &usage : nullptr, events);
  choice.news.delta = {};
  choice.news.piece = {};
  choice.news.prompt_logprobs.clear();
  exchange_->Write(std::move(events));
}

Usage Generation::CurrentUsage() const {
  Usage usage;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i % static_cast<size_t>(request_->fields.n) == 0) {
      usage.prompt_tokens += static_cast<int64_t>(PromptOf(i).ids.size());
      usage.cached_tokens += choices_[i]->cached_tokens;
    }
    if (!request_->has_no_output) usage.completion_tokens += choices_[i]->stream.num_tokens();
    if (request_->output.reasoning != ReasoningFormat::kNone) {
      usage.reasoning_tokens = usage.reasoning_tokens.value_or(0) + choices_[i]->reasoning_tokens;
    }
  }
  return usage;
}

void Generation::Complete() {
  parts_.metrics->ObserveRequest(request_->fields.n);
  LogEnd();
  if (!request_->fields.is_stream) {
    RespondWhole();
    return;
  }
  std::string events;
  answer_->AppendEnd(CurrentUsage(), request_->fields.include_usage ? Answer::UsageEvent::kSend : Answer::UsageEvent::kOmit, events);
  exchange_->Write(std::move(events));
  exchange_->EndStream();
}

void Generation::RespondWhole() {
  std::vector<ChoiceNews> choices;
  const Usage usage = CurrentUsage();
  for (auto& choice : choices_) choices.push_back(std::move(choice->news));
  if (NumLogprobEntries(choices) < kHelperEntriesMin) {
    exchange_->Respond(200, "application/json", answer_->Body(choices, usage));
    return;
  }
  // The prompts are the request's, which the answer refers to: all of it moves along.
  auto write = [answer = std::move(answer_), request = std::move(request_), choices = std::move(choices), usage, exchange = exchange_] {
    int status = 200;
    std::string body;
    try {
      body = answer->Body(choices, usage);
    } catch (const std::exception& error) {  // no memory for it
      LogError("an answer could not be written: {}", error.what());
      status = 500;
      body = ErrorBody({500, {}, fmt::format("the answer could not be written: {}", error.what()), {}});
    }
    exchange->Post(
        [exchange, status, body = std::move(body)]() mutable { exchange->Respond(status, "application/json", std::move(body)); });
  };
  if (!parts_.helpers->Post(std::move(write))) {
    exchange_->Respond(503, "application/json", ErrorBody({503, {}, "too many long answers wait to be written; try again later", {}}));
  }
}

void Generation::Fail(const ApiError& error) {
  for (auto& choice : choices_) {
    if (choice->is_live) parts_.backend->Cancel(choice->id);
    EndSequence(*choice);
  }
  if (error.status >= 500) LogWarning("{}: {}", response_id_, error.message);
  if (!has_begun_stream_) {
    exchange_->Respond(error.status, "application/json", answer_->ErrorText(error));
    return;
  }
  std::string events;
  answer_->AppendError(error, events);
  exchange_->Write(std::move(events));
  exchange_->EndStream();
}

void Generation::CancelEngine() {
  for (auto& choice : choices_) {
    if (choice->is_live) parts_.backend->Cancel(choice->id);
  }
}

void Generation::Abandon() {
  const engine::Clock::time_point now = engine::Clock::now();
  for (auto& choice : choices_) {
    if (!choice->is_live) continue;
    parts_.backend->Cancel(choice->id);
    EndSequence(*choice);
    ObserveEnd(*choice, engine::FinishReason::kAbort, {}, now);
  }
  LogDebug("{}: the client has gone; cancelled", response_id_);
}

void Generation::LogEnd() const {
  const ServerOptions& options = *parts_.options;
  if (!options.log_requests || !options.log_outputs) return;
  LogInfo("Generated response {}: output: \"{}\"", response_id_,
          Printable(logged_output_, options.log_text_bytes_max.value_or(logged_output_.size())));
}

}  // namespace avocet::server
