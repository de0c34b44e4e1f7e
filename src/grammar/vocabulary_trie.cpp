#include "grammar/vocabulary_trie.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace avocet::grammar {
namespace {

constexpr size_t kTokenBytesMax = 250;  // longer tokens cannot be chosen under a grammar; the family's longest has 128

void SetBit(std::span<uint64_t> bits, int32_t index) {
  bits[static_cast<size_t>(index) / 64] |= uint64_t{1} << (static_cast<size_t>(index) % 64);
}

}  // namespace

VocabularyTrie::VocabularyTrie(const tokenizer::Tokenizer& tokenizer, int32_t vocab_size, std::span<const int32_t> excluded) {
  std::vector<std::pair<std::string_view, int32_t>> sorted;
  for (int32_t id = 0; id < std::min(vocab_size, tokenizer.vocab_size()); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.empty() || bytes.size() > kTokenBytesMax || tokenizer.IsSpecial(id) || std::ranges::find(excluded, id) != excluded.end()) {
      continue;
    }
    sorted.emplace_back(bytes, id);
  }
  std::ranges::sort(sorted);
  std::vector<int32_t> path;  // nodes from the root to the last token
  std::string_view last;
  const auto close = [&](size_t depth) {
    while (path.size() > depth) {
      const auto closed = static_cast<size_t>(path.back());
      path.pop_back();
      Node& node = nodes_[closed];
      node.next = static_cast<int32_t>(nodes_.size());
      if (path.empty()) continue;
      Node& parent = nodes_[static_cast<size_t>(path.back())];
      parent.is_ascii = parent.is_ascii && node.is_ascii && node.byte < 0x80;
      if (node.byte < 0x80) parent.below[node.byte / 64] |= uint64_t{1} << (node.byte % 64);
      for (size_t i = 0; i < 2; ++i) parent.below[i] |= node.below[i];
    }
  };
  for (const auto& [bytes, id] : sorted) {
    size_t common = 0;
    while (common < bytes.size() && common < last.size() && bytes[common] == last[common]) ++common;
    close(common);
    for (size_t i = common; i < bytes.size(); ++i) {
      Node node;
      node.byte = static_cast<uint8_t>(bytes[i]);
      node.depth = static_cast<uint8_t>(i);
      node.first_token = static_cast<int32_t>(tokens_.size());
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back(node);
    }
    // Two ids with the same bytes follow each other.
    Node& own = nodes_[static_cast<size_t>(path.back())];
    if (own.num_own < 255) {
      ++own.num_own;
      tokens_.push_back(id);
    }
    last = bytes;
  }
  close(0);
  Node end;
  end.first_token = static_cast<int32_t>(tokens_.size());
  nodes_.push_back(end);
}

void VocabularyTrie::Allow(StateTable& table, StateId state, std::span<uint64_t> allowed) const {
  std::array<StateId, kTokenBytesMax + 1> at;  // the state before the byte of each depth
  at[0] = state;
  const size_t num_nodes = nodes_.size() - 1;
  for (size_t i = 0; i < num_nodes;) {
    const Node& node = nodes_[i];
    const StateId reached = table.Next(at[node.depth], node.byte);
    if (reached == StateId::kDead) {
      i = static_cast<size_t>(node.next);
      continue;
    }
    int32_t num = node.num_own;
    size_t next = i + 1;
    if (node.is_ascii && static_cast<size_t>(node.next) > next) {
      // Nothing below leaves the state: all of it is allowed.
      const std::array<uint64_t, 2>& loops = table.SelfLoops(reached);
      if ((node.below[0] & ~loops[0]) == 0 && (node.below[1] & ~loops[1]) == 0) {
        num = nodes_[static_cast<size_t>(node.next)].first_token - node.first_token;
        next = static_cast<size_t>(node.next);
      }
    }
    for (int32_t token = 0; token < num; ++token) SetBit(allowed, tokens_[static_cast<size_t>(node.first_token + token)]);
    at[size_t{node.depth} + 1] = reached;
    i = next;
  }
}

}  // namespace avocet::grammar
