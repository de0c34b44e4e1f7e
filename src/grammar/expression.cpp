#include "grammar/expression.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "base/check.h"
#include "grammar/bounds.h"

namespace avocet::grammar {
namespace {

using ByteRanges = std::vector<std::pair<uint8_t, uint8_t>>;  // one per byte of a character

size_t EncodeUtf8(char32_t c, std::array<uint8_t, 4>& bytes) {
  const auto byte = [](char32_t value) { return static_cast<uint8_t>(value); };
  if (c < 0x80) {
    bytes[0] = byte(c);
    return 1;
  }
  if (c < 0x800) {
    bytes = {byte(0xC0 | (c >> 6)), byte(0x80 | (c & 0x3F))};
    return 2;
  }
  if (c < 0x10000) {
    bytes = {byte(0xE0 | (c >> 12)), byte(0x80 | ((c >> 6) & 0x3F)), byte(0x80 | (c & 0x3F))};
    return 3;
  }
  bytes = {byte(0xF0 | (c >> 18)), byte(0x80 | ((c >> 12) & 0x3F)), byte(0x80 | ((c >> 6) & 0x3F)), byte(0x80 | (c & 0x3F))};
  return 4;
}

// Splits a range of characters into ranges whose encodings are products of byte ranges.
void SplitRange(char32_t first, char32_t last, std::vector<ByteRanges>& out) {
  if (first > last) return;
  for (const char32_t edge : {0x7Fu, 0x7FFu, 0xD7FFu, 0xDFFFu, 0xFFFFu}) {  // lengths, and surrogates that do not exist
    if (first <= edge && last > edge) {
      SplitRange(first, edge, out);
      SplitRange(edge + 1, last, out);
      return;
    }
  }
  if (first >= 0xD800 && last <= 0xDFFF) return;
  for (uint32_t shift = 6; shift <= 18 && first >= 0x80; shift += 6) {
    const char32_t mask = (char32_t{1} << shift) - 1;
    if ((first & ~mask) == (last & ~mask)) break;
    if ((first & mask) != 0) {
      SplitRange(first, first | mask, out);
      SplitRange((first | mask) + 1, last, out);
      return;
    }
    if ((last & mask) != mask) {
      SplitRange(first, (last & ~mask) - 1, out);
      SplitRange(last & ~mask, last, out);
      return;
    }
  }
  std::array<uint8_t, 4> low{}, high{};
  const size_t length = EncodeUtf8(first, low);
  EncodeUtf8(last, high);
  ByteRanges ranges;
  for (size_t i = 0; i < length; ++i) ranges.emplace_back(low[i], high[i]);
  out.push_back(std::move(ranges));
}

// The states of looking for several words at once: state 0 has seen nothing.
struct WordFinder {
  explicit WordFinder(const std::vector<std::string>& words) {
    AddState();
    for (size_t word = 0; word < words.size(); ++word) {
      int32_t at = 0;
      for (const char c : words[word]) {
        int32_t& child = next[static_cast<size_t>(at)][static_cast<uint8_t>(c)];
        const int32_t to = child >= 0 ? child : static_cast<int32_t>(next.size());
        child = to;
        if (to == static_cast<int32_t>(next.size())) AddState();
        at = to;
      }
      if (found[static_cast<size_t>(at)] < 0) found[static_cast<size_t>(at)] = static_cast<int32_t>(word);
    }
    // Breadth first: where a missing edge leads is where the longest suffix leads.
    std::vector<int32_t> suffix(next.size(), 0);
    std::deque<int32_t> queue{0};
    while (!queue.empty()) {
      const auto at = static_cast<size_t>(queue.front());
      queue.pop_front();
      if (found[at] < 0) found[at] = found[static_cast<size_t>(suffix[at])];
      for (size_t byte = 0; byte < 256; ++byte) {
        const int32_t fallback = at == 0 ? 0 : next[static_cast<size_t>(suffix[at])][byte];
        int32_t& to = next[at][byte];
        if (to < 0) {
          to = fallback;
        } else {
          suffix[static_cast<size_t>(to)] = fallback;
          queue.push_back(to);
        }
      }
    }
  }

  void AddState() {
    next.emplace_back();
    next.back().fill(-1);
    found.push_back(-1);
  }

  std::vector<std::array<int32_t, 256>> next;
  std::vector<int32_t> found;  // the word that a state completes, or -1
};

}  // namespace

Builder::Builder() {
  Add({});  // Empty
}

Expr Builder::Add(Item item) {
  if (items_.size() < kItemsMax) items_.push_back(std::move(item));  // Build refuses when it is full
  return static_cast<Expr>(items_.size() - 1);
}

Expr Builder::Empty() {
  return Expr{0};
}

Expr Builder::Bytes(std::string_view text) {
  return text.empty() ? Empty() : Add({.kind = Kind::kBytes, .bytes = std::string(text)});
}

Expr Builder::Chars(std::vector<CharRange> ranges) {
  return Add({.kind = Kind::kChars, .chars = std::move(ranges)});
}

Expr Builder::Sequence(std::vector<Expr> parts) {
  if (parts.empty()) return Empty();
  return parts.size() == 1 ? parts.front() : Add({.kind = Kind::kSequence, .parts = std::move(parts)});
}

Expr Builder::Choice(std::vector<Expr> branches) {
  return branches.size() == 1 ? branches.front() : Add({.kind = Kind::kChoice, .parts = std::move(branches)});
}

Expr Builder::Repeat(Expr body, int32_t min, int32_t max) {
  return Add({.kind = Kind::kRepeat, .parts = {body}, .min = min, .max = max});
}

Expr Builder::Text(std::vector<std::pair<std::string, Expr>> ends, TextEnd end) {
  Item item{.kind = Kind::kText, .min = end == TextEnd::kAnywhere ? 1 : 0};
  for (auto& [text, then] : ends) {
    item.ends.push_back(std::move(text));
    item.parts.push_back(then);
  }
  return Add(std::move(item));
}

RuleId Builder::DeclareRule(std::string name) {
  rules_.push_back({.name = std::move(name)});
  return static_cast<RuleId>(rules_.size() - 1);
}

void Builder::DefineRule(RuleId rule, Expr body) {
  rules_[static_cast<size_t>(rule)].body = body;
}

Expr Builder::Call(RuleId rule) {
  return Add({.kind = Kind::kCall, .min = static_cast<int32_t>(rule)});
}

int32_t Builder::NewNode() {
  automaton_.nodes.emplace_back();
  return static_cast<int32_t>(automaton_.nodes.size() - 1);
}

void Builder::EmitRule(int32_t rule) {
  Rule& emitted = rules_[static_cast<size_t>(rule)];
  if (emitted.start >= 0) return;
  emitted.start = NewNode();
  emitted.end = NewNode();
  automaton_.nodes[static_cast<size_t>(emitted.end)].is_end = true;
  pending_rules_.push_back(rule);
}

bool Builder::IsOneEdge(Expr expr) const {
  const Item& item = At(expr);
  if (item.kind == Kind::kBytes) return item.bytes.size() == 1;
  if (item.kind == Kind::kCall) return true;
  return item.kind == Kind::kChars && std::ranges::all_of(item.chars, [](const CharRange& range) { return range.last < 0x80; });
}

bool Builder::Emit(Expr expr, int32_t from, int32_t to) {
  if (automaton_.nodes.size() > static_cast<size_t>(kNodesMax)) return false;
  const Item item = At(expr);  // a copy: emitting may add expressions
  auto& nodes = automaton_.nodes;
  switch (item.kind) {
    case Kind::kEmpty: nodes[static_cast<size_t>(from)].silent.push_back(to); return true;
    case Kind::kBytes: {
      for (size_t i = 0; i < item.bytes.size(); ++i) {
        const int32_t next = i + 1 == item.bytes.size() ? to : NewNode();
        const auto byte = static_cast<uint8_t>(item.bytes[i]);
        nodes[static_cast<size_t>(from)].bytes.push_back({byte, byte, next});
        from = next;
      }
      return true;
    }
    case Kind::kChars: return EmitChars(item.chars, from, to);
    case Kind::kSequence: {
      for (size_t i = 0; i < item.parts.size(); ++i) {
        const int32_t next = i + 1 == item.parts.size() ? to : NewNode();
        if (!Emit(item.parts[i], from, next)) return false;
        from = next;
      }
      return true;
    }
    case Kind::kChoice: {
      // Branches of their own nodes: what loops inside one must not reach the others.
      for (const Expr branch : item.parts) {
        const int32_t start = NewNode();
        nodes[static_cast<size_t>(from)].silent.push_back(start);
        if (!Emit(branch, start, to)) return false;
      }
      return true;
    }
    case Kind::kRepeat: return EmitRepeat(item, from, to);
    case Kind::kText: return EmitText(item, from, to);
    case Kind::kCall: {
      EmitRule(item.min);
      nodes[static_cast<size_t>(from)].calls.push_back({item.min, to});
      return true;
    }
  }
  return false;
}

// Characters share the nodes of equal tails.
bool Builder::EmitChars(const std::vector<CharRange>& ranges, int32_t from, int32_t to) {
  std::vector<ByteRanges> encodings;
  for (const CharRange& range : ranges) SplitRange(range.first, range.last, encodings);
  std::map<ByteRanges, int32_t> tails;  // what is still to be read -> the node from which it is read
  for (const ByteRanges& encoding : encodings) {
    int32_t node = to;
    for (size_t i = encoding.size(); i-- > 1;) {
      const auto [place, is_new] = tails.emplace(ByteRanges(encoding.begin() + static_cast<ptrdiff_t>(i), encoding.end()), 0);
      if (is_new) {
        place->second = NewNode();
        automaton_.nodes[static_cast<size_t>(place->second)].bytes.push_back({encoding[i].first, encoding[i].second, node});
      }
      node = place->second;
    }
    automaton_.nodes[static_cast<size_t>(from)].bytes.push_back({encoding[0].first, encoding[0].second, node});
  }
  return automaton_.nodes.size() <= static_cast<size_t>(kNodesMax);
}

bool Builder::EmitRepeat(const Item& item, int32_t from, int32_t to) {
  Expr body = item.parts.front();
  const bool has_copies = item.min > 1 || item.max > 1;
  if (has_copies && !IsOneEdge(body)) {  // a copy costs one node, whatever the body
    const RuleId rule = DeclareRule("repeated");
    DefineRule(rule, body);
    body = Call(rule);
  }
  auto& nodes = automaton_.nodes;
  for (int32_t i = 0; i < item.min; ++i) {
    const int32_t next = NewNode();
    if (!Emit(body, from, next)) return false;
    from = next;
  }
  if (item.max == kUnbounded) {
    const int32_t loop = NewNode();
    nodes[static_cast<size_t>(from)].silent.push_back(loop);
    if (!Emit(body, loop, loop)) return false;
    nodes[static_cast<size_t>(loop)].silent.push_back(to);
    return true;
  }
  for (int32_t i = item.min; i < item.max; ++i) {
    const int32_t next = NewNode();
    nodes[static_cast<size_t>(from)].silent.push_back(to);
    if (!Emit(body, from, next)) return false;
    from = next;
  }
  nodes[static_cast<size_t>(from)].silent.push_back(to);
  return true;
}

bool Builder::EmitText(const Item& item, int32_t from, int32_t to) {
  const WordFinder finder(item.ends);
  std::vector<int32_t> node_of(finder.next.size());
  for (size_t state = 0; state < node_of.size(); ++state) node_of[state] = NewNode();
  automaton_.nodes[static_cast<size_t>(from)].silent.push_back(node_of[0]);
  for (size_t state = 0; state < node_of.size(); ++state) {
    if (finder.found[state] >= 0) {
      if (!Emit(item.parts[static_cast<size_t>(finder.found[state])], node_of[state], to)) return false;
      continue;
    }
    Automaton::Node& node = automaton_.nodes[static_cast<size_t>(node_of[state])];
    if (item.min != 0) node.silent.push_back(to);
    for (size_t first = 0; first < 256;) {
      size_t last = first;
      while (last + 1 < 256 && finder.next[state][last + 1] == finder.next[state][first]) ++last;
      node.bytes.push_back(
          {static_cast<uint8_t>(first), static_cast<uint8_t>(last), node_of[static_cast<size_t>(finder.next[state][first])]});
      first = last + 1;
    }
  }
  return automaton_.nodes.size() <= static_cast<size_t>(kNodesMax);
}

Result<Automaton> Builder::Build(Expr root) {
  automaton_ = {};
  pending_rules_.clear();
  const RuleId root_rule = DeclareRule("root");
  DefineRule(root_rule, root);
  EmitRule(static_cast<int32_t>(root_rule));
  bool fits = items_.size() < kItemsMax;
  while (fits && !pending_rules_.empty()) {
    const auto rule = static_cast<size_t>(pending_rules_.back());
    pending_rules_.pop_back();
    CHECK(rules_[rule].body != Expr{-1}, "rule {} was declared and not defined", rules_[rule].name);
    fits = Emit(rules_[rule].body, rules_[rule].start, rules_[rule].end) && rules_.size() <= kRulesMax && items_.size() < kItemsMax;
  }
  if (!fits)
    return Fail(Errc::kInvalidArgument, "it is too large: more than {} nodes, {} rules or {} parts", kNodesMax, kRulesMax, kItemsMax);
  // Rules that nobody calls are left out; the root comes first.
  std::vector<int32_t> number(rules_.size(), -1);
  const auto keep = [&](size_t rule) {
    number[rule] = static_cast<int32_t>(automaton_.rules.size());
    automaton_.rules.push_back({rules_[rule].name, rules_[rule].start});
  };
  keep(static_cast<size_t>(root_rule));
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    if (number[rule] < 0 && rules_[rule].start >= 0) keep(rule);
  }
  for (Automaton::Node& node : automaton_.nodes) {
    for (Automaton::CallEdge& call : node.calls) call.rule = number[static_cast<size_t>(call.rule)];
  }
  AVOCET_TRY_VOID(automaton_.Finish());
  return std::move(automaton_);
}

}  // namespace avocet::grammar
