// JSON schemas to grammars of the JSON that they describe: properties in the order of the schema, white space bounded, numbers of bounded
// length. Everything that the grammar lets through is valid; of what is valid it may let through less (an object whose properties are
// listed has no others unless additionalProperties says so). Keywords that cannot be kept are refused by name. Stateless but for the
// builder; `root` is what local references start from, others are never followed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "grammar/expression.h"

namespace avocet::grammar {

using Json = nlohmann::ordered_json;

enum class Spacing : uint8_t { kBounded, kNone };  // between the parts of a JSON text

class SchemaGrammar {
 public:
  // root and builder: borrowed.
  SchemaGrammar(const Json& root, Builder& builder, Spacing spacing);

  // The JSON texts that the schema allows. Finish comes after the last of them.
  Result<Expr> Value(const Json& schema);
  Expr AnyObject();
  // Defines what references were met.
  Result<void> Finish();

  // The schema behind references, as far as there is one.
  const Json& Resolve(const Json& schema) const;

 private:
  Result<Expr> Combined(const Json& schema, const char* keyword);
  Result<Expr> OfType(const Json& schema, const std::string& type);
  Result<Expr> Object(const Json& schema);
  Result<Expr> Array(const Json& schema);
  Result<Expr> String(const Json& schema);
  Result<Expr> Number(const Json& schema, const std::string& type);
  Result<Expr> Merged(const Json& base, const Json& other);
  Result<Json> AllOf(const Json& schema, int32_t depth) const;
  Result<void> MergeInto(Json& base, const Json& other, int32_t depth) const;

  Expr Members(const std::vector<std::pair<Expr, bool>>& members, std::optional<Expr> others);
  Expr Key(std::string_view name);
  Expr OtherKey(const Json& properties);
  Expr AnyValue();
  Expr Space();
  Expr Quoted(Expr inner);
  Expr StringChar();
  Expr AsRule(Expr body, const char* name);

  const Json& root_;
  Builder& builder_;
  Spacing spacing_;
  std::map<std::string, RuleId> references_;
  std::vector<std::string> pending_;
  std::optional<RuleId> space_, any_value_, any_object_, string_char_;
};

}  // namespace avocet::grammar
