#include "tokenizer/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "tokenizer/jinja_value.h"

namespace avocet::tokenizer::jinja {
namespace {

constexpr std::array<std::string_view, 29> kOperators = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=",
                                                         "(",  ")",  "[",  "]",  "{",  "}",  ",", ".", ":", "|", ";", "!", "&", "@"};

bool IsNameStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool IsNamePart(char c) {
  return IsNameStart(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(Normalised(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) {
      const size_t open = FindOpening();
      Text(open);
      if (open == source_.size()) break;
      Tag();
    }
    tokens_.push_back({TokenKind::kEnd, {}, line_});
    return std::move(tokens_);
  }

 private:
  // Newlines become \n; one trailing newline of the template is dropped, as the reference does.
  static std::string Normalised(std::string_view source) {
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

  [[noreturn]] void Fail(std::string_view reason) const { throw TemplateError(fmt::format("line {}: {}", line_, reason)); }

  size_t FindOpening() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    }
    return source_.size();
  }

  void Advance(size_t to) {
    line_ +=
        static_cast<int32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  // The text before an opening, less what its mark or lstrip_blocks takes away.
  void Text(size_t open) {
    std::string_view text = std::string_view(source_).substr(at_, open - at_);
    if (trims_next_) text.remove_prefix(std::min(static_cast<size_t>(std::ranges::find_if_not(text, IsSpace) - text.begin()), text.size()));
    trims_next_ = false;
    if (open < source_.size()) {
      const char mark = open + 2 < source_.size() ? source_[open + 2] : ' ';
      if (mark == '-') {
        while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
      } else if (mark != '+' && source_[open + 1] != '{') {
        // lstrip_blocks: blanks between the start of the line and a block or comment.
        size_t end = text.size();
        while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
        const bool starts_line = end > 0 ? text[end - 1] == '\n' : IsAtLineStart(open - (text.size() - end));
        if (starts_line) text = text.substr(0, end);
      }
    }
    if (!text.empty()) tokens_.push_back({TokenKind::kText, std::string(text), line_});
    Advance(open);
  }

  bool IsAtLineStart(size_t at) const { return at == 0 || source_[at - 1] == '\n'; }

  void Tag() {
    const char kind = source_[at_ + 1];
    if (kind == '#') return Comment();
    size_t begin = at_ + 2;
    if (begin < source_.size() && (source_[begin] == '-' || source_[begin] == '+')) ++begin;
    if (kind == '%' && Raw(begin)) return;
    tokens_.push_back({kind == '{' ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, {}, line_});
    Advance(begin);
    Inside(kind == '{' ? "}}" : "%}");
  }

  void Comment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) Fail("a comment is not closed");
    const char mark = end > at_ + 2 ? source_[end - 1] : ' ';
    Advance(end + 2);
    AfterTag(mark == '-' ? '-' : mark == '+' ? '+' : ' ', true);
  }

  // trim_blocks: one newline after a block or comment goes; a `-` takes all white space.
  void AfterTag(char mark, bool is_block) {
    if (mark == '-') {
      trims_next_ = true;
    } else if (is_block && mark != '+' && at_ < source_.size() && source_[at_] == '\n') {
      Advance(at_ + 1);
    }
  }

  // {% raw %} ... {% endraw %}: everything between is text.
  bool Raw(size_t begin) {
    const auto skip_blanks = [this](size_t i) {
      while (i < source_.size() && IsSpace(source_[i])) ++i;
      return i;
    };
    size_t i = skip_blanks(begin);
    if (source_.compare(i, 3, "raw") != 0 || (i + 3 < source_.size() && IsNamePart(source_[i + 3]))) return false;
    i = skip_blanks(i + 3);
    char mark = ' ';
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) mark = source_[i++];
    if (source_.compare(i, 2, "%}") != 0) return false;
    Advance(i + 2);
    AfterTag(mark, true);
    for (size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", open + 2)) {
      size_t j = open + 2;
      const char before = j < source_.size() ? source_[j] : ' ';
      if (before == '-' || before == '+') ++j;
      j = skip_blanks(j);
      if (source_.compare(j, 6, "endraw") != 0) continue;
      j = skip_blanks(j + 6);
      char after = ' ';
      if (j < source_.size() && (source_[j] == '-' || source_[j] == '+')) after = source_[j++];
      if (source_.compare(j, 2, "%}") != 0) continue;
      Text(open);
      Advance(j + 2);
      AfterTag(after, true);
      return true;
    }
    Fail("a raw block is not closed");
  }

  void Inside(std::string_view close) {
    int depth = 0;  // of brackets: "}}" may close two mappings
    for (;;) {
      while (at_ < source_.size() && IsSpace(source_[at_])) Advance(at_ + 1);
      if (at_ >= source_.size()) Fail("a tag is not closed");
      const char c = source_[at_];
      const bool is_marked = (c == '-' || c == '+') && source_.compare(at_ + 1, 2, close) == 0;
      if ((depth == 0 || close == "%}") && (is_marked || source_.compare(at_, 2, close) == 0)) {
        tokens_.push_back({close == "}}" ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, {}, line_});
        Advance(at_ + (is_marked ? 3 : 2));
        AfterTag(is_marked ? c : ' ', close == "%}");
        return;
      }
      if (IsNameStart(c)) {
        size_t end = at_;
        while (end < source_.size() && IsNamePart(source_[end])) ++end;
        Push(TokenKind::kName, end);
      } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
        Number();
      } else if (c == '"' || c == '\'') {
        String(c);
      } else {
        const auto op = std::ranges::find_if(kOperators, [this](std::string_view o) { return source_.compare(at_, o.size(), o) == 0; });
        if (op == kOperators.end() || *op == "!" || *op == "&" || *op == "@" || *op == ";")
          Fail(fmt::format("unexpected character '{}'", c));
        if (*op == "(" || *op == "[" || *op == "{") ++depth;
        if (*op == ")" || *op == "]" || *op == "}") --depth;
        Push(TokenKind::kOperator, at_ + op->size());
      }
    }
  }

  void Push(TokenKind kind, size_t end) {
    tokens_.push_back({kind, source_.substr(at_, end - at_), line_});
    Advance(end);
  }

  void Number() {
    size_t end = at_;
    const auto digits = [this](size_t i) {
      while (i < source_.size() && (std::isdigit(static_cast<unsigned char>(source_[i])) != 0 || source_[i] == '_')) ++i;
      return i;
    };
    end = digits(end);
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && std::isdigit(static_cast<unsigned char>(source_[end + 1])) != 0) {
      is_float = true;
      end = digits(end + 1);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (digits(exponent) > exponent) {
        is_float = true;
        end = digits(exponent);
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    tokens_.push_back({is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text), line_});
    Advance(end);
  }

  void String(char quote) {
    std::string text;
    size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\') {
        text += source_[i];
      } else if (++i < source_.size()) {
        i = Escape(i, text);
      }
    }
    if (i >= source_.size()) Fail("a string is not closed");
    tokens_.push_back({TokenKind::kString, std::move(text), line_});
    Advance(i + 1);
  }

  // The escape whose letter stands at i; returns the index of its last character.
  size_t Escape(size_t i, std::string& text) const {
    const auto hex = [&](size_t count) -> size_t {
      if (i + count >= source_.size()) Fail("an escape in a string is cut off");
      uint32_t value = 0;
      for (size_t j = 1; j <= count; ++j) {
        const char c = source_[i + j];
        if (std::isxdigit(static_cast<unsigned char>(c)) == 0) Fail("an escape in a string has a letter that is no hexadecimal digit");
        value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      }
      const char32_t code = value > 0x10ffff || (value >= 0xd800 && value < 0xe000) ? U'\ufffd' : static_cast<char32_t>(value);
      text += Encode(std::u32string_view(&code, 1));
      return i + count;
    };
    switch (source_[i]) {
      case 'n': text += '\n'; return i;
      case 't': text += '\t'; return i;
      case 'r': text += '\r'; return i;
      case 'b': text += '\b'; return i;
      case 'f': text += '\f'; return i;
      case 'v': text += '\v'; return i;
      case 'a': text += '\a'; return i;
      case '0': text += '\0'; return i;
      case '\n': return i;
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      case '\\':
      case '\'':
      case '"': text += source_[i]; return i;
      default:
        text += '\\';
        text += source_[i];
        return i;
    }
  }

  std::string source_;
  size_t at_ = 0;
  int32_t line_ = 1;
  bool trims_next_ = false;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

}  // namespace avocet::tokenizer::jinja
