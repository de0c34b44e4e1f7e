// Template text to tokens, with the white-space rules of trim_blocks and lstrip_blocks and their `-` and `+` marks. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

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
  int32_t line = 1;
  std::string text;  // of strings: with their escapes resolved; of numbers: without underscores
};

// What a message calls the token.
std::string Describe(const Token& token);

// source is valid UTF-8. The last token is kEnd. Errors read "line N: reason".
Result<std::vector<Token>> Tokenize(std::string_view source);

// The text of a string literal without its quotes, read as Python reads "unicode-escape". Fails with the reason alone.
Result<std::string> ResolveEscapes(std::string_view literal);

}  // namespace avocet::tokenizer::jinja
