// Regular expressions to grammars: literals, classes, groups, alternatives, greedy or lazy repeats, anchors at the ends. What has no
// meaning for a grammar (look-around, back references, word borders) is refused by name. Stateless.
#pragma once

#include <string_view>

#include "base/error.h"
#include "grammar/expression.h"

namespace avocet::grammar {

// kJsonString: the expression describes the value of a JSON string, the grammar its spelling (a quote becomes \").
enum class TextForm : uint8_t { kRaw, kJsonString };
// kWhole: the text as a whole matches. kSearch: without anchors anything may stand around the match.
enum class MatchKind : uint8_t { kWhole, kSearch };

Result<Expr> ParseRegex(std::string_view pattern, Builder& builder, TextForm form, MatchKind match);

// The inside of [...], for grammars that have such classes too. `at` moves behind the closing bracket.
Result<std::vector<CharRange>> ParseCharClass(std::string_view text, size_t& at);

// One of the characters in the given form.
Expr CharsInForm(std::vector<CharRange> ranges, Builder& builder, TextForm form);

// The next character of valid or invalid UTF-8; `at` moves behind it.
char32_t NextChar(std::string_view text, size_t& at);

}  // namespace avocet::grammar
