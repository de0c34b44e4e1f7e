// Wrapping of paragraphs as Python's textwrap does it, white space kept as it is. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace avocet::tokenizer::jinja {

struct WrapStyle {
  int64_t width = 79;  // at least 1
  bool breaks_long_words = true;
  bool breaks_on_hyphens = true;
};
std::vector<std::string> WrapParagraph(std::string_view text, const WrapStyle& style);

}  // namespace avocet::tokenizer::jinja
