#include "grammar/regex.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/printable.h"
#include "grammar/bounds.h"

namespace avocet::grammar {
namespace {

using Ranges = std::vector<CharRange>;

constexpr char32_t kCharMax = 0x10FFFF;

Ranges Sorted(Ranges ranges) {
  std::ranges::sort(ranges, {}, &CharRange::first);
  Ranges merged;
  for (const CharRange& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

Ranges Complement(Ranges ranges) {
  Ranges others;
  char32_t next = 0;
  for (const CharRange& range : Sorted(std::move(ranges))) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCharMax) others.push_back({next, kCharMax});
  return others;
}

Ranges Intersection(const Ranges& a, const Ranges& b) {
  Ranges both = Complement(a);
  const Ranges not_b = Complement(b);
  both.insert(both.end(), not_b.begin(), not_b.end());
  return Complement(std::move(both));
}

bool Contains(const Ranges& ranges, char32_t c) {
  return std::ranges::any_of(ranges, [c](const CharRange& range) { return range.first <= c && c <= range.last; });
}

// \d, \w, \s and their complements.
std::optional<Ranges> NamedClass(char name) {
  const auto plain = [](char lower) -> Ranges {
    if (lower == 'd') return {{'0', '9'}};
    if (lower == 'w') return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    return {{'\t', '\r'}, {' ', ' '}};
  };
  if (name == 'd' || name == 'w' || name == 's') return plain(name);
  if (name == 'D' || name == 'W' || name == 'S') return Complement(plain(static_cast<char>(name + 32)));
  return std::nullopt;
}

Result<char32_t> ParseHex(std::string_view text, size_t& at, size_t num_digits) {
  uint32_t value = 0;
  const std::string_view digits = text.substr(std::min(at, text.size()), num_digits);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + num_digits || value > kCharMax) {
    return Fail(Errc::kInvalidArgument, "at byte {}: expected {} hexadecimal digits", at, num_digits);
  }
  at += num_digits;
  return static_cast<char32_t>(value);
}

// What stands behind a backslash, if it is one character.
Result<char32_t> ParseEscape(std::string_view text, size_t& at) {
  const char c = text[at++];
  switch (c) {
    case 'n': return U'\n';
    case 't': return U'\t';
    case 'r': return U'\r';
    case 'f': return U'\f';
    case 'v': return U'\v';
    case '0': return U'\0';
    case 'x': return ParseHex(text, at, 2);
    case 'U': return ParseHex(text, at, 8);
    case 'u': {
      if (at >= text.size() || text[at] != '{') return ParseHex(text, at, 4);
      const size_t close = text.find('}', at);
      if (close == std::string_view::npos || close - at > 7) return Fail(Errc::kInvalidArgument, "at byte {}: \\u{{ is not closed", at);
      ++at;
      AVOCET_TRY(const char32_t value, ParseHex(text, at, close - at));
      ++at;
      return value;
    }
    default: break;
  }
  if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
    return Fail(Errc::kInvalidArgument, "at byte {}: \\{} is not offered", at - 1, c);
  }
  --at;
  return NextChar(text, at);
}

class Parser {
 public:
  Parser(std::string_view pattern, Builder& builder, TextForm form) : text_(pattern), builder_(builder), form_(form) {}

  Result<Expr> ParseAll(MatchKind match) {
    std::vector<Expr> branches;
    const Expr anything = builder_.Repeat(CharsInForm({{0, kCharMax}}, builder_, form_), 0, kUnbounded);
    for (;;) {
      std::vector<Expr> parts;
      const bool begins = Take('^') || Take("\\A");
      if (match == MatchKind::kSearch && !begins) parts.push_back(anything);
      AVOCET_TRY(Expr branch, ParseSequence());
      parts.push_back(branch);
      const bool ends = Take('$') || Take("\\Z") || Take("\\z");
      if (match == MatchKind::kSearch && !ends) parts.push_back(anything);
      branches.push_back(builder_.Sequence(std::move(parts)));
      if (at_ == text_.size()) break;
      if (!Take('|')) return Fail(Errc::kInvalidArgument, "at byte {}: \"{}\" has no place here", at_, Printable(text_.substr(at_, 8)));
    }
    return builder_.Choice(std::move(branches));
  }

 private:
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool Take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool AtAnchor() const {
    const std::string_view rest = text_.substr(at_);
    return rest.starts_with('$') || rest.starts_with("\\Z") || rest.starts_with("\\z");
  }

  Result<Expr> ParseAlternatives() {
    std::vector<Expr> branches;
    do {
      AVOCET_TRY(Expr branch, ParseSequence());
      branches.push_back(branch);
    } while (Take('|'));
    return builder_.Choice(std::move(branches));
  }

  Result<Expr> ParseSequence() {
    std::vector<Expr> parts;
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')' && !AtAnchor()) {
      AVOCET_TRY(Expr atom, ParseAtom());
      AVOCET_TRY(atom, ParseRepeats(atom));
      parts.push_back(atom);
    }
    return builder_.Sequence(std::move(parts));
  }

  Result<Expr> ParseAtom() {
    const size_t begin = at_;
    const char c = text_[at_];
    if (c == '(') return ParseGroup();
    if (c == '[') {
      ++at_;
      AVOCET_TRY(Ranges ranges, ParseCharClass(text_, at_));
      return CharsInForm(std::move(ranges), builder_, form_);
    }
    if (c == '.') {
      ++at_;
      return CharsInForm(Complement({{'\n', '\n'}}), builder_, form_);
    }
    if (c == '*' || c == '+' || c == '?' || c == '{') return Fail(Errc::kInvalidArgument, "at byte {}: nothing to repeat", begin);
    if (c == '^') return Fail(Errc::kInvalidArgument, "at byte {}: ^ is offered at the beginning only", begin);
    if (c != '\\') {
      const char32_t one = NextChar(text_, at_);
      return CharsInForm({{one, one}}, builder_, form_);
    }
    if (++at_ >= text_.size()) return Fail(Errc::kInvalidArgument, "at byte {}: a backslash without anything behind it", begin);
    if (auto named = NamedClass(text_[at_])) {
      ++at_;
      return CharsInForm(*std::move(named), builder_, form_);
    }
    AVOCET_TRY(const char32_t one, ParseEscape(text_, at_));
    return CharsInForm({{one, one}}, builder_, form_);
  }

  Result<Expr> ParseGroup() {
    const size_t begin = at_++;
    if (Take('?')) {
      const bool is_named = Take("P<") || (text_.substr(at_).starts_with('<') && !text_.substr(at_).starts_with("<=") &&
                                           !text_.substr(at_).starts_with("<!") && Take('<'));
      if (is_named) {
        const size_t close = text_.find('>', at_);
        if (close == std::string_view::npos) return Fail(Errc::kInvalidArgument, "at byte {}: the group's name is not closed", begin);
        at_ = close + 1;
      } else if (!Take(':')) {
        return Fail(Errc::kInvalidArgument, "at byte {}: look-around and flags are not offered", begin);
      }
    }
    if (++depth_ > kNestingMax) return Fail(Errc::kInvalidArgument, "more than {} groups in one another", kNestingMax);
    AVOCET_TRY(const Expr inner, ParseAlternatives());
    --depth_;
    if (!Take(')')) return Fail(Errc::kInvalidArgument, "at byte {}: the group is not closed, or holds an anchor", begin);
    return inner;
  }

  std::optional<int32_t> TakeNumber() {
    int32_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || end == text_.data() + at_) return std::nullopt;
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  Result<Expr> ParseRepeats(Expr atom) {
    for (int32_t times = 0; at_ < text_.size(); ++times) {
      const size_t begin = at_;
      int32_t min = 0;
      int32_t max = kUnbounded;
      if (Take('?')) {
        max = 1;
      } else if (Take('+')) {
        min = 1;
      } else if (Take('{')) {
        const std::optional<int32_t> low = TakeNumber();
        min = low.value_or(0);
        const bool has_comma = Take(',');
        const std::optional<int32_t> high = has_comma ? TakeNumber() : low;
        if ((!low && !high) || !Take('}')) return Fail(Errc::kInvalidArgument, "at byte {}: expected {{m,n}}", begin);
        max = high.value_or(kUnbounded);
        if (min < 0 || min > kRepeatMax || max > kRepeatMax || (max != kUnbounded && max < min)) {
          return Fail(Errc::kInvalidArgument, "at byte {}: {} to {} repeats, at most {}", begin, min, max, kRepeatMax);
        }
      } else if (!Take('*')) {
        return atom;
      }
      if (times >= kNestingMax) return Fail(Errc::kInvalidArgument, "at byte {}: too many repeats of repeats", begin);
      Take('?');  // lazy: the same texts
      atom = builder_.Repeat(atom, min, max);
    }
    return atom;
  }

  std::string_view text_;
  Builder& builder_;
  TextForm form_;
  size_t at_ = 0;
  int32_t depth_ = 0;
};

}  // namespace

char32_t NextChar(std::string_view text, size_t& at) {
  const auto lead = static_cast<uint8_t>(text[at++]);
  const int length = lead < 0xC0 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t value = length == 0 ? lead : length == 1 ? lead & 0x1Fu : length == 2 ? lead & 0x0Fu : lead & 0x07u;
  for (int i = 0; i < length && at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0u) == 0x80u; ++i) {
    value = (value << 6) | (static_cast<uint8_t>(text[at++]) & 0x3Fu);
  }
  return std::min(value, kCharMax);
}

Result<std::vector<CharRange>> ParseCharClass(std::string_view text, size_t& at) {
  const size_t begin = at - 1;
  const bool is_negated = at < text.size() && text[at] == '^';
  if (is_negated) ++at;
  Ranges ranges;
  for (bool is_first = true;; is_first = false) {
    if (at >= text.size()) return Fail(Errc::kInvalidArgument, "at byte {}: the class is not closed", begin);
    if (text[at] == ']' && !is_first) break;
    if (text[at] == '\\' && at + 1 < text.size()) {
      if (auto named = NamedClass(text[at + 1])) {
        at += 2;
        ranges.insert(ranges.end(), named->begin(), named->end());
        continue;
      }
    }
    const auto take = [&]() -> Result<char32_t> {
      if (text[at] != '\\') return NextChar(text, at);
      if (++at >= text.size()) return Fail(Errc::kInvalidArgument, "at byte {}: the class is not closed", begin);
      if (text[at] == 'b') {
        ++at;
        return U'\b';
      }
      return ParseEscape(text, at);
    };
    AVOCET_TRY(const char32_t first, take());
    char32_t last = first;
    if (at + 1 < text.size() && text[at] == '-' && text[at + 1] != ']') {
      ++at;
      AVOCET_TRY(last, take());
    }
    if (last < first) return Fail(Errc::kInvalidArgument, "at byte {}: a range of characters is upside down", at);
    ranges.push_back({first, last});
  }
  ++at;
  return is_negated ? Complement(std::move(ranges)) : Sorted(std::move(ranges));
}

Expr CharsInForm(std::vector<CharRange> ranges, Builder& builder, TextForm form) {
  if (form == TextForm::kRaw) return builder.Chars(Sorted(std::move(ranges)));
  const Ranges unescaped{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kCharMax}};
  std::vector<Expr> branches{builder.Chars(Intersection(ranges, unescaped))};
  constexpr std::pair<char32_t, std::string_view> kEscapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                                                                {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
  for (const auto& [c, escape] : kEscapes) {
    if (Contains(ranges, c)) branches.push_back(builder.Bytes(escape));
  }
  return builder.Choice(std::move(branches));
}

Result<Expr> ParseRegex(std::string_view pattern, Builder& builder, TextForm form, MatchKind match) {
  if (pattern.size() > kSourceBytesMax) return Fail(Errc::kInvalidArgument, "{} bytes, at most {}", pattern.size(), kSourceBytesMax);
  return Parser(pattern, builder, form).ParseAll(match);
}

}  // namespace avocet::grammar
