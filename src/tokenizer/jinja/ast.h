// The parsed template: plain trees, immutable once parsed. Names are numbers, given in the order of their appearance (Template::names).
// Every node knows its line, for messages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace avocet::tokenizer::jinja {

struct NativeFunction;  // a filter or a test, jinja_native.h

enum class NameId : int32_t {};

enum class ExpressionKind : uint8_t {
  kLiteral,      // value
  kName,         // name
  kList,         // children
  kTuple,        // children
  kDict,         // children: key, value, key, value ...
  kAttribute,    // children[0].text
  kItem,         // children[0][children[1]]
  kSlice,        // children[0][children[1]:children[2]:children[3]], missing ones are nullptr
  kCall,         // children[0](arguments)
  kFilter,       // children[0] | text(arguments); children[0] is nullptr for the body of a block
  kTest,         // children[0] is text(arguments)
  kNot,          // children[0]
  kNegative,     // children[0]
  kPositive,     // children[0]
  kArithmetic,   // children[0] operation children[1]
  kConcat,       // children, joined by ~
  kAnd,          // children[0], children[1]
  kOr,           // children[0], children[1]
  kCompare,      // children[0] comparisons[0] children[1] comparisons[1] ...
  kConditional,  // children: then, condition, else (may be nullptr)
};

enum class Comparison : uint8_t { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual, kIn, kNotIn };

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  struct Named {
    std::string name;
    ExpressionPtr value;
  };
  std::vector<ExpressionPtr> positional;
  std::vector<Named> named;
  ExpressionPtr rest;        // *rest
  ExpressionPtr named_rest;  // **named_rest
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kLiteral;
  BinaryOp operation = BinaryOp::kAdd;
  NameId name{};
  int32_t line = 0;
  int32_t height = 1;  // of the tree below it: bounds the recursion of everything that walks it
  std::string text;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<Comparison> comparisons;
  std::unique_ptr<CallArguments> arguments;
  const NativeFunction* native = nullptr;  // of a filter or test; nullptr: unknown, an error only if it is run
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

// What is assigned to: a name, a tuple of targets, or an attribute of a namespace.
struct Target {
  enum class Kind : uint8_t { kName, kTuple, kNamespace };
  Kind kind = Kind::kName;
  NameId name{};
  std::string attribute;
  std::vector<Target> children;
};

struct Parameter {
  std::string text;
  NameId name{};
  ExpressionPtr default_value;  // may be nullptr
};

// A macro, or the body of a call block.
struct MacroData {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool takes_caller = false;  // the body speaks of caller, varargs, kwargs
  bool takes_varargs = false;
  bool takes_kwargs = false;
  bool has_caller_parameter = false;
  NameId caller{};
  NameId varargs{};
  NameId kwargs{};
};

enum class StatementKind : uint8_t {
  kText,         // text
  kOutput,       // expressions
  kIf,           // branches
  kFor,          // for each target in expressions[0], if condition: body; else_body; loop: name
  kSet,          // targets[0] = expressions[0]
  kSetBlock,     // targets[0] = body, through the filters expressions[0] if there are any
  kMacro,        // name, macro
  kCallBlock,    // expressions[0] is the call, macro its caller
  kFilterBlock,  // body through the filters expressions[0]
  kWith,         // targets = expressions, body
  kGeneration,   // body
  kBreak,
  kContinue,
};

struct Branch {
  ExpressionPtr condition;  // nullptr: else
  Block body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  bool is_recursive = false;
  NameId name{};
  int32_t line = 0;
  std::string text;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Branch> branches;
  ExpressionPtr condition;
  std::unique_ptr<MacroData> macro;
  Block body;
  Block else_body;
};

struct Template {
  Block body;
  std::vector<std::string> names;
};

}  // namespace avocet::tokenizer::jinja
