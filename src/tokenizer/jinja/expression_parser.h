// The part of the parser that reads expressions and assignment targets; jinja_parser.cpp builds statements on it. One object per
// template.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/lexer.h"

namespace avocet::tokenizer::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // Whether "a if b else c" may stand here: it may not where an `if` of the tag follows.
  enum class Conditionals : uint8_t { kAllowed, kNot };
  using Parsed = Result<ExpressionPtr>;

  // Bounds recursion while it lives. Check: before going deeper.
  class Depth {
   public:
    explicit Depth(ExpressionParser& parser) : parser_(parser) { ++parser_.depth_; }
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Result<void> Check() const;

   private:
    ExpressionParser& parser_;
  };

  // Which of the special names a macro's body uses, and which it has assigned to first.
  struct SpecialNames {
    enum Name : uint8_t { kCaller, kVarargs, kKwargs };
    bool is_used[3] = {false, false, false};
    bool is_shadowed[3] = {false, false, false};
  };

  // A filter or test that does not exist. Inside the branches of a condition it is an error only when it is run, elsewhere at once; so
  // they are collected until it is clear where they stand.
  struct UnknownName {
    int32_t line = 0;
    std::string reason;
  };

  Parsed Expr(Conditionals conditionals = Conditionals::kAllowed);
  Parsed ExprOrTuple(Conditionals conditionals = Conditionals::kAllowed);
  // | name(arguments) | ... applied to node, nullptr for a block's body.
  Parsed Filters(ExpressionPtr node);
  Parsed FilterNamed(ExpressionPtr node);
  // A name, a tuple of them with or without brackets, and with kAllowed attributes of namespaces.
  enum class Attributes : uint8_t { kRefused, kAllowed };
  Result<Target> AssignmentTarget(Attributes attributes);

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& Next();
  bool Is(TokenKind kind) const { return Peek().kind == kind; }
  bool IsOperator(std::string_view text, size_t ahead = 0) const {
    return Peek(ahead).kind == TokenKind::kOperator && Peek(ahead).text == text;
  }
  bool IsName(std::string_view text, size_t ahead = 0) const { return Peek(ahead).kind == TokenKind::kName && Peek(ahead).text == text; }
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  Result<void> ExpectOperator(std::string_view text);
  Result<std::string> ExpectName(std::string_view what);
  std::unexpected<Error> Refuse(std::string_view reason) const { return RefuseAt(Peek().line, reason); }
  std::unexpected<Error> RefuseAt(int32_t line, std::string_view reason) const;
  std::unexpected<Error> Unexpected(std::string_view expected) const;
  // Of the unknown names collected since there were `first` of them.
  Result<void> RefuseUnknownNames(size_t first) const;

  NameId Intern(std::string_view name);
  void NoteUse(std::string_view name);
  void NoteAssignment(std::string_view name);

  std::vector<std::string> names_;
  std::vector<SpecialNames> macros_;  // of the macros around this place, innermost last
  std::vector<UnknownName> unknown_names_;
  int32_t depth_ = 0;

 private:
  ExpressionPtr Make(ExpressionKind kind, int32_t line) const;
  // The node with its children; refused when the tree becomes too high.
  Parsed Made(ExpressionKind kind, int32_t line, std::vector<ExpressionPtr> children);
  Parsed Checked(ExpressionPtr node) const;

  Parsed Or();
  Parsed And();
  Parsed Not();
  Parsed Compare();
  bool ComparisonHere(Comparison* comparison);
  Parsed Sum();
  Parsed Concat();
  Parsed Product();
  Parsed Power();
  enum class Filtering : uint8_t { kYes, kNo };
  Parsed Unary(Filtering filtering);
  Parsed Primary();
  Parsed Number();
  Parsed Parenthesised();
  Parsed List();
  Parsed Dict();
  Parsed Postfix(ExpressionPtr node);
  Parsed FiltersAndTests(ExpressionPtr node);
  Parsed Attribute(ExpressionPtr node);
  Parsed Subscript(ExpressionPtr node);
  Parsed Slice(ExpressionPtr node, ExpressionPtr first);
  Parsed Call(ExpressionPtr node);
  Parsed TestOf(ExpressionPtr node);
  Result<std::string> DottedName(std::string_view what);
  Result<std::unique_ptr<CallArguments>> Arguments();
  Result<void> Argument(CallArguments& arguments);
  Result<Target> TargetItem(Attributes attributes);
  Result<Target> BracketedTarget(Attributes attributes);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::unordered_map<std::string, NameId> ids_;
};

}  // namespace avocet::tokenizer::jinja
