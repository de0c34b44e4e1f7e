// Template text to tokens, with the white-space rules of trim_blocks and lstrip_blocks and their `-` and `+` marks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace avocet::tokenizer::jinja {

enum class TokenKind : uint8_t {
  kText,
  kOutputBegin,
  kOutputEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of strings: unescaped
  int32_t line = 1;
};

// Throws TemplateError with "line N: reason".
std::vector<Token> Tokenize(std::string_view source);

}  // namespace avocet::tokenizer::jinja
