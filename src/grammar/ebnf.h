// Grammars in the EBNF that GBNF and XGrammar read: `root ::= "a" [b-c]* (item | other){1,3} # comment`. Stateless.
#pragma once

#include <string_view>

#include "base/error.h"
#include "grammar/expression.h"

namespace avocet::grammar {

Result<Expr> ParseEbnf(std::string_view source, Builder& builder);

}  // namespace avocet::grammar
