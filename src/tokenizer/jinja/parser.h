// Template text to a tree. The grammar and its precedences are those of Jinja 3.1 with its loop controls, as chat templates are run by
// Hugging Face; what reaches for other templates (include, import, extends, block) is refused. Recursion is bounded by the nesting of
// the source (limits::kTemplateDepthMax). Pure.
#pragma once

#include <string_view>

#include "base/error.h"
#include "tokenizer/jinja/ast.h"

namespace avocet::tokenizer::jinja {

// source is valid UTF-8. Errors read "line N: reason".
Result<Template> Parse(std::string_view source);

}  // namespace avocet::tokenizer::jinja
