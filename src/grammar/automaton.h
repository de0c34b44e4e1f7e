// A grammar as a network of nodes: byte edges, silent edges, and calls of rules that come back. Rule 0 is the root. Plain data; Finish
// removes what can never be completed and refuses grammars that never end or that call themselves without reading a byte.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace avocet::grammar {

struct Automaton {
  struct ByteEdge {
    uint8_t first = 0, last = 0;
    int32_t to = 0;
  };
  struct CallEdge {
    int32_t rule = 0;
    int32_t back = 0;  // the node after the call
  };
  struct Node {
    std::vector<ByteEdge> bytes = {};
    std::vector<int32_t> silent = {};
    std::vector<CallEdge> calls = {};
    bool is_end = false;  // of its rule
  };
  struct Rule {
    std::string name;
    int32_t start = 0;
  };

  std::vector<Node> nodes;
  std::vector<Rule> rules;

  Result<void> Finish();
};

}  // namespace avocet::grammar
