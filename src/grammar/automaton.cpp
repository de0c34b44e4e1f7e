#include "grammar/automaton.h"

#include <algorithm>

#include "base/printable.h"

namespace avocet::grammar {
namespace {

enum class Edges : uint8_t { kAll, kSilent };

// Which nodes can reach the end of their rule, over all edges or without reading a byte.
class Completion {
 public:
  Completion(const Automaton& automaton, Edges edges) : automaton_(automaton), reaches_(automaton.nodes.size(), false) {
    const size_t num_nodes = automaton.nodes.size();
    into_.resize(num_nodes);
    waiting_.resize(automaton.rules.size());
    starts_.resize(num_nodes);
    for (size_t rule = 0; rule < automaton.rules.size(); ++rule) {
      starts_[static_cast<size_t>(automaton.rules[rule].start)].push_back(static_cast<int32_t>(rule));
    }
    for (size_t node = 0; node < num_nodes; ++node) {
      const Automaton::Node& from = automaton.nodes[node];
      const auto id = static_cast<int32_t>(node);
      for (const int32_t to : from.silent) into_[static_cast<size_t>(to)].push_back({id, -1});
      for (const auto& call : from.calls) into_[static_cast<size_t>(call.back)].push_back({id, call.rule});
      if (edges == Edges::kSilent) continue;
      for (const auto& edge : from.bytes) into_[static_cast<size_t>(edge.to)].push_back({id, -1});
    }
    for (size_t node = 0; node < num_nodes; ++node) {
      if (automaton.nodes[node].is_end) Mark(static_cast<int32_t>(node));
    }
    while (!queue_.empty()) {
      const int32_t node = queue_.back();
      queue_.pop_back();
      Follow(node);
    }
  }

  bool Node(int32_t node) const { return reaches_[static_cast<size_t>(node)]; }
  bool Rule(int32_t rule) const { return Node(automaton_.rules[static_cast<size_t>(rule)].start); }

 private:
  struct Into {
    int32_t from;
    int32_t rule;  // of a call, or -1
  };

  void Mark(int32_t node) {
    if (reaches_[static_cast<size_t>(node)]) return;
    reaches_[static_cast<size_t>(node)] = true;
    queue_.push_back(node);
  }
  void Follow(int32_t node) {
    for (const Into& into : into_[static_cast<size_t>(node)]) {
      if (into.rule < 0 || Rule(into.rule)) {
        Mark(into.from);
      } else {
        waiting_[static_cast<size_t>(into.rule)].push_back(into.from);  // until the rule can be completed
      }
    }
    for (const int32_t rule : starts_[static_cast<size_t>(node)]) {
      for (const int32_t from : waiting_[static_cast<size_t>(rule)]) Mark(from);
      waiting_[static_cast<size_t>(rule)].clear();
    }
  }

  const Automaton& automaton_;
  std::vector<bool> reaches_;
  std::vector<std::vector<Into>> into_;
  std::vector<std::vector<int32_t>> starts_;   // rules that start at a node
  std::vector<std::vector<int32_t>> waiting_;  // per rule
  std::vector<int32_t> queue_;
};

// Rules that a rule may call before it has read a byte.
std::vector<std::vector<int32_t>> FirstCalls(const Automaton& automaton, const Completion& silently) {
  std::vector<std::vector<int32_t>> first(automaton.rules.size());
  std::vector<int32_t> seen(automaton.nodes.size(), -1);
  std::vector<int32_t> queue;
  for (size_t rule = 0; rule < automaton.rules.size(); ++rule) {
    const auto visit = [&](int32_t node) {
      if (seen[static_cast<size_t>(node)] == static_cast<int32_t>(rule)) return;
      seen[static_cast<size_t>(node)] = static_cast<int32_t>(rule);
      queue.push_back(node);
    };
    visit(automaton.rules[rule].start);
    while (!queue.empty()) {
      const Automaton::Node& node = automaton.nodes[static_cast<size_t>(queue.back())];
      queue.pop_back();
      for (const int32_t to : node.silent) visit(to);
      for (const auto& call : node.calls) {
        first[rule].push_back(call.rule);
        if (silently.Rule(call.rule)) visit(call.back);
      }
    }
  }
  return first;
}

// A rule on a cycle of `calls`, or -1.
int32_t FindCycle(const std::vector<std::vector<int32_t>>& calls) {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(calls.size(), kNew);
  std::vector<std::pair<int32_t, size_t>> path;  // rule, next call of it
  for (size_t root = 0; root < calls.size(); ++root) {
    if (state[root] != kNew) continue;
    path.emplace_back(static_cast<int32_t>(root), 0);
    state[root] = kOpen;
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      if (next == calls[static_cast<size_t>(rule)].size()) {
        state[static_cast<size_t>(rule)] = kDone;
        path.pop_back();
        continue;
      }
      const int32_t called = calls[static_cast<size_t>(rule)][next++];
      if (state[static_cast<size_t>(called)] == kOpen) return called;
      if (state[static_cast<size_t>(called)] == kDone) continue;
      state[static_cast<size_t>(called)] = kOpen;
      path.emplace_back(called, 0);
    }
  }
  return -1;
}

}  // namespace

Result<void> Automaton::Finish() {
  const Completion completion(*this, Edges::kAll);
  if (!completion.Rule(0)) return Fail(Errc::kInvalidArgument, "no finite text satisfies it");
  for (Node& node : nodes) {
    std::erase_if(node.bytes, [&](const ByteEdge& edge) { return !completion.Node(edge.to); });
    std::erase_if(node.silent, [&](int32_t to) { return !completion.Node(to); });
    std::erase_if(node.calls, [&](const CallEdge& call) { return !completion.Node(call.back) || !completion.Rule(call.rule); });
  }
  const Completion silently(*this, Edges::kSilent);
  const int32_t cyclic = FindCycle(FirstCalls(*this, silently));
  if (cyclic < 0) return {};
  return Fail(Errc::kInvalidArgument, "rule {} is left-recursive: it calls itself before it has read anything",
              Printable(rules[static_cast<size_t>(cyclic)].name));
}

}  // namespace avocet::grammar
