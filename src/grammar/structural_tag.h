// Structural tags: free text in which certain beginnings oblige the model to go on in a certain form. Both wire forms: `structures` with
// `triggers`, and the nested `format` objects. Stateless.
#pragma once

#include "base/error.h"
#include "grammar/expression.h"
#include "grammar/json_schema.h"

namespace avocet::grammar {

Result<Expr> ParseStructuralTag(const Json& tag, Spacing spacing, Builder& builder);

}  // namespace avocet::grammar
