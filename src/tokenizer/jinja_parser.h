// Tokens to a tree. The grammar and its precedences are Jinja 2's (documentation, "Template Designer Documentation").
#pragma once

#include <string_view>

#include "tokenizer/jinja_ast.h"

namespace avocet::tokenizer::jinja {

// Throws TemplateError with "line N: reason".
Block Parse(std::string_view source);

}  // namespace avocet::tokenizer::jinja
