// Tool calls in the markup that the model writes, as grammars: only tools that were offered, with the parameters that their schemas ask
// for. Stateless.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "grammar/expression.h"
#include "grammar/json_schema.h"

namespace avocet::grammar {

struct Tool {
  std::string name;
  Json parameters;  // an object, or null: none
};

enum class CallMarkup : uint8_t { kFunctionTags, kJsonTags };
enum class CallCount : uint8_t { kOne, kOneOrMore };

Result<Expr> ToolCalls(const std::vector<Tool>& tools, CallMarkup markup, CallCount count, Builder& builder);

}  // namespace avocet::grammar
