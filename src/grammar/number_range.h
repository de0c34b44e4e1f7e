// Decimal numbers within bounds, as grammars. Stateless.
#pragma once

#include <cstdint>
#include <optional>

#include "grammar/expression.h"

namespace avocet::grammar {

struct NumberBounds {
  std::optional<double> min, max;  // inclusive
  bool min_is_open = false, max_is_open = false;
};

// Integers within the bounds, at most 15 digits; numbers may have a fraction where it cannot leave the bounds.
Expr IntegerWithin(const NumberBounds& bounds, Builder& builder);
Expr NumberWithin(const NumberBounds& bounds, Builder& builder);

}  // namespace avocet::grammar
