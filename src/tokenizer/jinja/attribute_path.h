// The `attribute` argument of filters: "a.b.0", a number, or several paths with commas between.
#pragma once

#include <optional>
#include <vector>

#include "base/error.h"
#include "tokenizer/jinja/native.h"
#include "tokenizer/jinja/value.h"

namespace avocet::tokenizer::jinja {

// Whether texts are compared without regard to case.
enum class Case : uint8_t { kSensitive, kIgnored };

class AttributePath {
 public:
  AttributePath() = default;  // the item itself
  // attribute: a string, a number, or nullptr for the item itself.
  static AttributePath Of(const Value* attribute);
  // What stands in for undefined values on the way.
  void set_default(Value value) { default_ = std::move(value); }

  Result<Value> Get(Evaluator& evaluator, const Value& item, Case letters = Case::kSensitive) const;

 private:
  std::vector<Value> parts_;
  std::optional<Value> default_;
};

// The paths of an attribute such as "age,name".
std::vector<AttributePath> AttributePaths(const Value* attribute);

}  // namespace avocet::tokenizer::jinja
