// A grammar over bytes under construction: literals, characters, sequences, choices, repeats, rules that call each other. The front ends
// (regular expressions, EBNF, JSON schemas, tool calls) make expressions; Build turns them into an Automaton or says why it cannot be.
// Everything is bounded (grammar/bounds.h): a grammar is text that a stranger wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/automaton.h"

namespace avocet::grammar {

struct CharRange {
  char32_t first;
  char32_t last;
};

enum class Expr : int32_t {};
enum class RuleId : int32_t {};

inline constexpr int32_t kUnbounded = -1;

class Builder {
 public:
  Builder();

  Expr Empty();
  Expr Bytes(std::string_view text);
  Expr Chars(std::vector<CharRange> ranges);  // one character, as UTF-8
  Expr Sequence(std::vector<Expr> parts);
  Expr Choice(std::vector<Expr> branches);  // of none: nothing matches
  Expr Repeat(Expr body, int32_t min, int32_t max);
  Expr Optional(Expr body) { return Repeat(body, 0, 1); }

  // Any text up to the first of the ends that appears in it, then what follows that end. With kAnywhere the text may also stop
  // without any of them.
  enum class TextEnd : uint8_t { kAtMarkers, kAnywhere };
  Expr Text(std::vector<std::pair<std::string, Expr>> ends, TextEnd end);

  RuleId DeclareRule(std::string name);
  void DefineRule(RuleId rule, Expr body);
  Expr Call(RuleId rule);

  Result<Automaton> Build(Expr root);

 private:
  enum class Kind : uint8_t { kEmpty, kBytes, kChars, kSequence, kChoice, kRepeat, kText, kCall };
  struct Item {
    Kind kind = Kind::kEmpty;
    std::string bytes = {};
    std::vector<CharRange> chars = {};
    std::vector<Expr> parts = {};
    std::vector<std::string> ends = {};  // kText, beside parts
    int32_t min = 0, max = 0;            // kRepeat; kCall: min is the rule; kText: min is TextEnd
  };
  struct Rule {
    std::string name;
    Expr body{-1};
    int32_t start = -1;  // node, once emitted
    int32_t end = -1;
  };

  Expr Add(Item item);
  const Item& At(Expr expr) const { return items_[static_cast<size_t>(expr)]; }
  bool IsOneEdge(Expr expr) const;

  // Adds what `expr` matches between two nodes; false: the automaton has become too large.
  bool Emit(Expr expr, int32_t from, int32_t to);
  bool EmitChars(const std::vector<CharRange>& ranges, int32_t from, int32_t to);
  bool EmitRepeat(const Item& item, int32_t from, int32_t to);
  bool EmitText(const Item& item, int32_t from, int32_t to);
  void EmitRule(int32_t rule);
  int32_t NewNode();

  std::vector<Item> items_;
  std::vector<Rule> rules_;
  std::vector<int32_t> pending_rules_;  // to be emitted
  Automaton automaton_;
};

}  // namespace avocet::grammar
