#include "grammar/ebnf.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/printable.h"
#include "grammar/bounds.h"
#include "grammar/regex.h"

namespace avocet::grammar {
namespace {

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

class Parser {
 public:
  Parser(std::string_view source, Builder& builder) : text_(source), builder_(builder) {}

  Result<Expr> ParseAll() {
    for (SkipSpace(); at_ < text_.size(); SkipSpace()) {
      const std::string name(TakeName());
      SkipSpace();
      if (name.empty() || !Take("::=")) {
        return Fail(Errc::kInvalidArgument, "at byte {}: expected a rule, name ::= ..., got \"{}\"", at_, Printable(text_.substr(at_, 16)));
      }
      Rule& rule = RuleOf(name);
      if (rule.is_defined) return Fail(Errc::kInvalidArgument, "rule {} is defined twice", Printable(name));
      rule.is_defined = true;
      const RuleId id = rule.id;
      AVOCET_TRY(const Expr body, ParseAlternatives());
      builder_.DefineRule(id, body);
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.is_defined) return Fail(Errc::kInvalidArgument, "rule {} is used and not defined", Printable(name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return Fail(Errc::kInvalidArgument, "there is no rule named root");
    return builder_.Call(root->second.id);
  }

 private:
  struct Rule {
    RuleId id{};
    bool is_defined = false;
  };

  Rule& RuleOf(const std::string& name) {
    const auto [place, is_new] = rules_.try_emplace(name);
    if (is_new) place->second.id = builder_.DeclareRule(name);
    return place->second;
  }
  void SkipSpace() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }
  bool Take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string_view TakeName() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // A name that begins the next rule is no reference.
  bool AtRule() {
    const size_t begin = at_;
    const bool has_name = !TakeName().empty();
    SkipSpace();
    const bool is_rule = has_name && text_.substr(at_).starts_with("::=");
    at_ = begin;
    return is_rule;
  }

  Result<Expr> ParseAlternatives() {
    std::vector<Expr> branches;
    do {
      AVOCET_TRY(const Expr branch, ParseSequence());
      branches.push_back(branch);
      SkipSpace();
    } while (Take("|"));
    return builder_.Choice(std::move(branches));
  }

  Result<Expr> ParseSequence() {
    std::vector<Expr> parts;
    for (SkipSpace(); at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')' && !AtRule(); SkipSpace()) {
      AVOCET_TRY(Expr atom, ParseAtom());
      AVOCET_TRY(atom, ParseRepeats(atom));
      parts.push_back(atom);
    }
    return builder_.Sequence(std::move(parts));
  }

  Result<Expr> ParseLiteral() {
    const char quote = text_[at_++];
    const size_t begin = at_;
    std::string bytes;
    std::vector<Expr> parts;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] != '\\') {
        bytes += text_[at_++];
        continue;
      }
      // The escapes of a class, for one character.
      size_t at = 0;
      const size_t end = std::min(at_ + 12, text_.size());
      const std::string one = std::string(text_.substr(at_, end - at_)) + "]";
      AVOCET_TRY(const size_t length, EscapeLength(one));
      AVOCET_TRY(std::vector<CharRange> ranges, ParseCharClass(one.substr(0, length) + "]", at));
      if (!bytes.empty()) parts.push_back(builder_.Bytes(std::exchange(bytes, {})));
      parts.push_back(builder_.Chars(std::move(ranges)));
      at_ += length;
    }
    if (at_ >= text_.size()) return Fail(Errc::kInvalidArgument, "at byte {}: the literal is not closed", begin);
    ++at_;
    if (!bytes.empty()) parts.push_back(builder_.Bytes(bytes));
    return builder_.Sequence(std::move(parts));
  }

  static Result<size_t> EscapeLength(std::string_view escape) {
    if (escape.size() < 3) return Fail(Errc::kInvalidArgument, "a backslash without anything behind it");
    const size_t length = escape[1] == 'x' ? 4 : escape[1] == 'u' ? 6 : escape[1] == 'U' ? 10 : 2;
    if (escape[1] == 'd' || escape[1] == 'w' || escape[1] == 's') return Fail(Errc::kInvalidArgument, "\\{} is for classes", escape[1]);
    if (escape.size() < length + 1) return Fail(Errc::kInvalidArgument, "an escape is cut off");
    return length;
  }

  Result<Expr> ParseAtom() {
    const char c = text_[at_];
    if (c == '"' || c == '\'') return ParseLiteral();
    if (c == '[') {
      ++at_;
      AVOCET_TRY(std::vector<CharRange> ranges, ParseCharClass(text_, at_));
      return builder_.Chars(std::move(ranges));
    }
    if (c == '.') {
      ++at_;
      return builder_.Chars({{0, 0x10FFFF}});
    }
    if (c == '(') {
      const size_t begin = at_++;
      if (++depth_ > kNestingMax) return Fail(Errc::kInvalidArgument, "more than {} groups in one another", kNestingMax);
      AVOCET_TRY(const Expr inner, ParseAlternatives());
      --depth_;
      SkipSpace();
      if (!Take(")")) return Fail(Errc::kInvalidArgument, "at byte {}: the group is not closed", begin);
      return inner;
    }
    const std::string name(TakeName());
    if (name.empty()) return Fail(Errc::kInvalidArgument, "at byte {}: \"{}\" has no place here", at_, Printable(text_.substr(at_, 8)));
    if (rules_.size() >= kRulesMax) return Fail(Errc::kInvalidArgument, "more than {} rules", kRulesMax);
    return builder_.Call(RuleOf(name).id);
  }

  std::optional<int32_t> TakeNumber() {
    SkipSpace();
    int32_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return std::nullopt;
    at_ = static_cast<size_t>(end - text_.data());
    SkipSpace();
    return value;
  }

  Result<Expr> ParseRepeats(Expr atom) {
    for (int32_t times = 0; at_ < text_.size(); ++times) {
      int32_t min = 0;
      int32_t max = kUnbounded;
      if (times >= kNestingMax) return Fail(Errc::kInvalidArgument, "at byte {}: too many repeats of repeats", at_);
      if (Take("?")) {
        max = 1;
      } else if (Take("+")) {
        min = 1;
      } else if (Take("{")) {
        const std::optional<int32_t> low = TakeNumber();
        min = low.value_or(0);
        const std::optional<int32_t> high = Take(",") ? TakeNumber() : low;
        if ((!low && !high) || !Take("}")) return Fail(Errc::kInvalidArgument, "at byte {}: expected {{m,n}}", at_);
        max = high.value_or(kUnbounded);
        if (min < 0 || min > kRepeatMax || max > kRepeatMax || (max != kUnbounded && max < min)) {
          return Fail(Errc::kInvalidArgument, "at byte {}: {} to {} repeats, at most {}", at_, min, max, kRepeatMax);
        }
      } else if (!Take("*")) {
        return atom;
      }
      atom = builder_.Repeat(atom, min, max);
    }
    return atom;
  }

  std::string_view text_;
  Builder& builder_;
  std::map<std::string, Rule> rules_;
  size_t at_ = 0;
  int32_t depth_ = 0;
};

}  // namespace

Result<Expr> ParseEbnf(std::string_view source, Builder& builder) {
  if (source.size() > kSourceBytesMax) return Fail(Errc::kInvalidArgument, "{} bytes, at most {}", source.size(), kSourceBytesMax);
  return Parser(source, builder).ParseAll();
}

}  // namespace avocet::grammar
