// The variables that a template is given: JSON, which becomes a value when the template first asks for it, or values. Borrows the JSON.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "tokenizer/jinja/value.h"

namespace avocet::tokenizer::jinja {

class Variables {
 public:
  using Source = std::variant<Value, const nlohmann::ordered_json*>;

  // Of two with one name the first counts. The name and the JSON outlive this.
  void Add(std::string_view name, Source source) { sources_.emplace_back(name, std::move(source)); }

  // Nothing: there is no such variable.
  Result<std::optional<Value>> Find(std::string_view name) const {
    const auto found = std::ranges::find(sources_, name, &std::pair<std::string_view, Source>::first);
    if (found == sources_.end()) return std::nullopt;
    if (const Value* const value = std::get_if<Value>(&found->second)) return *value;
    return Value::FromJson(*std::get<const nlohmann::ordered_json*>(found->second));
  }

 private:
  std::vector<std::pair<std::string_view, Source>> sources_;
};

}  // namespace avocet::tokenizer::jinja
