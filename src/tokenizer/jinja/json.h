// Values as JSON, as Python's json.dumps writes them.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "tokenizer/jinja/value.h"

namespace avocet::tokenizer::jinja {

struct JsonStyle {
  std::optional<std::string> indent;  // of one level; nothing: all in one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sorts_keys = false;
  bool is_ascii = false;
};
Result<std::string> DumpJson(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace avocet::tokenizer::jinja
