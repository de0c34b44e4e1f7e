// Runs a parsed template. One object per rendering; bounded in steps, depth and output (base/limits.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_value.h"

namespace avocet::tokenizer::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;
};
using ScopePtr = std::shared_ptr<Scope>;

struct LoopData {
  std::vector<Value> items;
  size_t index = 0;
  int32_t depth = 1;
  std::vector<Value> last_changed;
  bool has_changed_before = false;
  const Statement* statement = nullptr;  // for recursive loops
  ScopePtr scope;
};

class Evaluator {
 public:
  explicit Evaluator(std::unordered_map<std::string, Value> globals);

  std::string Render(const Block& block);

  // For filters, tests and methods.
  void Charge(int64_t steps);           // counts work against the step limit
  void CheckBytes(size_t bytes) const;  // a string of this size may be made
  Value Call(const Value& function, Arguments& arguments);
  Value ApplyFilter(const std::string& name, const Value& input, Arguments& arguments);
  bool ApplyTest(const std::string& name, const Value& subject, Arguments& arguments);
  Value Attribute(const Value& object, const std::string& name);  // object.name
  Value Item(const Value& object, const Value& key);              // object[key]
  std::vector<Value> Iterate(const Value& value);                 // what a for loop goes through

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class Depth;

  Flow Run(const Block& block);
  Flow RunOne(const Statement& statement);
  Flow RunFor(const Statement& statement);
  std::string RenderLoop(const Statement& statement, const Value& iterable, ScopePtr scope, int32_t depth, Flow* flow);
  std::string Capture(const Block& block);
  void Assign(const Expression& target, const Value& value);
  void SetVariable(const std::string& name, const Value& value);
  Value MakeMacro(const Statement& statement, std::string name);
  Value CallMacro(const Statement& statement, const ScopePtr& scope, Arguments& arguments);

  Value Eval(const Expression& expression);
  Value EvalBinary(const Expression& expression);
  Value EvalCompare(const Expression& expression);
  Value EvalUnary(const Expression& expression);
  Value EvalSlice(const Expression& expression);
  Value EvalCall(const Expression& expression);
  Arguments EvalArguments(const Expression& expression);
  Value Lookup(const std::string& name) const;
  Value LoopAttribute(const Value& loop, const std::string& name);
  void Append(std::string_view text);

  std::unordered_map<std::string, Value> globals_;
  ScopePtr scope_;
  std::string* out_ = nullptr;
  int64_t steps_ = 0;
  int32_t depth_ = 0;
};

// Implemented in jinja_methods.cpp, jinja_filters.cpp and jinja_tests.cpp. Undefined when there is no such method.
Value FindMethod(const Value& object, const std::string& name);
using FilterFn = Value (*)(Evaluator&, const Value& input, Arguments&);
FilterFn FindFilter(const std::string& name);  // nullptr: unknown
using TestFn = bool (*)(Evaluator&, const Value& subject, Arguments&);
TestFn FindTest(const std::string& name);
std::unordered_map<std::string, Value> MakeGlobals();

Value BinaryOperation(Evaluator& evaluator, const std::string& op, const Value& a, const Value& b);

// The i-th positional or the named argument; nullptr when absent.
const Value* Argument(const Arguments& arguments, size_t index, std::string_view name);

}  // namespace avocet::tokenizer::jinja
