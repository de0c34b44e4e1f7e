// Runs a parsed template. One object per rendering, used by one thread; the template itself is shared and not changed. Everything a
// template can do is charged to the Budget first, recursion is bounded by limits::kTemplateFramesMax, and nothing outside the variables
// and the built-in functions can be reached.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/budget.h"
#include "tokenizer/jinja/native.h"
#include "tokenizer/jinja/value.h"
#include "tokenizer/jinja/variables.h"

namespace avocet::tokenizer::jinja {

// The variables of one block. Those that a macro may still look at when the block has ended are captured and live as long as the
// rendering.
struct Scope {
  Scope* parent = nullptr;
  bool is_captured = false;
  std::vector<std::pair<NameId, Value>> variables;
};

// What can be called.
class FunctionData {
 public:
  explicit FunctionData(int32_t depth) : depth_(depth) {}
  virtual ~FunctionData() = default;
  FunctionData(const FunctionData&) = delete;
  FunctionData& operator=(const FunctionData&) = delete;

  virtual Result<Value> Call(Evaluator& evaluator, Arguments& arguments) = 0;
  virtual std::optional<Value> Attribute(std::string_view) const { return std::nullopt; }
  virtual std::string Show() const = 0;
  int32_t depth() const { return depth_; }  // of the containers it holds

 private:
  int32_t depth_;
};

// The `loop` of a for statement. Items are taken one at a time: a condition may depend on what the body has done before.
struct LoopData {
  int32_t nesting = 1;  // of the containers it holds
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // around the loop
  int32_t depth0 = 0;      // of a recursive loop
  Value source;
  std::vector<Value> items;                // of the source, where it is not a sequence or an iterator
  size_t next = 0;                         // into the source's or these items
  std::optional<std::vector<Value>> rest;  // what was still to come when the length was asked for, last first
  std::optional<Value> after;              // the next item, if it was looked at early
  int64_t index0 = -1;
  std::optional<int64_t> length;
  Value before;
  Value current;
  std::optional<std::vector<Value>> last_changed;
};

class Evaluator {
 public:
  Evaluator(const Template& parsed, const Variables& variables);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  Result<std::string> Render();
  // When Render has failed: where, and whether by raise_exception, whose text is the template author's own.
  int32_t error_line() const { return error_line_; }
  bool is_raised() const { return is_raised_; }

  // For filters, tests, methods and functions.
  Budget& budget() { return budget_; }
  Result<Value> Call(const Value& function, Arguments& arguments);
  Result<Value> ApplyFilter(std::string_view name, const Value& input, const Arguments& arguments);
  Result<bool> ApplyTest(std::string_view name, const Value& subject, const Arguments& arguments);
  // object.name: what Python calls an attribute, else the item of that name.
  Result<Value> GetAttribute(const Value& object, std::string_view name);
  // object[key]: the item, else the attribute of that name.
  Result<Value> GetItem(const Value& object, const Value& key);
  // Only what Python calls an attribute; nothing if there is none.
  Result<std::optional<Value>> FindAttribute(const Value& object, std::string_view name);
  Result<Value> Arithmetic(BinaryOp op, const Value& a, const Value& b);
  Result<int64_t> LengthOf(const Value& value);
  Value NewNamespace();
  std::unexpected<Error> Raise(std::string message);
  Result<Value> CallMacro(const MacroData& macro, Scope* definition, Arguments& arguments);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class Frame;
  class ScopeGuard;

  // jinja_eval.cpp: expressions
  Result<Value> Eval(const Expression& e);
  Result<Value> EvalNode(const Expression& e);
  Result<Value> EvalSequence(const Expression& e);
  Result<Value> EvalDict(const Expression& e);
  Result<Value> EvalSlice(const Expression& e);
  Result<Value> EvalCall(const Expression& e);
  Result<Value> EvalFilter(const Expression& e);
  Result<Value> EvalTest(const Expression& e);
  Result<Value> EvalSign(const Expression& e);
  Result<Value> EvalArithmetic(const Expression& e);
  Result<Value> EvalConcat(const Expression& e);
  Result<Value> EvalCompare(const Expression& e);
  Result<Value> EvalConditional(const Expression& e);
  Result<Arguments> EvalArguments(const CallArguments* arguments);
  Result<void> AppendNamedRest(const Value& value, Arguments& arguments);
  Result<Value> LoadVariable(NameId name);

  // jinja_access.cpp: attributes and items
  Value Unsafe(const Value& object, std::string_view name) const;
  Value Missing(const Value& object, std::string_view attribute) const;
  Result<Value> MissingElement(const Value& object, const Value& key);
  Result<std::optional<Value>> FindItem(const Value& object, const Value& key);

  // jinja_run.cpp: statements
  Result<Flow> Run(const Block& block);
  Result<Flow> RunOne(const Statement& s);
  Result<Flow> RunNode(const Statement& s);
  Result<Flow> RunOutput(const Statement& s);
  Result<Flow> RunIf(const Statement& s);
  Result<Flow> RunSetBlock(const Statement& s);
  Result<Flow> RunFilterBlock(const Statement& s);
  Result<Flow> RunCallBlock(const Statement& s);
  Result<Flow> RunWith(const Statement& s);
  Result<Flow> RunGeneration(const Statement& s);
  Result<void> Append(std::string_view text);
  // Runs the block into a text of its own, in a scope of its own. The text is void if the flow leaves the block.
  Result<Flow> Capture(const Block& block, std::string* text);
  Result<void> Assign(const Target& target, const Value& value);
  Result<void> AssignNamespace(const Target& target, const Value& value);
  void SetVariable(NameId name, Value value);
  Value NewMacro(const MacroData& macro);
  Result<void> BindParameters(const MacroData& macro, Arguments& arguments);
  Scope* NewScope(Scope* parent);
  void Release(Scope* scope);
  void CaptureScopes(Scope* scope);

  // jinja_loop.cpp
  Result<Flow> RunFor(const Statement& s);
  Result<std::shared_ptr<LoopData>> NewLoop(const Statement& s, const Value& iterable, Scope* scope, int32_t depth0);
  Result<Flow> RunLoop(const std::shared_ptr<LoopData>& loop);
  Result<std::optional<Value>> NextItem(LoopData& loop);
  Result<std::optional<Value>> TakeItem(LoopData& loop);
  Result<bool> Passes(LoopData& loop, const Value& item);
  Result<const std::optional<Value>*> PeekItem(LoopData& loop);
  Result<int64_t> LoopLength(LoopData& loop);
  Result<std::optional<Value>> LoopAttribute(const Value& loop, std::string_view name);
  Result<Value> CallLoop(LoopData& loop, const Arguments& arguments);
  friend class LoopMethod;

  const Template& template_;
  const Variables& variables_;
  std::vector<std::optional<Value>> loaded_;  // by name: variables and built-in functions, once they were used
  Budget budget_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  Value block_text_;  // the input of a block's filters
  int32_t num_frames_ = 0;
  int32_t error_line_ = 0;
  bool is_raised_ = false;
  // Both can come to hold themselves, or long chains of one another: the end of the rendering empties them one by one.
  std::vector<std::shared_ptr<NamespaceData>> namespaces_;
  std::vector<std::shared_ptr<LoopData>> remembering_loops_;
};

// Counts an evaluation while it lives.
class Evaluator::Frame {
 public:
  explicit Frame(Evaluator& evaluator) : evaluator_(evaluator) { ++evaluator_.num_frames_; }
  ~Frame() { --evaluator_.num_frames_; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // Room for one more, and a step for it.
  Result<void> Check() {
    if (evaluator_.num_frames_ <= limits::kTemplateFramesMax) return evaluator_.budget_.Steps(1);
    return Fail(Errc::kInvalidArgument, "more than {} evaluations in one another", limits::kTemplateFramesMax);
  }

 private:
  Evaluator& evaluator_;
};

// A new scope while it lives.
class Evaluator::ScopeGuard {
 public:
  ScopeGuard(Evaluator& evaluator, Scope* parent) : evaluator_(evaluator), outer_(evaluator.scope_) {
    evaluator_.scope_ = evaluator_.NewScope(parent);
  }
  ~ScopeGuard() {
    evaluator_.Release(evaluator_.scope_);
    evaluator_.scope_ = outer_;
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Evaluator& evaluator_;
  Scope* outer_;
};

// A method of a value, for when it is not called at once.
Result<Value> BindMethod(const NativeFunction& method, const Value& owner, Budget& budget);
// The built-in function of that name; nothing if there is none.
std::optional<Value> FindGlobal(std::string_view name);

}  // namespace avocet::tokenizer::jinja
