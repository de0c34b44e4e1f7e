#include "tokenizer/jinja/content.h"

#include <algorithm>
#include <array>

namespace avocet::tokenizer::jinja {
namespace {

// What a variable may hold, as far as it matters here.
using Meaning = uint8_t;
constexpr Meaning kMessages = 1;
constexpr Meaning kMessage = 2;
constexpr Meaning kContent = 4;

// Each pass carries meanings one assignment or call further; templates take two or three.
constexpr int kPassesMax = 16;

class ContentFinder {
 public:
  explicit ContentFinder(const Template& parsed)
      : template_(parsed), meanings_(parsed.names.size(), 0), macros_(parsed.names.size(), nullptr) {
    for (size_t i = 0; i < parsed.names.size(); ++i) {
      if (parsed.names[i] == "messages") meanings_[i] = kMessages;
    }
  }

  bool Run() {
    for (int pass = 0; pass < kPassesMax && !is_found_; ++pass) {
      const std::vector<Meaning> before = meanings_;
      Visit(template_.body);
      if (meanings_ == before && pass > 0) break;
    }
    return is_found_;
  }

 private:
  static bool IsText(const Expression& e, std::string_view text) {
    return e.kind == ExpressionKind::kLiteral && e.value.is_string() && e.value.text() == text;
  }

  Meaning OfFilter(const Expression& e) const {
    static constexpr std::array<std::string_view, 8> kKeeping = {"d",          "default", "list",   "reject",
                                                                 "rejectattr", "reverse", "select", "selectattr"};
    if (e.children[0] == nullptr) return 0;
    const Meaning input = Of(*e.children[0]);
    if (std::ranges::find(kKeeping, e.text) != kKeeping.end()) return input;
    return (e.text == "first" || e.text == "last") && (input & kMessages) != 0 ? kMessage : 0;
  }

  // message.get('content')
  Meaning OfCall(const Expression& e) const {
    const Expression& callee = *e.children[0];
    const bool is_get = callee.kind == ExpressionKind::kAttribute && callee.text == "get" && !e.arguments->positional.empty();
    return is_get && IsText(*e.arguments->positional[0], "content") && (Of(*callee.children[0]) & kMessage) != 0 ? kContent : 0;
  }

  Meaning OfItem(const Expression& e) const {
    const Meaning object = Of(*e.children[0]);
    if ((object & kMessages) != 0) return kMessage;
    return (object & kMessage) != 0 && IsText(*e.children[1], "content") ? kContent : 0;
  }

  Meaning Of(const Expression& e) const {
    switch (e.kind) {
      case ExpressionKind::kName: return meanings_[static_cast<size_t>(e.name)];
      case ExpressionKind::kSlice: return Of(*e.children[0]);
      case ExpressionKind::kItem: return OfItem(e);
      case ExpressionKind::kAttribute: return e.text == "content" && (Of(*e.children[0]) & kMessage) != 0 ? kContent : 0;
      case ExpressionKind::kCall: return OfCall(e);
      case ExpressionKind::kFilter: return OfFilter(e);
      case ExpressionKind::kConditional:
        return static_cast<Meaning>(Of(*e.children[0]) | (e.children[2] != nullptr ? Of(*e.children[2]) : 0));
      case ExpressionKind::kAnd:
      case ExpressionKind::kOr:
      case ExpressionKind::kArithmetic: return static_cast<Meaning>(Of(*e.children[0]) | Of(*e.children[1]));
      default: return 0;
    }
  }

  void Add(NameId name, Meaning meaning) { meanings_[static_cast<size_t>(name)] |= meaning; }
  void Assign(const Target& target, Meaning meaning) {
    if (target.kind == Target::Kind::kName) Add(target.name, meaning);
  }

  // Macros pass on what they are called with.
  void VisitCall(const Expression& e) {
    const Expression& callee = *e.children[0];
    if (callee.kind != ExpressionKind::kName) return;
    const MacroData* const macro = macros_[static_cast<size_t>(callee.name)];
    if (macro == nullptr) return;
    for (size_t i = 0; i < std::min(e.arguments->positional.size(), macro->parameters.size()); ++i) {
      Add(macro->parameters[i].name, Of(*e.arguments->positional[i]));
    }
    for (const CallArguments::Named& argument : e.arguments->named) {
      const auto parameter = std::ranges::find(macro->parameters, argument.name, &Parameter::text);
      if (parameter != macro->parameters.end()) Add(parameter->name, Of(*argument.value));
    }
  }

  void Visit(const ExpressionPtr& e) {
    if (e == nullptr) return;
    if (e->kind == ExpressionKind::kCall) VisitCall(*e);
    for (const ExpressionPtr& child : e->children) Visit(child);
    if (e->arguments == nullptr) return;
    for (const ExpressionPtr& argument : e->arguments->positional) Visit(argument);
    for (const CallArguments::Named& argument : e->arguments->named) Visit(argument.value);
    Visit(e->arguments->rest);
    Visit(e->arguments->named_rest);
  }

  void Visit(const Block& block) {
    for (const auto& statement : block) Visit(*statement);
  }

  void Visit(const Statement& s) {
    if (s.kind == StatementKind::kFor) {
      const Meaning source = Of(*s.expressions[0]);
      is_found_ = is_found_ || (source & kContent) != 0;
      if ((source & kMessages) != 0) Assign(s.targets[0], kMessage);
    } else if (s.kind == StatementKind::kSet || s.kind == StatementKind::kWith) {
      for (size_t i = 0; i < s.targets.size(); ++i) Assign(s.targets[i], Of(*s.expressions[i]));
    } else if (s.kind == StatementKind::kMacro) {
      macros_[static_cast<size_t>(s.name)] = s.macro.get();
    }
    for (const ExpressionPtr& e : s.expressions) Visit(e);
    Visit(s.condition);
    for (const Branch& branch : s.branches) {
      Visit(branch.condition);
      Visit(branch.body);
    }
    if (s.macro != nullptr) Visit(s.macro->body);
    Visit(s.body);
    Visit(s.else_body);
  }

  const Template& template_;
  std::vector<Meaning> meanings_;         // by name
  std::vector<const MacroData*> macros_;  // by name
  bool is_found_ = false;
};

}  // namespace

bool LoopsOverContent(const Template& parsed) {
  return ContentFinder(parsed).Run();
}

}  // namespace avocet::tokenizer::jinja
