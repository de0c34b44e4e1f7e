// What a template expects message content to be. Pure.
#pragma once

#include "tokenizer/jinja/ast.h"

namespace avocet::tokenizer::jinja {

// Whether some loop goes over the content of a message, be it by way of variables and macros. Judged by names: two variables of one
// name count as one.
bool LoopsOverContent(const Template& parsed);

}  // namespace avocet::tokenizer::jinja
