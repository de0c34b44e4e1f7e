#include "grammar/compiled_grammar.h"

#include <algorithm>
#include <utility>

#include "grammar/bounds.h"

namespace avocet::grammar {
namespace {

// Tags of the chat format: inside constrained text they would cut the answer in pieces.
std::vector<int32_t> TagIds(const tokenizer::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const char* tag : {"<think>", "</think>"}) {
    if (const auto id = tokenizer.FindAdded(tag)) ids.push_back(*id);
  }
  return ids;
}

int32_t IdOf(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.Encode(text);
  return ids.size() == 1 ? ids.front() : -1;
}

void SetBit(std::span<uint64_t> bits, int32_t index) {
  bits[static_cast<size_t>(index) / 64] |= uint64_t{1} << (static_cast<size_t>(index) % 64);
}

void ClearBit(std::span<uint64_t> bits, int32_t index) {
  bits[static_cast<size_t>(index) / 64] &= ~(uint64_t{1} << (static_cast<size_t>(index) % 64));
}

}  // namespace

Vocabulary::Vocabulary(std::shared_ptr<const tokenizer::Tokenizer> tokenizer_in, int32_t vocab_size_in, std::vector<int32_t> eos_ids_in)
    : tokenizer(std::move(tokenizer_in)),
      vocab_size(std::min(vocab_size_in, tokenizer->vocab_size())),
      eos_ids(std::move(eos_ids_in)),
      think_end(tokenizer->FindAdded("</think>").value_or(-1)),
      gap(IdOf(*tokenizer, "\n\n")),
      tool_call(tokenizer->FindAdded("<tool_call>").value_or(-1)),
      trie(*tokenizer, vocab_size, TagIds(*tokenizer)) {
  std::erase_if(eos_ids, [this](int32_t id) { return id < 0 || id >= vocab_size; });
}

bool Vocabulary::IsEos(int32_t id) const {
  return std::ranges::find(eos_ids, id) != eos_ids.end();
}

CompiledGrammar::CompiledGrammar(Automaton automaton, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), table_(std::move(automaton)), start_(table_.start()) {}

StateId CompiledGrammar::Advance(StateId state, int32_t token) {
  const std::string_view bytes = vocabulary_.tokenizer->TokenBytes(token);
  if (bytes.empty() || vocabulary_.tokenizer->IsSpecial(token)) return StateId::kDead;
  const std::lock_guard lock(mutex_);
  for (const char byte : bytes) state = table_.Next(state, static_cast<uint8_t>(byte));
  return state;
}

bool CompiledGrammar::IsWorn() {
  const std::lock_guard lock(mutex_);
  return table_.IsWorn();
}

void CompiledGrammar::Allow(StateId state, std::span<uint64_t> allowed) {
  const std::lock_guard lock(mutex_);
  const auto known = masks_.find(state);
  if (known != masks_.end()) {
    std::ranges::copy(known->second, allowed.begin());
    return;
  }
  std::vector<uint64_t> mask(vocabulary_.num_words());
  vocabulary_.trie.Allow(table_, state, mask);
  const bool is_empty = std::ranges::all_of(mask, [](uint64_t word) { return word == 0; });
  // Without any token that goes on the text ends, whether the grammar is done or has met its bounds.
  if (table_.IsAccepting(state) || is_empty) {
    for (const int32_t id : vocabulary_.eos_ids) SetBit(mask, id);
  }
  std::ranges::copy(mask, allowed.begin());
  if (masks_.size() >= kMasksMax) masks_.clear();
  masks_.emplace(state, std::move(mask));
}

SequenceConstraint::SequenceConstraint(const Vocabulary& vocabulary, Rules rules) : vocabulary_(vocabulary), rules_(std::move(rules)) {
  const bool thinks = rules_.begin == Begin::kAfterThinking && vocabulary_.think_end >= 0;
  states_.push_back(thinks ? kThinking : rules_.grammar != nullptr ? rules_.grammar->start() : StateId::kDead);
}

StateId SequenceConstraint::After(StateId state, int32_t token) {
  if (state == kEnded) return kEnded;
  if (state == kThinking) {
    if (token != vocabulary_.think_end) return kThinking;
    return rules_.grammar != nullptr ? kAfterThinking : StateId::kDead;
  }
  if (state == kAfterThinking) {
    if (token == vocabulary_.gap) return rules_.grammar->start();
    state = rules_.grammar->start();
  }
  if (rules_.grammar == nullptr) return StateId::kDead;  // free text
  if (vocabulary_.IsEos(token)) return kEnded;
  const StateId next = rules_.grammar->Advance(state, token);
  return next == StateId::kDead ? kEnded : next;
}

// Drafted tokens may have been taken back: only what is still the same counts.
void SequenceConstraint::Follow(std::span<const int32_t> generated) {
  const auto [mine, theirs] = std::ranges::mismatch(tokens_, generated);
  tokens_.erase(mine, tokens_.end());
  states_.resize(tokens_.size() + 1);
  for (size_t i = tokens_.size(); i < generated.size(); ++i) {
    tokens_.push_back(generated[i]);
    states_.push_back(After(states_.back(), generated[i]));
  }
}

bool SequenceConstraint::Restricts(std::span<const int32_t> generated, std::span<uint64_t> allowed) {
  Follow(generated);
  const StateId state = states_.back();
  if (state == kThinking) {
    if (rules_.thinking_budget >= 0 && generated.size() >= static_cast<size_t>(rules_.thinking_budget)) {
      std::ranges::fill(allowed, 0);
      SetBit(allowed, vocabulary_.think_end);
      return true;
    }
    if (rules_.grammar == nullptr) return false;
    // The answer is still to come: the thoughts may not end the text, nor slip into a call.
    std::ranges::fill(allowed, ~uint64_t{0});
    for (const int32_t id : vocabulary_.eos_ids) ClearBit(allowed, id);
    if (vocabulary_.tool_call >= 0) ClearBit(allowed, vocabulary_.tool_call);
    return true;
  }
  if (state == kEnded) {
    if (vocabulary_.eos_ids.empty()) return false;
    std::ranges::fill(allowed, 0);
    for (const int32_t id : vocabulary_.eos_ids) SetBit(allowed, id);
    return true;
  }
  if (rules_.grammar == nullptr) return false;
  rules_.grammar->Allow(state == kAfterThinking ? rules_.grammar->start() : state, allowed);
  // A model that is used to the gap would be thrown off its track without it.
  if (state == kAfterThinking && vocabulary_.gap >= 0) SetBit(allowed, vocabulary_.gap);
  return true;
}

}  // namespace avocet::grammar
