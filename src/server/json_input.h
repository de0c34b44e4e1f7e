// Bytes of a request to JSON, within limits: nesting, number of values, valid UTF-8, no NaN, no number beyond a double. Duplicate keys:
// the last one wins. Linear in the bytes. Stateless.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/chat_template.h"

namespace avocet::server {

using Json = tokenizer::Json;

// The error says where and why; what: for the message, e.g. "the body".
Result<Json> ParseJson(std::string_view bytes, std::string_view what);

// One line, compact, UTF-8. Bytes that are no UTF-8 become U+FFFD.
std::string DumpJson(const Json& value);

// A value as messages quote it: short, one line.
std::string Preview(const Json& value);

}  // namespace avocet::server
