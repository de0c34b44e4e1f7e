// A grammar while texts are read: every set of ways in which a text so far can be read is a state, found as it is needed and kept, so
// that a byte usually costs one look into a table. Owner: whoever holds the grammar's lock.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton.h"

namespace avocet::grammar {

enum class StateId : int32_t { kDead = -1 };

class StateTable {
 public:
  explicit StateTable(Automaton automaton);

  StateId start() const { return start_; }
  StateId Next(StateId state, uint8_t byte);
  bool IsAccepting(StateId state) const { return states_[static_cast<size_t>(state)].is_accepting; }
  // Whether a byte may follow at all.
  bool CanContinue(StateId state) const { return !states_[static_cast<size_t>(state)].configs.empty(); }
  // ASCII bytes that leave the state as it is, one bit each.
  const std::array<uint64_t, 2>& SelfLoops(StateId state);

  size_t num_states() const { return states_.size(); }
  // Half of a bound is used up: whoever needs the grammar next should begin with a new table.
  bool IsWorn() const;

 private:
  // A place in the network and where to go on when its rule has ended.
  struct Config {
    int32_t node;
    int32_t stack;
    auto operator<=>(const Config&) const = default;
  };
  struct Stack {
    int32_t back;  // node
    int32_t below;
  };
  struct State {
    std::vector<Config> configs;  // sorted; nodes with byte edges only
    std::vector<StateId> next;    // per byte class; kUnknown: not looked at yet
    bool is_accepting = false;
    bool has_loops = false;
    std::array<uint64_t, 2> loops{};
  };
  struct ConfigsHash {
    size_t operator()(const std::pair<std::vector<Config>, bool>& key) const;
  };
  static constexpr StateId kUnknown{-2};
  static constexpr int32_t kNoStack = 0;

  void FindByteClasses();
  StateId FindNext(StateId state, uint8_t byte);
  // All configurations that are reached without reading a byte; ends in `closed_`, sorted.
  void Close(std::vector<Config> from);
  void Visit(Config config);
  void Leave(int32_t stack);  // the rule on top has ended
  int32_t Push(int32_t back, int32_t below);
  StateId Intern();

  Automaton automaton_;
  std::array<uint8_t, 256> class_of_{};
  std::array<uint8_t, 256> byte_of_{};  // a byte of each class
  size_t num_classes_ = 0;
  std::vector<State> states_;
  std::unordered_map<std::pair<std::vector<Config>, bool>, StateId, ConfigsHash> state_of_;
  std::vector<Stack> stacks_;
  std::unordered_map<uint64_t, int32_t> stack_of_;
  StateId start_ = StateId::kDead;

  // Of Close:
  std::vector<Config> closed_;
  std::vector<Config> queue_;
  std::unordered_map<uint64_t, bool> seen_;
  bool accepts_ = false;

  size_t num_configs_ = 0;  // of all states
  size_t num_visits_ = 0;
};

}  // namespace avocet::grammar
