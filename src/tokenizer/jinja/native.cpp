#include "tokenizer/jinja/native.h"

#include <algorithm>

#include "tokenizer/jinja/eval.h"

namespace avocet::tokenizer::jinja {
namespace {

const NativeFunction* FindIn(std::span<const NativeFunction> table, std::string_view name) {
  const auto found = std::ranges::lower_bound(table, name, {}, &NativeFunction::name);
  return found != table.end() && found->name == name ? &*found : nullptr;
}

size_t NumParameters(const NativeFunction& function) {
  return static_cast<size_t>(std::ranges::find(function.parameters, std::string_view()) - function.parameters.begin());
}

class BoundMethod : public FunctionData {
 public:
  BoundMethod(const NativeFunction& method, Value owner) : FunctionData(owner.depth() + 1), method_(method), owner_(std::move(owner)) {}
  Result<Value> Call(Evaluator& evaluator, Arguments& arguments) override { return RunNative(method_, evaluator, owner_, arguments); }
  std::string Show() const override { return fmt::format("<built-in method {} of {} object>", method_.name, owner_.type_name()); }

 private:
  const NativeFunction& method_;
  Value owner_;
};

}  // namespace

Result<int64_t> Bound::Int(size_t i, int64_t default_value) const {
  if (!Has(i)) return default_value;
  const Value& value = *values_[i];
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_integer()) return Fail(Errc::kInvalidArgument, "'{}' object cannot be interpreted as an integer", value.type_name());
  return static_cast<int64_t>(std::clamp(value.integer(), Integer{INT64_MIN / 4}, Integer{INT64_MAX / 4}));
}

Result<std::string_view> Bound::Text(size_t i, std::string_view default_value) const {
  if (!Has(i)) return default_value;
  if (!values_[i]->is_string()) return Fail(Errc::kInvalidArgument, "a string is needed, not {}", values_[i]->type_name());
  return values_[i]->text();
}

Result<Value> RunNative(const NativeFunction& function, Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  Bound bound(arguments);
  if (function.parameters[0] == "*") return function.run(evaluator, self, bound);
  const size_t num_parameters = NumParameters(function);
  if (arguments.positional.size() > num_parameters) {
    return Fail(Errc::kInvalidArgument, "{}() takes at most {} arguments, not {}", function.name, num_parameters,
                arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound.Set(i, &arguments.positional[i]);
  for (const auto& [name, value] : arguments.named) {
    const auto found = static_cast<size_t>(std::ranges::find(function.parameters, std::string_view(name)) - function.parameters.begin());
    if (found >= num_parameters) return Fail(Errc::kInvalidArgument, "{}() got an unexpected keyword argument '{}'", function.name, name);
    if (bound.Has(found)) return Fail(Errc::kInvalidArgument, "{}() got multiple values for argument '{}'", function.name, name);
    bound.Set(found, &value);
  }
  for (size_t i = 0; i < static_cast<size_t>(function.num_required); ++i) {
    if (!bound.Has(i)) {
      std::string_view name = function.parameters[i];
      if (name.starts_with('/')) name.remove_prefix(1);
      return Fail(Errc::kInvalidArgument, "{}() needs the argument '{}'", function.name, name);
    }
  }
  return function.run(evaluator, self, bound);
}

Result<Value> BindMethod(const NativeFunction& method, const Value& owner, Budget& budget) {
  AVOCET_TRY_VOID(budget.Nesting(owner.depth() + 1));
  return Value::Function(std::make_shared<BoundMethod>(method, owner));
}

const NativeFunction* FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), SequenceFilters(), SelectionFilters()}) {
    if (const NativeFunction* const found = FindIn(table, name)) return found;
  }
  return nullptr;
}

const NativeFunction* FindTest(std::string_view name) {
  return FindIn(Tests(), name);
}

const NativeFunction* FindMethod(const Value& owner, std::string_view name) {
  if (!owner.is_string()) return FindIn(ContainerMethods(owner), name);
  const NativeFunction* const found = FindIn(StringMethods(), name);
  return found != nullptr ? found : FindIn(CaseMethods(), name);
}

bool IsMutator(const Value& owner, std::string_view name) {
  static constexpr std::string_view kOfLists[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  static constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (owner.is_list()) return std::ranges::find(kOfLists, name) != std::end(kOfLists);
  return owner.is_dict() && std::ranges::find(kOfDicts, name) != std::end(kOfDicts);
}

}  // namespace avocet::tokenizer::jinja
