// Compiling grammars and masking tokens on one core, one JSON line each. `first` is a mask that nobody has needed before, `known` one that
// is kept. Uses the real vocabulary if tools/make_real_tokenizer.py has built it (build/real-tokenizer), else the small one of the tests.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "grammar/grammar_cache.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace avocet::grammar;
using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Subject {
  std::string name;
  Source source;
  std::string text;  // that fits it
};

std::vector<Subject> Subjects() {
  Json properties = Json::object();
  std::string text = "{";
  for (int i = 0; i < 40; ++i) {
    const std::string name = fmt::format("property_{}", i);
    properties[name] = Json::parse(R"({"anyOf":[{"type":"string","maxLength":200},{"type":"null"}]})");
    text += fmt::format("{}\"{}\": \"some text {}\"", i == 0 ? "" : ", ", name, i);
  }
  Json schema = Json::object({{"type", "object"}, {"properties", std::move(properties)}});
  const std::string object = R"({"name": "Finn", "tags": ["a", "b"], "address": {"city": "Oslo", "lines": [1, 2.5, null]}})";
  return {{"json_object", {.kind = SourceKind::kJsonObject}, object},
          {"schema_40_strings", {.kind = SourceKind::kJsonSchema, .json = std::move(schema)}, text + "}"},
          {"regex", {.kind = SourceKind::kRegex, .text = R"((\w+ ){1,50}[0-9]{4}-[0-9]{2})"}, "these are some words 2024-11"}};
}

void Measure(GrammarCache& cache, const Subject& subject) {
  const Vocabulary& vocabulary = cache.vocabulary();
  Clock::time_point begin = Clock::now();
  const auto grammar = cache.Get(subject.source);
  const double compile_ms = MillisecondsSince(begin);
  if (!grammar) {
    fmt::print("{{\"bench\":\"grammar/{}\",\"error\":\"{}\"}}\n", subject.name, grammar.error().message);
    return;
  }
  std::vector<uint64_t> allowed(vocabulary.num_words());
  const std::vector<int32_t> ids = vocabulary.tokenizer->Encode(subject.text);
  const auto follow = [&] {
    SequenceConstraint constraint(vocabulary, {.grammar = *grammar});
    std::vector<double> times;
    for (size_t i = 0; i <= ids.size(); ++i) {
      const Clock::time_point start = Clock::now();
      constraint.Restricts(std::span(ids).first(i), allowed);
      times.push_back(MillisecondsSince(start));
    }
    std::ranges::sort(times);
    return times;
  };
  const std::vector<double> first = follow();
  const std::vector<double> known = follow();
  const auto mean = [](const std::vector<double>& times) {
    double sum = 0;
    for (const double time : times) sum += time;
    return sum / static_cast<double>(times.size());
  };
  fmt::print(
      "{{\"bench\":\"grammar/{}\",\"vocab\":{},\"tokens\":{},\"compile_ms\":{:.3f},\"first_mean_ms\":{:.3f},\"first_max_ms\":{:.3f},"
      "\"known_mean_us\":{:.2f},\"known_max_us\":{:.2f}}}\n",
      subject.name, vocabulary.vocab_size, ids.size(), compile_ms, mean(first), first.back(), 1000 * mean(known), 1000 * known.back());
}

}  // namespace

int main() {
  const char* real = "build/real-tokenizer";
  const std::string folder = std::filesystem::exists(real) ? real : "models/demo";
  const auto tokenizer = avocet::tokenizer::Tokenizer::Load(folder);
  if (!tokenizer) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  const auto end = (*tokenizer)->FindAdded("<|im_end|>");
  GrammarCache cache(*tokenizer, (*tokenizer)->vocab_size(), {end.value_or(0)});
  const Clock::time_point begin = Clock::now();
  const Vocabulary& vocabulary = cache.vocabulary();
  fmt::print("{{\"bench\":\"grammar/vocabulary\",\"vocab\":{},\"nodes\":{},\"ms\":{:.1f}}}\n", vocabulary.vocab_size,
             vocabulary.trie.num_nodes(), MillisecondsSince(begin));
  for (const Subject& subject : Subjects()) Measure(cache, subject);
  return 0;
}
