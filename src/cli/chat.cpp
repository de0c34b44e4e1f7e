#include "cli/chat.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/log.h"
#include "cli/assembly.h"
#include "cli/event_queue.h"
#include "cli/json_text.h"
#include "cli/line_reader.h"
#include "cli/sampling.h"
#include "cli/start_report.h"
#include "server/output_parser.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/text_decoder.h"

namespace avocet::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> g_interrupted{false};

void OnInterrupt(int /*signal*/) {
  g_interrupted.store(true);
}

// Without SA_RESTART: waiting for a line must end too.
void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

void Write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Thoughts dimmed at a terminal; from a pipe the answer alone.
class Printer {
 public:
  explicit Printer(bool is_terminal) : is_terminal_(is_terminal) {}

  void Print(const server::OutputPiece& piece) {
    if (!piece.reasoning.empty() && is_terminal_) {
      if (!is_dim_) Write("\x1b[2m");
      is_dim_ = true;
      Write(piece.reasoning);
    }
    // The blank lines between thoughts and answer belong to the format, not to the answer.
    std::string_view content = piece.content;
    if (last_ == '\0') content.remove_prefix(std::min(content.find_first_not_of('\n'), content.size()));
    if (content.empty()) return;
    if (is_dim_) {
      Undim();
      Write("\n");
    }
    Write(content);
    last_ = content.back();
  }

  void End() {
    Undim();
    if (last_ != '\n') Write("\n");
  }

 private:
  void Undim() {
    if (is_dim_) Write("\x1b[0m");
    is_dim_ = false;
  }

  bool is_terminal_;
  bool is_dim_ = false;
  char last_ = '\0';
};

class Conversation {
 public:
  Conversation(const Options& options, const Assembly& assembly, engine::Engine& engine, EventQueue& events)
      : options_(options), assembly_(assembly), engine_(engine), events_(events), is_terminal_(isatty(STDOUT_FILENO) == 1) {
    if (!options.default_chat_template_kwargs.empty()) {
      if (Result<Json> kwargs = ParseJson(options.default_chat_template_kwargs)) kwargs_ = *std::move(kwargs);
    }
    Reset();
  }

  void Reset() {
    messages_ = Json::array();
    if (!options_.system_prompt.empty()) Append("system", options_.system_prompt);
  }

  // One turn. An error leaves the conversation as it was.
  Result<void> Say(const std::string& text) {
    const size_t num_before = messages_.size();
    Append("user", text);
    Result<std::string> answer = Answer();
    if (!answer) {
      messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(num_before), messages_.end());
      return std::unexpected(std::move(answer).error());
    }
    Append("assistant", *answer);
    return {};
  }

 private:
  void Append(std::string role, std::string content) {
    Json message = Json::object();
    message["role"] = std::move(role);
    message["content"] = std::move(content);
    messages_.push_back(std::move(message));
  }

  Result<std::string> RenderPrompt() const {
    const tokenizer::Tokenizer& tokenizer = *assembly_.tokenizer;
    return tokenizer::RenderChat(*assembly_.chat_template, {.messages = messages_,
                                                            .tools = nullptr,
                                                            .kwargs = kwargs_,
                                                            .eos_token = tokenizer.eos_token(),
                                                            .pad_token = tokenizer.pad_token(),
                                                            .bos_token = tokenizer.bos_token()});
  }

  // Renders, submits, prints as it comes; the whole text of the answer.
  Result<std::string> Answer() {
    AVOCET_TRY(const std::string prompt, RenderPrompt());
    engine::Request request;
    request.id = ++last_id_;
    request.prompt = assembly_.tokenizer->Encode(prompt);
    request.arrival = Clock::now();
    request.sampling = SamplingFor(options_, assembly_);
    const auto room = static_cast<int64_t>(assembly_.plan.max_model_len) - static_cast<int64_t>(request.prompt.size());
    if (room < 1) {
      return Fail(Errc::kInvalidArgument, "the conversation has {} tokens and the context {}; /new starts afresh", request.prompt.size(),
                  assembly_.plan.max_model_len);
    }
    request.sampling.max_tokens = static_cast<int32_t>(std::min<int64_t>(request.sampling.max_tokens, room));
    // A template that opens the thoughts leaves the answer to begin inside them.
    const bool is_open = std::string_view(prompt).substr(0, prompt.find_last_not_of(" \n") + 1).ends_with("<think>");
    server::OutputParser parser({.reasoning = server::ReasoningFormat::kThinkTags, .starts_in_reasoning = is_open, .schemas = {}});
    AVOCET_TRY_VOID(engine_.Submit(std::move(request)));
    return Stream(is_open ? "<think>\n" : "", parser);
  }

  Result<std::string> Stream(std::string text, server::OutputParser& parser) {
    constexpr auto kPatience = std::chrono::milliseconds(50);  // how fast Ctrl-C is seen
    tokenizer::TextDecoder decoder(assembly_.tokenizer, tokenizer::SpecialTokens::kSkip);
    Printer printer(is_terminal_);
    g_interrupted.store(false);
    for (;;) {
      if (g_interrupted.exchange(false)) engine_.Cancel(last_id_);
      for (const engine::RequestEvent& event : events_.Take(kPatience)) {
        if (event.id != last_id_) continue;
        std::string piece;
        for (const engine::OutputToken& token : event.tokens) piece += decoder.Push(token.id);
        if (event.finish) piece += decoder.Flush();
        text += piece;
        printer.Print(parser.Push(piece));
        if (!event.finish) continue;
        printer.Print(parser.Finish());
        printer.End();
        if (*event.finish == engine::FinishReason::kError) return Fail(Errc::kInternal, "{}", event.error);
        if (*event.finish == engine::FinishReason::kLength && is_terminal_) Write("(the answer was cut: --max-tokens or the context)\n");
        return text;
      }
    }
  }

  const Options& options_;
  const Assembly& assembly_;
  engine::Engine& engine_;
  EventQueue& events_;
  bool is_terminal_;
  Json messages_ = Json::array();
  Json kwargs_ = Json::object();
  engine::RequestId last_id_ = 0;
};

// One word of the program; false: it is a message for the model.
enum class Word : uint8_t { kMessage, kHandled, kQuit };
Word HandleWord(const std::string& line, Conversation& conversation) {
  if (line == "/quit" || line == "/exit") return Word::kQuit;
  if (line == "/new") {
    conversation.Reset();
    return Word::kHandled;
  }
  if (line == "/help") {
    Write("/new   forget the conversation\n/quit  end (also Ctrl-D)\nCtrl-C stops an answer\n");
    return Word::kHandled;
  }
  return Word::kMessage;
}

int Converse(Conversation& conversation) {
  const bool is_prompting = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  LineReader reader(STDIN_FILENO);
  int code = 0;
  for (std::string line;;) {
    if (is_prompting) Write("\x1b[1m> \x1b[0m");
    const LineReader::Outcome outcome = reader.Next(&line);
    if (outcome == LineReader::Outcome::kEnd) break;
    if (outcome == LineReader::Outcome::kInterrupted) {
      Write("\n(Ctrl-D ends)\n");
      continue;
    }
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const Word word = HandleWord(line, conversation);
    if (word == Word::kQuit) break;
    if (word == Word::kHandled) continue;
    if (const Result<void> said = conversation.Say(line); !said) {
      LogError("{}", said.error().message);
      code = is_prompting ? 0 : 1;
    }
  }
  if (is_prompting) Write("\n");
  return code;
}

// A conversation is one sequence with as much context as fits.
Options ChatDefaults(Options options) {
  if (!options.max_num_seqs) options.max_num_seqs = 1;
  if (options.max_model_len == 0) options.max_model_len = -1;
  return options;
}

Result<int> Run(const CommandLine& line, const Environment& environment) {
  const Options options = ChatDefaults(line.options);
  const Clock::time_point start = Clock::now();
  AVOCET_TRY(const std::unique_ptr<Assembly> assembly, Assemble(options, environment));
  if (assembly->tokenizer == nullptr)
    return Fail(Errc::kNotFound, "a conversation needs a tokenizer.json ({})", assembly->no_tokenizer_reason);
  if (!assembly->chat_template) {
    return Fail(Errc::kNotFound, "{} has no chat template; give one with --chat-template", assembly->files.path.dir);
  }
  EventQueue events;
  AVOCET_TRY(const std::unique_ptr<engine::Engine> engine,
             engine::Engine::Create(EngineOptionsFor(options, *assembly), *assembly->model, events));
  engine->Start();
  for (const std::string& note : ArgumentsWithoutEffect(line.arguments)) LogInfo("no effect: {}", note);
  if (isatty(STDIN_FILENO) == 1 && options.quick.empty()) {
    const std::string how = assembly->files.path.how.empty() ? "" : " (" + assembly->files.path.how + ")";
    LogInfo("{}{}, {:.1f} s to load, context of {} tokens. Ctrl-C stops an answer, Ctrl-D ends, /help says more", assembly->files.path.name,
            how, std::chrono::duration<double>(Clock::now() - start).count(), assembly->plan.max_model_len);
  }
  CatchInterrupts();
  Conversation conversation(options, *assembly, *engine, events);
  if (options.quick.empty()) return Converse(conversation);
  AVOCET_TRY_VOID(conversation.Say(options.quick));
  return 0;
}

}  // namespace

int Chat(const CommandLine& line, const Environment& environment) {
  const Result<int> code = Run(line, environment);
  if (code) return *code;
  LogError("{}", code.error().message);
  return 1;
}

}  // namespace avocet::cli
