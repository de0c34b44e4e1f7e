// What streaming costs beside the model: one engine event to the bytes of its server-sent event (text, stop strings, JSON). JSON lines;
// best of several rounds. The goal is issue 3's: scheduler, sampler and streaming together below 5 % of a decode step.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "server/answer.h"
#include "server/completion_stream.h"

namespace {

using namespace avocet;
using SteadyClock = std::chrono::steady_clock;

constexpr int kRounds = 9;
constexpr int kTokens = 20'000;

struct Way {
  const char* name;
  std::vector<std::string> stops;
  std::optional<int32_t> logprobs;
};

double NanosecondsPerToken(const Way& way, const std::shared_ptr<const tokenizer::Tokenizer>& tokenizer) {
  server::PreparedRequest request;
  request.kind = server::AnswerKind::kChat;
  request.role = "assistant";
  request.prompts.push_back({{1, 2, 3}, "", kTokens});
  request.logprobs = way.logprobs;
  request.text_rules.stops = server::StopSet(way.stops);
  const auto answer =
      server::MakeChatAnswer({.id = "chatcmpl-0123456789abcdef0123456789abcdef", .created = 1, .model = "demo", .fingerprint = {}}, request,
                             tokenizer.get(), server::ReasoningNames::kNew);
  server::CompletionStream stream(tokenizer, request.text_rules);
  const int32_t vocabulary = std::min(tokenizer->vocab_size(), 1000);
  size_t num_bytes = 0;
  const auto begin = SteadyClock::now();
  for (int i = 0; i < kTokens; ++i) {
    engine::RequestEvent event;
    event.tokens.push_back({i * 7 % vocabulary, std::nullopt});
    if (way.logprobs.has_value()) {
      engine::TokenLogprobs& logprobs = event.tokens.back().logprobs.emplace();
      for (int32_t j = 0; j <= *way.logprobs; ++j) logprobs.top.push_back({(i + j) % vocabulary, -0.25f * static_cast<float>(j), j + 1});
    }
    server::ChoiceNews news;
    news.prompt = &request.prompts.front();
    news.delta = stream.Push(event);
    std::string bytes;
    answer->AppendEvents(news, nullptr, bytes);
    num_bytes += bytes.size();
  }
  const double seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
  if (num_bytes == 0) std::abort();
  return seconds / kTokens * 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "models/demo";
  const auto tokenizer = tokenizer::Tokenizer::Load(folder);
  if (!tokenizer) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  const std::vector<Way> ways{{"plain", {}, std::nullopt},
                              {"four stop strings", {"never to be seen", "<|im_end|>##", "User: ##", "#######"}, std::nullopt},
                              {"five logprobs", {}, 5}};
  for (const Way& way : ways) {
    double best = 1e18;
    for (int round = 0; round < kRounds; ++round) best = std::min(best, NanosecondsPerToken(way, *tokenizer));
    fmt::print("{{\"bench\":\"stream\",\"way\":\"{}\",\"ns_per_token\":{:.0f}}}\n", way.name, best);
  }
  return 0;
}
