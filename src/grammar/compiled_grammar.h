// A grammar ready to say which tokens may follow, shared by every sequence that was asked to follow it: states and masks that one of
// them needed are there for the next. Any thread; one lock, held for the microseconds of a look-up or the milliseconds of a new mask.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/token_constraint.h"
#include "grammar/state_table.h"
#include "grammar/vocabulary_trie.h"

namespace avocet::grammar {

// What a grammar needs to know of the model.
struct Vocabulary {
  Vocabulary(std::shared_ptr<const tokenizer::Tokenizer> tokenizer_in, int32_t vocab_size_in, std::vector<int32_t> eos_ids_in);

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  int32_t vocab_size;
  std::vector<int32_t> eos_ids;
  int32_t think_end = -1;  // </think>, if the vocabulary has it as one token
  int32_t gap = -1;        // "\n\n", which the model writes behind </think>, likewise
  int32_t tool_call = -1;  // <tool_call>, likewise
  VocabularyTrie trie;

  size_t num_words() const { return (static_cast<size_t>(vocab_size) + 63) / 64; }
  bool IsEos(int32_t id) const;
};

class CompiledGrammar {
 public:
  // vocabulary: borrowed; it outlives the grammar.
  CompiledGrammar(Automaton automaton, const Vocabulary& vocabulary);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  StateId start() const { return start_; }
  // The state after the bytes of a token; kDead if it does not fit.
  StateId Advance(StateId state, int32_t token);
  bool IsWorn();  // StateTable
  // Which tokens may follow; the end of the text among them where the grammar may end.
  void Allow(StateId state, std::span<uint64_t> allowed);

 private:
  const Vocabulary& vocabulary_;
  std::mutex mutex_;
  StateTable table_;
  StateId start_;
  std::unordered_map<StateId, std::vector<uint64_t>> masks_;
};

// Where a sequence's constraint begins.
enum class Begin : uint8_t { kAtOnce, kAfterThinking };

// One sequence under a grammar, a limit on its thoughts, or both.
class SequenceConstraint final : public engine::TokenConstraint {
 public:
  struct Rules {
    std::shared_ptr<CompiledGrammar> grammar;  // shared with other sequences; null: any text
    Begin begin = Begin::kAtOnce;
    int32_t thinking_budget = -1;  // tokens, with kAfterThinking; -1: no limit
  };
  // vocabulary: borrowed; it outlives the sequence.
  SequenceConstraint(const Vocabulary& vocabulary, Rules rules);

  bool Restricts(std::span<const int32_t> generated, std::span<uint64_t> allowed) override;

 private:
  // After each token: a state of the grammar, or one of these.
  static constexpr StateId kThinking{-3};
  static constexpr StateId kEnded{-4};          // nothing but the end of the text may follow
  static constexpr StateId kAfterThinking{-5};  // the grammar begins, a gap may stand before it

  void Follow(std::span<const int32_t> generated);
  StateId After(StateId state, int32_t token);

  const Vocabulary& vocabulary_;
  Rules rules_;
  std::vector<int32_t> tokens_;
  std::vector<StateId> states_;  // [i]: before token i
};

}  // namespace avocet::grammar
