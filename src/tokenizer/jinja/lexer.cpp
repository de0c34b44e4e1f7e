#include "tokenizer/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

// Longer ones first.
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsAsciiDigit(char c) {
  return c >= '0' && c <= '9';
}

// Line ends become \n; one at the end of the template is dropped.
std::string WithPlainLineEnds(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(WithPlainLineEnds(source)) {}

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const size_t open = FindOpening();
      const std::optional<RawBegin> raw = RawBeginAt(open);
      const char mark = open + 2 < source_.size() ? source_[open + 2] : ' ';
      EmitText(open, mark, open < source_.size() && source_[open + 1] == '{' ? LeftStrip::kOnlyMarked : LeftStrip::kLineStart);
      if (open == source_.size()) break;
      if (raw) {
        AVOCET_TRY_VOID(Raw(raw->end));
      } else if (source_[open + 1] == '#') {
        AVOCET_TRY_VOID(Comment());
      } else {
        AVOCET_TRY_VOID(Tag());
      }
    }
    tokens_.push_back({TokenKind::kEnd, line_, {}});
    return std::move(tokens_);
  }

 private:
  std::unexpected<Error> Refuse(std::string_view reason) const { return Fail(Errc::kInvalidArgument, "line {}: {}", line_, reason); }

  // The reference forgives it if the template ends there.
  Result<void> NotClosed(std::string_view what, size_t begin) {
    if (begin < source_.size()) return Refuse(fmt::format("{} is not closed", what));
    MoveTo(source_.size());
    return {};
  }

  bool Has(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }
  bool HasAt(size_t at, std::string_view text) const {
    return at <= source_.size() && std::string_view(source_).substr(at).starts_with(text);
  }

  size_t SkipSpace(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!IsSpace(NextCodePoint(source_, next))) break;
      at = next;
    }
    return at;
  }

  void MoveTo(size_t to) {
    line_ += static_cast<int32_t>(std::ranges::count(std::string_view(source_).substr(at_, to - at_), '\n'));
    if (to > at_) starts_line_ = source_[to - 1] == '\n';
    at_ = to;
  }

  size_t FindOpening() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    }
    return source_.size();
  }

  // The text before a tag, less what the tag's mark or lstrip_blocks takes away.
  enum class LeftStrip { kOnlyMarked, kLineStart };
  void EmitText(size_t end, char mark, LeftStrip strip) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (end < source_.size() && mark == '-') {
      text = StripRight(text, std::nullopt);
    } else if (end < source_.size() && mark != '+' && strip == LeftStrip::kLineStart) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || starts_line_) && StripRight(text.substr(line_begin), std::nullopt).empty()) text = text.substr(0, line_begin);
    }
    if (!text.empty()) tokens_.push_back({TokenKind::kText, line_, std::string(text)});
    MoveTo(end);
  }

  // The end of a comment or block: "-" takes the white space that follows, otherwise one newline goes unless "+" keeps it.
  std::optional<size_t> BlockEndAt(size_t at, std::string_view close) const {
    if (HasAt(at, close)) return at + 2 + (HasAt(at + 2, "\n") ? 1 : 0);
    if (HasAt(at, "-") && HasAt(at + 1, close)) return SkipSpace(at + 3);
    if (HasAt(at, "+") && HasAt(at + 1, close)) return at + 3;
    return std::nullopt;
  }

  // Of an output tag: a newline after it stays, and there is no "+".
  std::optional<size_t> OutputEndAt(size_t at) const {
    if (HasAt(at, "}}")) return at + 2;
    return HasAt(at, "-}}") ? std::optional(SkipSpace(at + 3)) : std::nullopt;
  }

  Result<void> Comment() {
    size_t at = at_ + 2;
    if (HasAt(at, "-") || HasAt(at, "+")) ++at;
    const size_t close = source_.find("#}", at);
    if (close == std::string::npos) return NotClosed("a comment", at);
    const bool is_marked = close > at && (source_[close - 1] == '-' || source_[close - 1] == '+');
    MoveTo(*BlockEndAt(close - (is_marked ? 1 : 0), "#}"));
    return {};
  }

  struct RawBegin {
    size_t end = 0;
  };
  // {% raw %}: what follows it is text up to {% endraw %}.
  std::optional<RawBegin> RawBeginAt(size_t at) const {
    if (!HasAt(at, "{%")) return std::nullopt;
    at += 2;
    if (HasAt(at, "-") || HasAt(at, "+")) ++at;
    at = SkipSpace(at);
    if (!HasAt(at, "raw")) return std::nullopt;
    at = SkipSpace(at + 3);
    if (HasAt(at, "%}")) return RawBegin{at + 2};
    if (HasAt(at, "-%}")) return RawBegin{SkipSpace(at + 3)};
    return std::nullopt;
  }

  Result<void> Raw(size_t text_begin) {
    MoveTo(text_begin);
    for (size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", open + 2)) {
      const char mark = open + 2 < source_.size() ? source_[open + 2] : ' ';
      size_t at = SkipSpace(open + (mark == '-' || mark == '+' ? 3 : 2));
      if (!HasAt(at, "endraw")) continue;
      at = SkipSpace(at + 6);
      const std::optional<size_t> end = BlockEndAt(at, "%}");
      if (!end) continue;
      EmitText(open, mark, LeftStrip::kLineStart);
      MoveTo(*end);
      return {};
    }
    return NotClosed("a raw block", at_);
  }

  Result<void> Tag() {
    const bool is_output = source_[at_ + 1] == '{';
    tokens_.push_back({is_output ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, line_, {}});
    const size_t after = at_ + 2;
    MoveTo(HasAt(after, "-") || HasAt(after, "+") ? after + 1 : after);
    brackets_.clear();
    for (;;) {
      const std::optional<size_t> end = !brackets_.empty() ? std::nullopt : is_output ? OutputEndAt(at_) : BlockEndAt(at_, "%}");
      if (end) {
        tokens_.push_back({is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, line_, {}});
        MoveTo(*end);
        return {};
      }
      if (at_ == source_.size()) return Refuse("a tag is not closed");
      AVOCET_TRY_VOID(Inside());
    }
  }

  // One token, or white space, within a tag.
  Result<void> Inside() {
    const size_t after_space = SkipSpace(at_);
    if (after_space > at_) {
      MoveTo(after_space);
      return {};
    }
    const char c = source_[at_];
    if (IsAsciiDigit(c)) {
      Number();
      return {};
    }
    size_t name_end = at_;
    while (name_end < source_.size()) {
      size_t next = name_end;
      const uint32_t point = NextCodePoint(source_, next);
      if (!IsWordCharacter(point) && !IsIdentifierPart(point)) break;
      name_end = next;
    }
    if (name_end > at_) {
      const std::string_view name = std::string_view(source_).substr(at_, name_end - at_);
      if (!IsIdentifier(name)) return Refuse(fmt::format("'{}' is not a name", name));
      Emit(TokenKind::kName, name_end);
      return {};
    }
    if (c == '"' || c == '\'') return String(c);
    return Operator();
  }

  Result<void> Operator() {
    const auto op = std::ranges::find_if(kOperators, [this](std::string_view candidate) { return Has(candidate); });
    if (op == kOperators.end()) {
      size_t next = at_;
      NextCodePoint(source_, next);
      return Refuse(fmt::format("unexpected character '{}'", source_.substr(at_, next - at_)));
    }
    const char c = (*op)[0];
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) return Refuse(fmt::format("unexpected '{}'", c));
      if (brackets_.back() != c) return Refuse(fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
      brackets_.pop_back();
    }
    Emit(TokenKind::kOperator, at_ + op->size());
    return {};
  }

  void Emit(TokenKind kind, size_t end) {
    tokens_.push_back({kind, line_, source_.substr(at_, end - at_)});
    MoveTo(end);
  }

  template <typename IsDigitFn>
  size_t SkipDigits(size_t at, IsDigitFn is_digit) const {
    while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1]))))
      ++at;
    return at;
  }

  size_t FloatEnd() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return at_;  // xs.0.1 are two subscripts
    const size_t whole_end = SkipDigits(at_, IsAsciiDigit);
    size_t end = whole_end;
    if (HasAt(end, ".") && end + 1 < source_.size() && IsAsciiDigit(source_[end + 1])) end = SkipDigits(end + 1, IsAsciiDigit);
    size_t exponent = end;
    if (HasAt(exponent, "e") || HasAt(exponent, "E")) {
      ++exponent;
      if (HasAt(exponent, "+") || HasAt(exponent, "-")) ++exponent;
      if (exponent < source_.size() && IsAsciiDigit(source_[exponent])) end = SkipDigits(exponent, IsAsciiDigit);
    }
    return end == whole_end ? at_ : end;
  }

  size_t IntegerEnd() const {
    if (source_[at_] != '0') return SkipDigits(at_, IsAsciiDigit);
    const char letter = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : ' ';
    size_t end = at_;
    if (letter == 'b') end = SkipDigits(at_ + 2, [](char c) { return c == '0' || c == '1'; });
    if (letter == 'o') end = SkipDigits(at_ + 2, [](char c) { return c >= '0' && c <= '7'; });
    if (letter == 'x') end = SkipDigits(at_ + 2, [](char c) { return IsAsciiDigit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
    if (end > at_ + 2) return end;
    return SkipDigits(at_, [](char c) { return c == '0'; });  // 010 is a zero and a ten: not Python's octal
  }

  void Number() {
    const size_t float_end = FloatEnd();
    const bool is_float = float_end > at_;
    const size_t end = is_float ? float_end : IntegerEnd();
    Emit(is_float ? TokenKind::kFloat : TokenKind::kInteger, end);
    std::erase(tokens_.back().text, '_');
  }

  Result<void> String(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Refuse("a string is not closed");
    auto text = ResolveEscapes(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    if (!text) return Refuse(text.error().message);
    tokens_.push_back({TokenKind::kString, line_, *std::move(text)});
    MoveTo(end + 1);
    return {};
  }

  std::string source_;
  size_t at_ = 0;
  int32_t line_ = 1;
  bool starts_line_ = true;  // nothing, or a newline, is before at_
  std::string brackets_;     // the closing ones that are due
  std::vector<Token> tokens_;
};

}  // namespace

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText: return "text";
    case TokenKind::kOutputBegin: return "'{{'";
    case TokenKind::kOutputEnd: return "'}}'";
    case TokenKind::kBlockBegin: return "'{%'";
    case TokenKind::kBlockEnd: return "'%}'";
    case TokenKind::kString: return "a string";
    case TokenKind::kEnd: return "the end of the template";
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kOperator: break;
  }
  return fmt::format("'{}'", token.text);
}

Result<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

}  // namespace avocet::tokenizer::jinja
