#include "grammar/grammar_cache.h"

#include <chrono>

#include "base/log.h"
#include "base/printable.h"
#include "grammar/bounds.h"
#include "grammar/ebnf.h"
#include "grammar/regex.h"
#include "grammar/structural_tag.h"

namespace avocet::grammar {
namespace {

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string KeyOf(const Source& source) {
  std::string key = fmt::format("{} {} {} {} ", static_cast<int>(source.kind), static_cast<int>(source.spacing),
                                static_cast<int>(source.markup), static_cast<int>(source.count));
  key += source.text;
  if (!source.json.is_null()) key += Dump(source.json);
  for (const Tool& tool : source.tools) key += "\n" + Dump(Json(tool.name)) + Dump(tool.parameters);
  return key;
}

Result<Expr> Parse(const Source& source, Builder& builder) {
  switch (source.kind) {
    case SourceKind::kJsonObject: {
      SchemaGrammar schemas(source.json, builder, source.spacing);
      return schemas.AnyObject();
    }
    case SourceKind::kJsonSchema: {
      SchemaGrammar schemas(source.json, builder, source.spacing);
      AVOCET_TRY(const Expr value, schemas.Value(source.json));
      AVOCET_TRY_VOID(schemas.Finish());
      return value;
    }
    case SourceKind::kRegex: return ParseRegex(source.text, builder, TextForm::kRaw, MatchKind::kWhole);
    case SourceKind::kChoice: {
      std::vector<Expr> choices;
      for (const Json& text : source.json) choices.push_back(builder.Bytes(text.get<std::string>()));
      return builder.Choice(std::move(choices));
    }
    case SourceKind::kEbnf: return ParseEbnf(source.text, builder);
    case SourceKind::kStructuralTag: return ParseStructuralTag(source.json, source.spacing, builder);
    case SourceKind::kToolCalls: return ToolCalls(source.tools, source.markup, source.count, builder);
  }
  return Fail(Errc::kInternal, "unknown kind of grammar");
}

}  // namespace

Result<Automaton> Compile(const Source& source) {
  Builder builder;
  AVOCET_TRY(const Expr root, Parse(source, builder));
  return builder.Build(root);
}

GrammarCache::GrammarCache(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int32_t vocab_size, std::vector<int32_t> eos_ids)
    : tokenizer_(std::move(tokenizer)), vocab_size_(vocab_size), eos_ids_(std::move(eos_ids)) {}

const Vocabulary& GrammarCache::vocabulary() {
  std::call_once(once_, [this] { vocabulary_ = std::make_unique<const Vocabulary>(tokenizer_, vocab_size_, eos_ids_); });
  return *vocabulary_;
}

Result<std::shared_ptr<CompiledGrammar>> GrammarCache::Get(const Source& source) {
  const std::string key = KeyOf(source);
  if (key.size() > 4 * kSourceBytesMax) return Fail(Errc::kInvalidArgument, "{} bytes, at most {}", key.size(), 4 * kSourceBytesMax);
  {
    const std::lock_guard lock(mutex_);
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
      if (kept->first != key) continue;
      if (kept->second->IsWorn()) {  // those who follow it go on with it
        kept_.erase(kept);
        break;
      }
      kept_.splice(kept_.begin(), kept_, kept);
      return kept_.front().second;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  AVOCET_TRY(Automaton automaton, Compile(source));
  const size_t num_nodes = automaton.nodes.size();
  auto compiled = std::make_shared<CompiledGrammar>(std::move(automaton), vocabulary());
  LogDebug("a grammar of {} nodes was compiled in {:.1f} ms", num_nodes,
           std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  const std::lock_guard lock(mutex_);
  kept_.emplace_front(key, compiled);
  if (kept_.size() > kGrammarsMax) kept_.pop_back();
  return compiled;
}

}  // namespace avocet::grammar
