// The tests of Jinja 2 ("is ..."), and the global functions.
#include <algorithm>
#include <ctime>
#include <unordered_map>

#include <fmt/format.h>

#include "base/limits.h"
#include "tokenizer/jinja_eval.h"

namespace avocet::tokenizer::jinja {
namespace {

const Value& Other(const Arguments& a) {
  const Value* value = Argument(a, 0, "");
  if (value == nullptr) throw TemplateError("the test takes an argument");
  return *value;
}

int64_t Integer(const Value& value) {
  if (!value.is_integral()) throw TemplateError(fmt::format("'{}' object is not an integer", value.TypeName()));
  return value.AsInt();
}

bool Method(Evaluator& evaluator, const Value& subject, const char* name) {
  Arguments none;
  return evaluator.Call(FindMethod(Value::MakeString(subject.Str()), name), none).IsTrue();
}

bool IsSame(const Value& a, const Value& b) {
  if (a.is_none() || b.is_none() || a.is_bool() || b.is_bool()) return a.TypeName() == b.TypeName() && Equal(a, b);
  return a.TypeName() == b.TypeName() && Equal(a, b);
}

#define AVOCET_TEST(expression)                            \
  [](Evaluator& e, const Value& v, Arguments& a) -> bool { \
    (void)e;                                               \
    (void)v;                                               \
    (void)a;                                               \
    return (expression);                                   \
  }

}  // namespace

TestFn FindTest(const std::string& name) {
  static const std::unordered_map<std::string, TestFn> tests = {
      {"defined", AVOCET_TEST(!v.is_undefined())},
      {"undefined", AVOCET_TEST(v.is_undefined())},
      {"none", AVOCET_TEST(v.is_none())},
      {"boolean", AVOCET_TEST(v.is_bool())},
      {"true", AVOCET_TEST(v.is_bool() && v.IsTrue())},
      {"false", AVOCET_TEST(v.is_bool() && !v.IsTrue())},
      {"integer", AVOCET_TEST(v.is_int() || v.is_big())},
      {"float", AVOCET_TEST(v.is_float())},
      {"number", AVOCET_TEST(v.is_number())},
      {"string", AVOCET_TEST(v.is_string())},
      {"mapping", AVOCET_TEST(v.is_mapping())},
      {"sequence", AVOCET_TEST(v.is_string() || v.is_sequence() || v.is_mapping() || v.is_undefined())},
      {"iterable", AVOCET_TEST(v.is_string() || v.is_sequence() || v.is_mapping() || v.is_undefined() || v.is_loop())},
      {"callable", AVOCET_TEST(v.is_callable() || v.is_loop() || v.is_undefined())},
      {"sameas", AVOCET_TEST(IsSame(v, Other(a)))},
      {"escaped", AVOCET_TEST(false)},
      {"odd", AVOCET_TEST(Integer(v) % 2 != 0)},
      {"even", AVOCET_TEST(Integer(v) % 2 == 0)},
      {"divisibleby",
       AVOCET_TEST(Integer(Other(a)) != 0 && Integer(Other(a)) != -1 ? Integer(v) % Integer(Other(a)) == 0 : Integer(Other(a)) != 0)},
      {"lower", AVOCET_TEST(Method(e, v, "islower"))},
      {"upper", AVOCET_TEST(Method(e, v, "isupper"))},
      {"in", AVOCET_TEST(Contains(Other(a), v))},
      {"filter", AVOCET_TEST(FindFilter(v.Str()) != nullptr)},
      {"test", AVOCET_TEST(FindTest(v.Str()) != nullptr)},
      {"eq", AVOCET_TEST(Equal(v, Other(a)))},
      {"equalto", AVOCET_TEST(Equal(v, Other(a)))},
      {"==", AVOCET_TEST(Equal(v, Other(a)))},
      {"ne", AVOCET_TEST(!Equal(v, Other(a)))},
      {"!=", AVOCET_TEST(!Equal(v, Other(a)))},
      {"lt", AVOCET_TEST(Less(v, Other(a)))},
      {"lessthan", AVOCET_TEST(Less(v, Other(a)))},
      {"<", AVOCET_TEST(Less(v, Other(a)))},
      {"le", AVOCET_TEST(!Less(Other(a), v))},
      {"<=", AVOCET_TEST(!Less(Other(a), v))},
      {"gt", AVOCET_TEST(Less(Other(a), v))},
      {"greaterthan", AVOCET_TEST(Less(Other(a), v))},
      {">", AVOCET_TEST(Less(Other(a), v))},
      {"ge", AVOCET_TEST(!Less(v, Other(a)))},
      {">=", AVOCET_TEST(!Less(v, Other(a)))},
  };
  const auto found = tests.find(name);
  return found != tests.end() ? found->second : nullptr;
}
#undef AVOCET_TEST

namespace {

Value RaiseException(Evaluator&, Arguments& a) {
  const Value* text = Argument(a, 0, "message");
  TemplateError error(text != nullptr ? text->Str() : std::string());
  error.is_raised = true;
  throw error;
}

Value StrftimeNow(Evaluator&, Arguments& a) {
  const Value* format = Argument(a, 0, "format");
  if (format == nullptr || !format->is_string()) throw TemplateError("strftime_now takes a format");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[256];
  const size_t length = std::strftime(buffer, sizeof(buffer), format->string().c_str(), &local);
  return Value::MakeString(std::string(buffer, length));
}

Value Range(Evaluator& evaluator, Arguments& a) {
  const size_t count = a.positional.size();
  if (count < 1 || count > 3) throw TemplateError("range() takes one to three integers");
  const int64_t begin = count > 1 ? Integer(a.positional[0]) : 0;
  const int64_t end = Integer(a.positional[count > 1 ? 1 : 0]);
  const int64_t step = count > 2 ? Integer(a.positional[2]) : 1;
  if (step == 0) throw TemplateError("range() arg 3 must not be zero");
  constexpr int64_t kRangeMax = 100'000;  // the reference's sandbox has the same limit
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) >= kRangeMax)
      throw TemplateError(fmt::format("range too big, the sandbox blocks ranges larger than {}", kRangeMax));
    items.push_back(Value::MakeInt(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  evaluator.Charge(static_cast<int64_t>(items.size()));
  return Value::MakeList(std::move(items));
}

Value MakeDict(Evaluator&, Arguments& a) {
  std::vector<std::pair<Value, Value>> items;
  if (!a.positional.empty() && a.positional[0].is_mapping()) items = a.positional[0].mapping().items;
  for (const auto& [name, value] : a.named) items.emplace_back(Value::MakeString(name), value);
  return Value::MakeMapping(std::move(items));
}

Value MakeNamespaceOf(Evaluator&, Arguments& a) {
  std::vector<std::pair<std::string, Value>> items;
  if (!a.positional.empty() && a.positional[0].is_mapping()) {
    for (const auto& [key, value] : a.positional[0].mapping().items) items.emplace_back(key.Str(), value);
  }
  for (const auto& [name, value] : a.named) items.emplace_back(name, value);
  for (const auto& [name, value] : items) {
    if (name.starts_with('_')) throw TemplateError(fmt::format("namespace attribute '{}' must not start with an underscore", name));
  }
  return Value::MakeNamespace(std::move(items));
}

}  // namespace

std::unordered_map<std::string, Value> MakeGlobals() {
  std::unordered_map<std::string, Value> globals;
  globals["raise_exception"] = Value::MakeCallable("raise_exception", RaiseException);
  globals["strftime_now"] = Value::MakeCallable("strftime_now", StrftimeNow);
  globals["range"] = Value::MakeCallable("range", Range);
  globals["dict"] = Value::MakeCallable("dict", MakeDict);
  globals["namespace"] = Value::MakeCallable("namespace", MakeNamespaceOf);
  return globals;
}

}  // namespace avocet::tokenizer::jinja
