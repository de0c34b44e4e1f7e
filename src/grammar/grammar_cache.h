// From what a client wrote to a grammar that sequences can follow. Compiled grammars are kept for the next request; the vocabulary is
// sorted when the first of them is asked for. Any thread; compiling is bounded and happens on the caller's.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/compiled_grammar.h"
#include "grammar/tool_calls.h"

namespace avocet::grammar {

enum class SourceKind : uint8_t { kJsonObject, kJsonSchema, kRegex, kChoice, kEbnf, kStructuralTag, kToolCalls };

struct Source {
  SourceKind kind = SourceKind::kJsonObject;
  std::string text = {};                // kRegex, kEbnf
  Json json = nullptr;                  // kJsonSchema, kStructuralTag; kChoice: a list of texts
  Spacing spacing = Spacing::kBounded;  // of JSON
  std::vector<Tool> tools = {};         // kToolCalls
  CallMarkup markup = CallMarkup::kFunctionTags;
  CallCount count = CallCount::kOneOrMore;
};

Result<Automaton> Compile(const Source& source);

class GrammarCache {
 public:
  // tokenizer: null: only the vocabulary is missing, and nobody may ask.
  GrammarCache(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int32_t vocab_size, std::vector<int32_t> eos_ids);

  const Vocabulary& vocabulary();
  Result<std::shared_ptr<CompiledGrammar>> Get(const Source& source);

 private:
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  int32_t vocab_size_;
  std::vector<int32_t> eos_ids_;
  std::once_flag once_;
  std::unique_ptr<const Vocabulary> vocabulary_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<CompiledGrammar>>> kept_;  // the last used first
};

}  // namespace avocet::grammar
