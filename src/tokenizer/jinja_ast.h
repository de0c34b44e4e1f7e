// The parsed template: plain trees. Every node knows its line, for messages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace avocet::tokenizer::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct NamedArgument {
  std::string name;
  ExpressionPtr value;
};

enum class ExpressionKind : uint8_t {
  kLiteral,  // value
  kName,     // text
  kList,
  kTuple,        // children
  kMapping,      // children: key, value, key, value ...
  kAttribute,    // children[0].text
  kItem,         // children[0][children[1]]
  kSlice,        // children[0][c1:c2:c3], missing ones are nullptr
  kCall,         // children[0](children[1..], named)
  kFilter,       // children[0] | text(children[1..], named); children[0] is nullptr for {% filter %}
  kTest,         // children[0] is text(children[1..], named)
  kUnary,        // text: - + not
  kBinary,       // text: + - * / // % ** ~ and or
  kCompare,      // children[0] operators[0] children[1] operators[1] ...
  kConditional,  // children: then, condition, else (may be nullptr)
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kLiteral;
  int32_t line = 0;
  int32_t height = 1;  // of the tree below: bounded, since evaluation and destruction recurse
  std::string text;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<NamedArgument> named;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind : uint8_t {
  kText,       // text
  kOutput,     // expression
  kIf,         // branches: (condition or nullptr, body)
  kFor,        // targets in expression, condition, body, else_body
  kSet,        // targets = expression
  kSetBlock,   // targets = rendered body, through filter if there is one
  kMacro,      // name, parameters
  kCallBlock,  // expression is the call; parameters of the caller
  kFilterBlock,
  kBlock,  // {% with %}: parameters are assignments; also {% generation %}
  kBreak,
  kContinue,
  kDo,
};

struct Parameter {
  std::string name;
  ExpressionPtr default_value;  // may be nullptr
};

struct Branch {
  ExpressionPtr condition;  // nullptr: else
  Block body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int32_t line = 0;
  std::string text;  // text, or a macro's name
  ExpressionPtr expression;
  ExpressionPtr condition;  // of a for loop
  ExpressionPtr target;     // name, tuple of targets, or attribute of a namespace
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  Block body;
  Block else_body;
  bool is_recursive = false;
};

}  // namespace avocet::tokenizer::jinja
