// The tokens of a vocabulary by their bytes: which tokens may follow is found by walking the common beginnings once. Immutable after
// construction; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/state_table.h"
#include "tokenizer/tokenizer.h"

namespace avocet::grammar {

class VocabularyTrie {
 public:
  // Special tokens and those in `excluded` are no text.
  VocabularyTrie(const tokenizer::Tokenizer& tokenizer, int32_t vocab_size, std::span<const int32_t> excluded);

  // Sets the bit of every token that the grammar allows in `state`.
  void Allow(StateTable& table, StateId state, std::span<uint64_t> allowed /*[vocab / 64, rounded up]*/) const;

  size_t num_nodes() const { return nodes_.size(); }

 private:
  // In depth-first order: the children of a node follow it, and `next` is where the others go on.
  struct Node {
    std::array<uint64_t, 2> below{};  // ASCII bytes in the part below; all bits set when there are others
    int32_t next = 0;
    int32_t first_token = 0;  // of tokens_: the node's own, then those below it
    uint8_t byte = 0;
    uint8_t depth = 0;
    uint8_t num_own = 0;
    bool is_ascii = true;  // the part below
  };

  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
};

}  // namespace avocet::grammar
