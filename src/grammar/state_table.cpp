#include "grammar/state_table.h"

#include <algorithm>
#include <bitset>

#include "grammar/bounds.h"

namespace avocet::grammar {
namespace {

uint64_t Key(int32_t a, int32_t b) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32) | static_cast<uint32_t>(b);
}

}  // namespace

size_t StateTable::ConfigsHash::operator()(const std::pair<std::vector<Config>, bool>& key) const {
  uint64_t hash = key.second ? 0x9E3779B97F4A7C15u : 0xCBF29CE484222325u;
  for (const Config& config : key.first) hash = (hash ^ Key(config.node, config.stack)) * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(hash ^ (hash >> 32));
}

StateTable::StateTable(Automaton automaton) : automaton_(std::move(automaton)) {
  FindByteClasses();
  stacks_.push_back({-1, -1});
  Close({{automaton_.rules.front().start, kNoStack}});
  start_ = Intern();
}

// Bytes that no edge tells apart share a class.
void StateTable::FindByteClasses() {
  std::bitset<257> begins;
  begins.set(0);
  for (const Automaton::Node& node : automaton_.nodes) {
    for (const Automaton::ByteEdge& edge : node.bytes) {
      begins.set(edge.first);
      begins.set(size_t{edge.last} + 1);
    }
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins.test(byte)) byte_of_[num_classes_++] = static_cast<uint8_t>(byte);
    class_of_[byte] = static_cast<uint8_t>(num_classes_ - 1);
  }
}

int32_t StateTable::Push(int32_t back, int32_t below) {
  const Automaton::Node& node = automaton_.nodes[static_cast<size_t>(back)];
  // Nothing is left to do behind the call: coming back can be saved, and nestings to the right do not grow.
  if (node.is_end && node.bytes.empty() && node.silent.empty() && node.calls.empty()) return below;
  const auto [place, is_new] = stack_of_.emplace(Key(back, below), static_cast<int32_t>(stacks_.size()));
  if (is_new) stacks_.push_back({back, below});
  return place->second;
}

void StateTable::Visit(Config config) {
  if (seen_.size() >= 16 * kConfigsMax || !seen_.emplace(Key(config.node, config.stack), true).second) return;
  queue_.push_back(config);
}

void StateTable::Leave(int32_t stack) {
  if (stack == kNoStack) {
    accepts_ = true;
  } else {
    const Stack& top = stacks_[static_cast<size_t>(stack)];
    Visit({top.back, top.below});
  }
}

void StateTable::Close(std::vector<Config> from) {
  closed_.clear();
  queue_.clear();
  seen_.clear();
  accepts_ = false;
  for (const Config& config : from) Visit(config);
  while (!queue_.empty()) {
    const Config config = queue_.back();
    queue_.pop_back();
    ++num_visits_;
    const Automaton::Node& node = automaton_.nodes[static_cast<size_t>(config.node)];
    if (!node.bytes.empty()) closed_.push_back(config);
    if (node.is_end) Leave(config.stack);
    for (const int32_t to : node.silent) Visit({to, config.stack});
    for (const Automaton::CallEdge& call : node.calls) {
      if (stacks_.size() >= kStacksMax) break;
      Visit({automaton_.rules[static_cast<size_t>(call.rule)].start, Push(call.back, config.stack)});
    }
  }
  std::ranges::sort(closed_);
  if (closed_.size() > kConfigsMax) closed_.resize(kConfigsMax);
}

StateId StateTable::Intern() {
  if (closed_.empty() && !accepts_) return StateId::kDead;
  const auto key = std::make_pair(closed_, accepts_);
  if (const auto known = state_of_.find(key); known != state_of_.end()) return known->second;
  if (states_.size() >= kStatesMax || num_configs_ + closed_.size() > kConfigsTotalMax) return StateId::kDead;
  num_configs_ += closed_.size();
  const auto id = static_cast<StateId>(states_.size());
  State& state = states_.emplace_back();
  state.configs = closed_;
  state.is_accepting = accepts_;
  state.next.assign(num_classes_, kUnknown);
  state_of_.emplace(key, id);
  return id;
}

bool StateTable::IsWorn() const {
  return states_.size() > kStatesMax / 2 || num_configs_ > kConfigsTotalMax / 2 || num_visits_ > kVisitsMax / 2 ||
         stacks_.size() > kStacksMax / 2;
}

StateId StateTable::FindNext(StateId state, uint8_t byte) {
  if (num_visits_ >= kVisitsMax) return StateId::kDead;
  std::vector<Config> reached;
  for (const Config& config : states_[static_cast<size_t>(state)].configs) {
    for (const Automaton::ByteEdge& edge : automaton_.nodes[static_cast<size_t>(config.node)].bytes) {
      if (edge.first <= byte && byte <= edge.last) reached.push_back({edge.to, config.stack});
    }
  }
  if (reached.empty()) return StateId::kDead;
  Close(std::move(reached));
  return Intern();
}

StateId StateTable::Next(StateId state, uint8_t byte) {
  if (state == StateId::kDead) return state;
  const size_t byte_class = class_of_[byte];
  const StateId known = states_[static_cast<size_t>(state)].next[byte_class];
  if (known != kUnknown) return known;
  const StateId found = FindNext(state, byte);  // may move the states
  states_[static_cast<size_t>(state)].next[byte_class] = found;
  return found;
}

const std::array<uint64_t, 2>& StateTable::SelfLoops(StateId state) {
  if (!states_[static_cast<size_t>(state)].has_loops) {
    std::array<uint64_t, 2> loops{};
    for (uint8_t byte = 0; byte < 128; ++byte) {
      if (Next(state, byte) == state) loops[byte / 64] |= uint64_t{1} << (byte % 64);
    }
    states_[static_cast<size_t>(state)].loops = loops;
    states_[static_cast<size_t>(state)].has_loops = true;
  }
  return states_[static_cast<size_t>(state)].loops;
}

}  // namespace avocet::grammar
