// Filters, tests and methods that are built in: how they are declared, and how a call's arguments are matched to their parameters.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/jinja/value.h"

namespace avocet::tokenizer::jinja {

class Evaluator;

// The arguments of a call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  bool empty() const { return positional.empty() && named.empty(); }
};

inline constexpr size_t kParametersMax = 5;

// Arguments matched to parameters. Absent ones are nullptr.
class Bound {
 public:
  explicit Bound(const Arguments& all) : all_(all) {}

  const Value* operator[](size_t i) const { return values_[i]; }
  void Set(size_t i, const Value* value) { values_[i] = value; }
  const Arguments& all() const { return all_; }
  bool Has(size_t i) const { return values_[i] != nullptr; }
  // Absent or none.
  bool IsNone(size_t i) const { return values_[i] == nullptr || values_[i]->is_none(); }
  // With Python's truth; default_value when absent.
  bool Truth(size_t i, bool default_value) const { return values_[i] == nullptr ? default_value : values_[i]->IsTrue(); }
  // An integer, refused if it is something else; beyond 64 bits the nearest of them.
  Result<int64_t> Int(size_t i, int64_t default_value) const;
  // A string, refused if it is something else.
  Result<std::string_view> Text(size_t i, std::string_view default_value) const;

 private:
  std::array<const Value*, kParametersMax> values_{};
  const Arguments& all_;
};

// self: what is filtered, tested, or owns the method.
using NativeRun = Result<Value> (*)(Evaluator& evaluator, const Value& self, const Bound& arguments);

struct NativeFunction {
  std::string_view name;
  // A name in front of which stands "/" is positional only; "*" alone: the function matches its arguments itself.
  std::array<std::string_view, kParametersMax> parameters;
  int32_t num_required = 0;
  NativeRun run = nullptr;
};

Result<Value> RunNative(const NativeFunction& function, Evaluator& evaluator, const Value& self, const Arguments& arguments);

// nullptr: there is none of that name.
const NativeFunction* FindFilter(std::string_view name);
const NativeFunction* FindTest(std::string_view name);
const NativeFunction* FindMethod(const Value& owner, std::string_view name);
// A method of Python's lists and dicts that would change them: reaching for it is allowed, using it is refused.
bool IsMutator(const Value& owner, std::string_view name);

// The tables of the files that define them. Each is sorted by name.
std::span<const NativeFunction> TextFilters();
std::span<const NativeFunction> SequenceFilters();
std::span<const NativeFunction> SelectionFilters();
std::span<const NativeFunction> Tests();
std::span<const NativeFunction> StringMethods();
std::span<const NativeFunction> CaseMethods();
std::span<const NativeFunction> ContainerMethods(const Value& owner);

}  // namespace avocet::tokenizer::jinja
