// Escapes in string literals.
#include <optional>

#include <unicode/uchar.h>

#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

std::optional<uint32_t> HexValue(std::string_view digits) {
  uint32_t value = 0;
  for (const char c : digits) {
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + static_cast<uint32_t>(lower - 'a') + 10;
    } else {
      return std::nullopt;
    }
  }
  return value;
}

class EscapeReader {
 public:
  explicit EscapeReader(std::string_view literal) : literal_(literal) {}

  Result<std::string> Run() {
    while (at_ < literal_.size()) {
      if (literal_[at_] != '\\') {
        out_ += literal_[at_++];
      } else {
        ++at_;
        AVOCET_TRY_VOID(Escape());
      }
    }
    return std::move(out_);
  }

 private:
  Result<void> Escape() {
    const char letter = literal_[at_];  // the lexer pairs every backslash with a character
    if (static_cast<unsigned char>(letter) >= 0x80) return NonAscii();
    ++at_;
    switch (letter) {
      case '\n': return {};
      case '\\':
      case '\'':
      case '"': out_ += letter; return {};
      case 'a': out_ += '\a'; return {};
      case 'b': out_ += '\b'; return {};
      case 'f': out_ += '\f'; return {};
      case 'n': out_ += '\n'; return {};
      case 'r': out_ += '\r'; return {};
      case 't': out_ += '\t'; return {};
      case 'v': out_ += '\v'; return {};
      case 'x': return Hex(2);
      case 'u': return Hex(4);
      case 'U': return Hex(8);
      case 'N': return Named();
      default: break;
    }
    if (letter >= '0' && letter <= '7') return Octal(letter);
    out_ += '\\';
    out_ += letter;
    return {};
  }

  // The reference writes characters beyond ASCII as escapes first, so a backslash before one escapes that escape's backslash.
  Result<void> NonAscii() {
    const uint32_t c = NextCodePoint(literal_, at_);
    out_ += c < 0x100 ? fmt::format("\\x{:02x}", c) : c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
    return {};
  }

  Result<void> Append(uint32_t c) {
    if (c > 0x10FFFF) return Fail(Errc::kInvalidArgument, "a string names the character {:#x}, which does not exist", c);
    if (c >= 0xD800 && c < 0xE000) return Fail(Errc::kInvalidArgument, "a string names the surrogate {:#x}, which is not a character", c);
    AppendUtf8(c, out_);
    return {};
  }

  Result<void> Hex(size_t num_digits) {
    const std::string_view digits = literal_.substr(at_, num_digits);
    const std::optional<uint32_t> value = HexValue(digits);
    if (digits.size() < num_digits || !value)
      return Fail(Errc::kInvalidArgument, "an escape in a string needs {} hexadecimal digits", num_digits);
    at_ += num_digits;
    return Append(*value);
  }

  Result<void> Octal(char first) {
    auto value = static_cast<uint32_t>(first - '0');
    for (int i = 0; i < 2 && at_ < literal_.size() && literal_[at_] >= '0' && literal_[at_] <= '7'; ++i) {
      value = value * 8 + static_cast<uint32_t>(literal_[at_++] - '0');
    }
    return Append(value);
  }

  Result<void> Named() {
    const size_t close = literal_.find('}', at_);
    if (at_ >= literal_.size() || literal_[at_] != '{' || close == std::string_view::npos)
      return Fail(Errc::kInvalidArgument, "an escape \\N in a string needs a {{name}}");
    const std::string name(literal_.substr(at_ + 1, close - at_ - 1));
    at_ = close + 1;
    for (const UCharNameChoice choice : {U_UNICODE_CHAR_NAME, U_CHAR_NAME_ALIAS}) {
      UErrorCode status = U_ZERO_ERROR;
      const UChar32 c = u_charFromName(choice, name.c_str(), &status);
      if (U_SUCCESS(status)) return Append(static_cast<uint32_t>(c));
    }
    return Fail(Errc::kInvalidArgument, "no character is named '{}'", name);
  }

  std::string_view literal_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> ResolveEscapes(std::string_view literal) {
  return EscapeReader(literal).Run();
}

}  // namespace avocet::tokenizer::jinja
