// Filters that apply a filter or a test to every item.
#include <algorithm>
#include <array>

#include "tokenizer/jinja/attribute_path.h"
#include "tokenizer/jinja/eval.h"

namespace avocet::tokenizer::jinja {
namespace {

Result<std::string_view> NameOf(const Value& value, std::string_view what) {
  if (!value.is_string()) return Fail(Errc::kInvalidArgument, "the name of a {} is a string, not {}", what, value.type_name());
  return value.text();
}

// map(attribute=..., default=...)
Result<Value> MapAttribute(Evaluator& evaluator, const std::vector<Value>& items, const Arguments& arguments) {
  const Value* attribute = nullptr;
  const Value* default_value = nullptr;
  for (const auto& [name, value] : arguments.named) {
    if (name != "attribute" && name != "default")
      return Fail(Errc::kInvalidArgument, "map() got an unexpected keyword argument '{}'", name);
    (name == "attribute" ? attribute : default_value) = &value;
  }
  AttributePath path = AttributePath::Of(attribute);
  if (default_value != nullptr && !default_value->is_none()) path.set_default(*default_value);
  std::vector<Value> mapped;
  for (const Value& item : items) {
    AVOCET_TRY(Value value, path.Get(evaluator, item));
    mapped.push_back(std::move(value));
  }
  return MakeIterator(std::move(mapped), evaluator.budget());
}

// map('filter', arguments...)
Result<Value> Map(Evaluator& evaluator, const Value& self, const Bound& bound) {
  const Arguments& all = bound.all();
  if (!self.IsTrue()) return MakeIterator({}, evaluator.budget());
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  const bool has_attribute = std::ranges::find(all.named, "attribute", &std::pair<std::string, Value>::first) != all.named.end();
  if (all.positional.empty() && has_attribute) return MapAttribute(evaluator, items, all);
  if (all.positional.empty()) return Fail(Errc::kInvalidArgument, "map requires a filter argument");
  AVOCET_TRY(const std::string_view name, NameOf(all.positional[0], "filter"));
  const Arguments rest{{all.positional.begin() + 1, all.positional.end()}, all.named};
  std::vector<Value> mapped;
  for (const Value& item : items) {
    AVOCET_TRY(Value value, evaluator.ApplyFilter(name, item, rest));
    mapped.push_back(std::move(value));
  }
  return MakeIterator(std::move(mapped), evaluator.budget());
}

enum class Keep : uint8_t { kPassing, kFailing };
enum class Subject : uint8_t { kItem, kAttribute };

// select('test', arguments...), selectattr(attribute, 'test', arguments...) and their opposites; without a test: by truth.
template <Keep kKeep, Subject kSubject>
Result<Value> Select(Evaluator& evaluator, const Value& self, const Bound& bound) {
  const std::vector<Value>& given = bound.all().positional;
  if (!self.IsTrue()) return MakeIterator({}, evaluator.budget());
  AVOCET_TRY(const std::vector<Value> items, Iterate(self, evaluator.budget()));
  const size_t test = kSubject == Subject::kAttribute ? 1 : 0;
  if (given.size() < test) return Fail(Errc::kInvalidArgument, "the parameter for the attribute's name is missing");
  const AttributePath path = AttributePath::Of(test == 1 ? &given[0] : nullptr);
  Arguments rest;
  std::string_view name;
  if (given.size() > test) {
    AVOCET_TRY(name, NameOf(given[test], "test"));
    rest = {{given.begin() + static_cast<ptrdiff_t>(test) + 1, given.end()}, bound.all().named};
  }
  std::vector<Value> kept;
  for (const Value& item : items) {
    AVOCET_TRY_VOID(evaluator.budget().Steps(1));
    AVOCET_TRY(const Value subject, path.Get(evaluator, item));
    AVOCET_TRY(const bool passes, given.size() > test ? evaluator.ApplyTest(name, subject, rest) : Result<bool>(subject.IsTrue()));
    if (passes == (kKeep == Keep::kPassing)) kept.push_back(item);
  }
  return MakeIterator(std::move(kept), evaluator.budget());
}

constexpr std::array<NativeFunction, 5> kFilters = {{
    {"map", {"*"}, 0, Map},
    {"reject", {"*"}, 0, Select<Keep::kFailing, Subject::kItem>},
    {"rejectattr", {"*"}, 0, Select<Keep::kFailing, Subject::kAttribute>},
    {"select", {"*"}, 0, Select<Keep::kPassing, Subject::kItem>},
    {"selectattr", {"*"}, 0, Select<Keep::kPassing, Subject::kAttribute>},
}};
static_assert(std::ranges::is_sorted(kFilters, {}, &NativeFunction::name));

}  // namespace

std::span<const NativeFunction> SelectionFilters() {
  return kFilters;
}

}  // namespace avocet::tokenizer::jinja
