// The split patterns of the family (pre_tokenizer.h) written out: one match at a time, never looking back further than its own begin.
// Pure; the classes say whether marks count as letters, which is the only difference between the two patterns.
#pragma once

#include <string_view>

#include "tokenizer/char_class.h"

namespace avocet::tokenizer {

// The end of the match that begins at `at`; at < end, [at, end) is valid UTF-8. Every position has a match.
const char* MatchEnd(const char* at, const char* end, const CharClassTable& classes);

}  // namespace avocet::tokenizer
