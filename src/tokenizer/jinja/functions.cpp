// The built-in functions: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <array>
#include <chrono>
#include <ctime>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/utf8.h"

namespace avocet::tokenizer::jinja {
namespace {

Result<Value> Range(Evaluator&, const Value&, const Bound& bound) {
  int64_t numbers[3] = {0, 0, 1};
  const size_t num_given = bound.all().positional.size();
  for (size_t i = 0; i < num_given; ++i) {
    if (!bound[i]->is_integer())
      return Fail(Errc::kInvalidArgument, "'{}' object cannot be interpreted as an integer", bound[i]->type_name());
    AVOCET_TRY(numbers[num_given == 1 ? 1 : i], bound.Int(i, 0));
  }
  if (numbers[2] == 0) return Fail(Errc::kInvalidArgument, "range() arg 3 must not be zero");
  const RangeData range{numbers[0], numbers[1], numbers[2]};
  if (range.size() > limits::kTemplateRangeMax)
    return Fail(Errc::kInvalidArgument, "a range of {} numbers; {} are allowed", range.size(), limits::kTemplateRangeMax);
  return Value::Range(range);
}

// dict(mapping or pairs, name=value ...)
Result<void> FillDict(DictBuilder& dict, Evaluator& evaluator, const Arguments& arguments) {
  if (arguments.positional.size() > 1)
    return Fail(Errc::kInvalidArgument, "dict expected at most 1 argument, got {}", arguments.positional.size());
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
    for (const auto& [key, value] : arguments.positional[0].dict().items) {
      AVOCET_TRY_VOID(dict.Set(key, value, evaluator.budget()));
    }
  } else if (!arguments.positional.empty()) {
    AVOCET_TRY(const std::vector<Value> pairs, Iterate(arguments.positional[0], evaluator.budget()));
    for (const Value& pair : pairs) {
      AVOCET_TRY(const std::vector<Value> parts, Iterate(pair, evaluator.budget()));
      if (parts.size() != 2) return Fail(Errc::kInvalidArgument, "an element of {} items makes no pair of key and value", parts.size());
      AVOCET_TRY_VOID(dict.Set(parts[0], parts[1], evaluator.budget()));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    AVOCET_TRY_VOID(dict.Set(Value::String(name), value, evaluator.budget()));
  }
  return {};
}

Result<Value> Dict(Evaluator& evaluator, const Value&, const Bound& bound) {
  DictBuilder dict;
  AVOCET_TRY_VOID(FillDict(dict, evaluator, bound.all()));
  return dict.Build();
}

constexpr int64_t kNamespaceSteps = 16;  // it lives to the end of the rendering

Result<Value> Namespace(Evaluator& evaluator, const Value&, const Bound& bound) {
  AVOCET_TRY_VOID(evaluator.budget().Steps(kNamespaceSteps));
  DictBuilder builder;
  AVOCET_TRY_VOID(FillDict(builder, evaluator, bound.all()));
  const Value dict = builder.Build();
  Value result = evaluator.NewNamespace();
  for (const auto& [key, value] : dict.dict().items) {
    if (!key.is_string()) return Fail(Errc::kInvalidArgument, "the name of a namespace's attribute is a string, not {}", key.type_name());
    if (key.text().starts_with('_'))
      return Fail(Errc::kInvalidArgument, "the attribute '{}' of a namespace starts with an underscore", key.text());
    result.name_space().items.emplace_back(key.text(), value);
  }
  return result;
}

class CyclerMethod;

// Goes round its items: c.next(), c.current, c.reset().
class Cycler : public FunctionData, public std::enable_shared_from_this<Cycler> {
 public:
  Cycler(std::vector<Value> items, int32_t depth) : FunctionData(depth), items_(std::move(items)) {}
  Result<Value> Call(Evaluator&, Arguments&) override { return Fail(Errc::kInvalidArgument, "'Cycler' object is not callable"); }
  std::optional<Value> Attribute(std::string_view name) const override;
  std::string Show() const override { return "<Cycler>"; }

 private:
  friend class CyclerMethod;
  std::vector<Value> items_;
  size_t next_ = 0;
};

class CyclerMethod : public FunctionData {
 public:
  enum class Action : uint8_t { kNext, kReset };
  CyclerMethod(std::shared_ptr<Cycler> cycler, Action action)
      : FunctionData(cycler->depth() + 1), cycler_(std::move(cycler)), action_(action) {}
  Result<Value> Call(Evaluator&, Arguments& arguments) override {
    if (!arguments.empty()) return Fail(Errc::kInvalidArgument, "a method of a cycler takes no arguments");
    const size_t at = cycler_->next_;
    cycler_->next_ = action_ == Action::kReset ? 0 : (at + 1) % cycler_->items_.size();
    return action_ == Action::kReset ? Value() : cycler_->items_[at];
  }
  std::string Show() const override { return "<bound method of a cycler>"; }

 private:
  std::shared_ptr<Cycler> cycler_;
  Action action_;
};

std::optional<Value> Cycler::Attribute(std::string_view name) const {
  if (name == "current") return items_[next_];
  if (name == "pos") return Value::Int(static_cast<int64_t>(next_));
  if (name != "next" && name != "reset") return std::nullopt;
  // The method moves the cycler on, so it needs the object itself.
  const auto self = std::const_pointer_cast<Cycler>(shared_from_this());
  return Value::Function(
      std::make_shared<CyclerMethod>(self, name == "reset" ? CyclerMethod::Action::kReset : CyclerMethod::Action::kNext));
}

Result<Value> MakeCycler(Evaluator& evaluator, const Value&, const Bound& bound) {
  if (!bound.all().named.empty())
    return Fail(Errc::kInvalidArgument, "cycler() got an unexpected keyword argument '{}'", bound.all().named[0].first);
  if (bound.all().positional.empty()) return Fail(Errc::kInvalidArgument, "at least one item has to be provided");
  AVOCET_TRY(const Value items, MakeList(bound.all().positional, evaluator.budget()));
  return Value::Function(std::make_shared<Cycler>(items.sequence().items, items.depth()));
}

// Empty when first called, then the separator.
class Joiner : public FunctionData {
 public:
  explicit Joiner(Value separator) : FunctionData(separator.depth()), separator_(std::move(separator)) {}
  Result<Value> Call(Evaluator&, Arguments& arguments) override {
    if (!arguments.empty()) return Fail(Errc::kInvalidArgument, "a joiner takes no arguments");
    return std::exchange(is_used_, true) ? separator_ : Value::String("");
  }
  std::string Show() const override { return "<Joiner>"; }

 private:
  Value separator_;
  bool is_used_ = false;
};

Result<Value> MakeJoiner(Evaluator&, const Value&, const Bound& bound) {
  return Value::Function(std::make_shared<Joiner>(bound.Has(0) ? *bound[0] : Value::String(", ")));
}

Result<Value> RaiseException(Evaluator& evaluator, const Value&, const Bound& bound) {
  AVOCET_TRY(std::string message, Str(*bound[0], evaluator.budget()));
  return evaluator.Raise(std::move(message));
}

// What Python does itself before it asks the C library: microseconds, and no zone for a time without one.
std::string WithoutPythonsOwn(std::string_view format, int64_t microseconds) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const char letter = format[++i];
    if (letter == 'f') {
      out += fmt::format("{:06}", microseconds);
    } else if (letter != 'z' && letter != 'Z') {
      out += '%';
      out += letter;
    }
  }
  return out;
}

Result<Value> StrftimeNow(Evaluator& evaluator, const Value&, const Bound& bound) {
  AVOCET_TRY(const std::string_view format, bound.Text(0, ""));
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const int64_t microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  // A NUL would end the C library's format early; the sign in front tells an empty result from one that does not fit.
  if (format.find('\0') != std::string_view::npos) return Fail(Errc::kInvalidArgument, "embedded null character in the format of a time");
  const std::string prepared = "+" + WithoutPythonsOwn(format, microseconds);
  std::string out(4 * prepared.size() + 1024, '\0');
  AVOCET_TRY_VOID(evaluator.budget().Text(out.size()));
  const size_t num_bytes = std::strftime(out.data(), out.size(), prepared.c_str(), &local);
  if (num_bytes == 0) return Fail(Errc::kInvalidArgument, "a time in a format of {} bytes is too long", format.size());
  out.resize(num_bytes);
  return MakeString(ReplaceInvalid(std::string_view(out).substr(1)), evaluator.budget());
}

constexpr std::array<NativeFunction, 7> kGlobals = {{
    {"cycler", {"*"}, 0, MakeCycler},
    {"dict", {"*"}, 0, Dict},
    {"joiner", {"sep"}, 0, MakeJoiner},
    {"namespace", {"*"}, 0, Namespace},
    {"raise_exception", {"message"}, 1, RaiseException},
    {"range", {"/start", "/stop", "/step"}, 1, Range},
    {"strftime_now", {"format"}, 1, StrftimeNow},
}};

class GlobalFunction : public FunctionData {
 public:
  explicit GlobalFunction(const NativeFunction& function) : FunctionData(0), function_(function) {}
  Result<Value> Call(Evaluator& evaluator, Arguments& arguments) override { return RunNative(function_, evaluator, Value(), arguments); }
  std::string Show() const override { return fmt::format("<function {}>", function_.name); }
  std::optional<Value> Attribute(std::string_view name) const override {
    if (function_.name != "dict" || name != "fromkeys") return std::nullopt;
    const Value empty = DictBuilder().Build();
    return Value::Function(std::make_shared<GlobalFunction>(*FindMethod(empty, name)));
  }

 private:
  const NativeFunction& function_;
};

}  // namespace

std::optional<Value> FindGlobal(std::string_view name) {
  for (const NativeFunction& function : kGlobals) {
    if (function.name == name) return Value::Function(std::make_shared<GlobalFunction>(function));
  }
  return std::nullopt;
}

}  // namespace avocet::tokenizer::jinja
