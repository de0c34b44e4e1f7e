// The filters of Jinja 2 that templates of chats use, and tojson as Hugging Face overrides it.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include "tokenizer/jinja_eval.h"

namespace avocet::tokenizer::jinja {
namespace {

Value CallMethod(Evaluator& evaluator, const Value& input, const char* method, Arguments& arguments) {
  const Value function = FindMethod(Value::MakeString(input.Str()), method);
  return evaluator.Call(function, arguments);
}

int64_t IntOr(const Arguments& arguments, size_t index, std::string_view name, int64_t missing) {
  const Value* value = Argument(arguments, index, name);
  if (value == nullptr || value->is_none()) return missing;
  if (!value->is_integral()) throw TemplateError(fmt::format("'{}' must be an integer, not {}", name, value->TypeName()));
  return value->AsInt();
}

std::string TextOr(const Arguments& arguments, size_t index, std::string_view name, const char* missing) {
  const Value* value = Argument(arguments, index, name);
  return value != nullptr ? value->Str() : missing;
}

bool TruthOr(const Arguments& arguments, size_t index, std::string_view name, bool missing) {
  const Value* value = Argument(arguments, index, name);
  return value != nullptr ? value->IsTrue() : missing;
}

// "a.b.0" of an item, as map(attribute=...) and its relatives look it up.
Value Path(Evaluator& evaluator, Value item, const Value& path) {
  if (!path.is_string()) return evaluator.Item(item, path);
  const std::string& text = path.string();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t dot = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, dot - begin);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = error == std::errc() && end == part.data() + part.size();
    item = evaluator.Item(item, is_index ? Value::MakeInt(index) : Value::MakeString(part));
    begin = dot + 1;
  }
  return item;
}

Value Folded(const Value& value) {
  if (!value.is_string()) return value;
  Arguments none;
  const Value lower = FindMethod(value, "lower");
  Evaluator* unused = nullptr;
  return lower.callable().call(*unused, none);  // str.lower touches no evaluator
}

// The key that sort, min, max, unique and groupby compare.
Value KeyOf(Evaluator& evaluator, const Value& item, const Value* attribute, bool is_case_sensitive) {
  Value key = attribute != nullptr && !attribute->is_none() ? Path(evaluator, item, *attribute) : item;
  return is_case_sensitive ? key : Folded(key);
}

Value Default(Evaluator&, const Value& input, Arguments& a) {
  const bool also_false = TruthOr(a, 1, "boolean", false);
  if (!input.is_undefined() && (!also_false || input.IsTrue())) return input;
  const Value* missing = Argument(a, 0, "default_value");
  return missing != nullptr ? *missing : Value::MakeString("");
}

Value Length(Evaluator& evaluator, const Value& input, Arguments&) {
  if (input.is_string()) return Value::MakeInt(CountCodePoints(input.string()));
  if (input.is_sequence()) return Value::MakeInt(static_cast<int64_t>(input.sequence().items.size()));
  if (input.is_mapping()) return Value::MakeInt(static_cast<int64_t>(input.mapping().items.size()));
  if (input.is_undefined()) return Value::MakeInt(0);
  (void)evaluator;
  throw TemplateError(fmt::format("object of type '{}' has no len()", input.TypeName()));
}

Value First(Evaluator& evaluator, const Value& input, Arguments&) {
  const std::vector<Value> items = evaluator.Iterate(input);
  return items.empty() ? Value(Undefined{"no first item, sequence was empty"}) : items.front();
}

Value Last(Evaluator& evaluator, const Value& input, Arguments&) {
  const std::vector<Value> items = evaluator.Iterate(input);
  return items.empty() ? Value(Undefined{"no last item, sequence was empty"}) : items.back();
}

Value Join(Evaluator& evaluator, const Value& input, Arguments& a) {
  const std::string separator = TextOr(a, 0, "d", "");
  const Value* attribute = Argument(a, 1, "attribute");
  std::string out;
  bool is_first = true;
  for (const Value& item : evaluator.Iterate(input)) {
    if (!is_first) out += separator;
    is_first = false;
    out += attribute != nullptr ? Path(evaluator, item, *attribute).Str() : item.Str();
    evaluator.CheckBytes(out.size());
  }
  return Value::MakeString(std::move(out));
}

Value Items(Evaluator&, const Value& input, Arguments&) {
  if (input.is_undefined()) return Value::MakeList({});
  if (!input.is_mapping()) throw TemplateError("can only get item pairs from a mapping");
  std::vector<Value> items;
  for (const auto& [key, value] : input.mapping().items) items.push_back(Value::MakeTuple({key, value}));
  return Value::MakeList(std::move(items));
}

Value Reverse(Evaluator& evaluator, const Value& input, Arguments&) {
  if (input.is_string()) {
    std::u32string text = Decode(input.string());
    std::ranges::reverse(text);
    return Value::MakeString(Encode(text));
  }
  std::vector<Value> items = evaluator.Iterate(input);
  std::ranges::reverse(items);
  return Value::MakeList(std::move(items));
}

Value Sort(Evaluator& evaluator, const Value& input, Arguments& a) {
  const bool is_reverse = TruthOr(a, 0, "reverse", false);
  const bool is_case_sensitive = TruthOr(a, 1, "case_sensitive", false);
  const Value* attribute = Argument(a, 2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : evaluator.Iterate(input)) keyed.emplace_back(KeyOf(evaluator, item, attribute, is_case_sensitive), item);
  evaluator.Charge(static_cast<int64_t>(keyed.size()));
  StableSort(
      keyed, [is_reverse](const auto& x, const auto& y) { return is_reverse ? Less(y.first, x.first) : Less(x.first, y.first); });
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return Value::MakeList(std::move(items));
}

Value Extreme(Evaluator& evaluator, const Value& input, const Arguments& a, bool wants_max) {
  const bool is_case_sensitive = TruthOr(a, 0, "case_sensitive", false);
  const Value* attribute = Argument(a, 1, "attribute");
  const std::vector<Value> items = evaluator.Iterate(input);
  if (items.empty()) return Undefined{"no aggregated item, sequence was empty"};
  Value best = items[0], best_key = KeyOf(evaluator, items[0], attribute, is_case_sensitive);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = KeyOf(evaluator, items[i], attribute, is_case_sensitive);
    if (wants_max ? Less(best_key, key) : Less(key, best_key)) {
      best = items[i];
      best_key = std::move(key);
    }
  }
  return best;
}

Value Unique(Evaluator& evaluator, const Value& input, Arguments& a) {
  const bool is_case_sensitive = TruthOr(a, 0, "case_sensitive", false);
  const Value* attribute = Argument(a, 1, "attribute");
  std::vector<Value> items, keys;
  for (const Value& item : evaluator.Iterate(input)) {
    Value key = KeyOf(evaluator, item, attribute, is_case_sensitive);
    evaluator.Charge(static_cast<int64_t>(keys.size() / 16));
    if (std::ranges::any_of(keys, [&key](const Value& own) { return Equal(own, key); })) continue;
    keys.push_back(std::move(key));
    items.push_back(item);
  }
  return Value::MakeList(std::move(items));
}

Value Sum(Evaluator& evaluator, const Value& input, Arguments& a) {
  const Value* attribute = Argument(a, 0, "attribute");
  const Value* start = Argument(a, 1, "start");
  Value total = start != nullptr ? *start : Value::MakeInt(0);
  for (const Value& item : evaluator.Iterate(input)) {
    total =
        BinaryOperation(evaluator, "+", total, attribute != nullptr && !attribute->is_none() ? Path(evaluator, item, *attribute) : item);
  }
  return total;
}

// select, reject, selectattr, rejectattr: items whose test (by default: truth) holds, or not.
Value Choose(Evaluator& evaluator, const Value& input, const Arguments& a, bool by_attribute, bool wanted) {
  size_t next = 0;
  const Value* attribute = by_attribute ? Argument(a, next++, "") : nullptr;
  if (by_attribute && attribute == nullptr) throw TemplateError("missing parameter for attribute name");
  const Value* test = Argument(a, next++, "");
  std::vector<Value> items;
  for (const Value& item : evaluator.Iterate(input)) {
    evaluator.Charge(1);
    const Value subject = attribute != nullptr ? Path(evaluator, item, *attribute) : item;
    bool holds = subject.IsTrue();
    if (test != nullptr) {
      Arguments rest;
      for (size_t i = next; i < a.positional.size(); ++i) rest.positional.push_back(a.positional[i]);
      rest.named = a.named;
      holds = evaluator.ApplyTest(test->Str(), subject, rest);
    }
    if (holds == wanted) items.push_back(item);
  }
  return Value::MakeList(std::move(items));
}

Value Map(Evaluator& evaluator, const Value& input, Arguments& a) {
  const Value* attribute = Argument(a, SIZE_MAX, "attribute");
  const Value* missing = Argument(a, SIZE_MAX, "default");
  const Value* filter = Argument(a, 0, "");
  if (attribute == nullptr && filter == nullptr) throw TemplateError("map requires a filter argument");
  std::vector<Value> items;
  for (const Value& item : evaluator.Iterate(input)) {
    evaluator.Charge(1);
    if (attribute != nullptr) {
      Value value = Path(evaluator, item, *attribute);
      items.push_back(value.is_undefined() && missing != nullptr ? *missing : value);
    } else {
      Arguments rest;
      rest.positional.assign(a.positional.begin() + 1, a.positional.end());
      rest.named = a.named;
      items.push_back(evaluator.ApplyFilter(filter->Str(), item, rest));
    }
  }
  return Value::MakeList(std::move(items));
}

Value GroupBy(Evaluator& evaluator, const Value& input, Arguments& a) {
  const Value* attribute = Argument(a, 0, "attribute");
  if (attribute == nullptr) throw TemplateError("groupby takes an attribute");
  const Value* missing = Argument(a, 1, "default");
  std::vector<std::pair<Value, std::vector<Value>>> groups;
  for (const Value& item : evaluator.Iterate(input)) {
    Value key = Path(evaluator, item, *attribute);
    if (key.is_undefined() && missing != nullptr) key = *missing;
    evaluator.Charge(static_cast<int64_t>(groups.size() / 16));
    const auto same = std::ranges::find_if(groups, [&key](const auto& group) { return Equal(Folded(group.first), Folded(key)); });
    if (same != groups.end()) {
      same->second.push_back(item);
    } else {
      groups.emplace_back(std::move(key), std::vector<Value>{item});
    }
  }
  StableSort(groups, [](const auto& x, const auto& y) { return Less(Folded(x.first), Folded(y.first)); });
  std::vector<Value> items;
  for (auto& [key, members] : groups) items.push_back(Value::MakeTuple({key, Value::MakeList(std::move(members))}));
  return Value::MakeList(std::move(items));
}

Value DictSort(Evaluator&, const Value& input, Arguments& a) {
  if (!input.is_mapping()) throw TemplateError("dictsort takes a mapping");
  const bool is_case_sensitive = TruthOr(a, 0, "case_sensitive", false);
  const bool by_value = TextOr(a, 1, "by", "key") == "value";
  const bool is_reverse = TruthOr(a, 2, "reverse", false);
  auto entries = input.mapping().items;
  const auto key = [&](const auto& entry) {
    const Value& own = by_value ? entry.second : entry.first;
    return is_case_sensitive ? own : Folded(own);
  };
  StableSort(entries, [&](const auto& x, const auto& y) { return is_reverse ? Less(key(y), key(x)) : Less(key(x), key(y)); });
  std::vector<Value> items;
  for (const auto& [k, v] : entries) items.push_back(Value::MakeTuple({k, v}));
  return Value::MakeList(std::move(items));
}

// batch and slice share their filling of the last row.
Value Batch(Evaluator& evaluator, const Value& input, Arguments& a) {
  const int64_t width = IntOr(a, 0, "linecount", 0);
  if (width < 1) throw TemplateError("batch takes a positive width");
  const Value* fill = Argument(a, 1, "fill_with");
  std::vector<Value> rows, row;
  for (const Value& item : evaluator.Iterate(input)) {
    row.push_back(item);
    if (static_cast<int64_t>(row.size()) == width) rows.push_back(Value::MakeList(std::exchange(row, {})));
  }
  if (!row.empty()) {
    evaluator.Charge(width);
    while (fill != nullptr && static_cast<int64_t>(row.size()) < width) row.push_back(*fill);
    rows.push_back(Value::MakeList(std::move(row)));
  }
  return Value::MakeList(std::move(rows));
}

Value Slice(Evaluator& evaluator, const Value& input, Arguments& a) {
  const int64_t count = IntOr(a, 0, "slices", 0);
  if (count < 1) throw TemplateError("slice takes a positive number of slices");
  evaluator.Charge(count);
  const Value* fill = Argument(a, 1, "fill_with");
  const std::vector<Value> items = evaluator.Iterate(input);
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> rows;
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = size / count + (i < size % count ? 1 : 0);
    std::vector<Value> row(items.begin() + at, items.begin() + at + length);
    at += length;
    if (fill != nullptr && i >= size % count && size % count != 0) row.push_back(*fill);
    rows.push_back(Value::MakeList(std::move(row)));
  }
  return Value::MakeList(std::move(rows));
}

Value ToList(Evaluator& evaluator, const Value& input, Arguments&) {
  return Value::MakeList(evaluator.Iterate(input));
}

Value Indent(Evaluator& evaluator, const Value& input, Arguments& a) {
  const Value* width = Argument(a, 0, "width");
  const std::string pad = width != nullptr && width->is_string()
                              ? width->string()
                              : std::string(static_cast<size_t>(std::clamp<int64_t>(IntOr(a, 0, "width", 4), 0, 10000)), ' ');
  const bool first = TruthOr(a, 1, "first", false);
  const bool blank = TruthOr(a, 2, "blank", false);
  std::string out;
  const std::string text = input.Str();
  for (size_t begin = 0, line = 0; begin <= text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const bool is_blank = end == begin;
    if (line > 0) out += '\n';
    if ((line > 0 || first) && (!is_blank || blank)) out += pad;
    out.append(text, begin, end - begin);
    evaluator.CheckBytes(out.size());
    begin = end + 1;
  }
  return Value::MakeString(std::move(out));
}

Value Escape(Evaluator&, const Value& input, Arguments&) {
  std::string out;
  for (char c : input.Str()) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return Value::MakeString(std::move(out));
}

Value ToInt(Evaluator&, const Value& input, Arguments& a) {
  const Value* missing = Argument(a, 0, "default");
  const Value fallback = missing != nullptr ? *missing : Value::MakeInt(0);
  if (input.is_big()) return input;
  if (input.is_integral()) return Value::MakeInt(input.AsInt());
  double value = NAN;
  if (input.is_float()) {
    value = input.AsDouble();
  } else if (input.is_string()) {
    Arguments none;
    std::string text = input.string();
    text.erase(0, std::min(text.find_first_not_of(" \t\n\r"), text.size()));
    while (!text.empty() && (text.back() == ' ' || text.back() == '\n' || text.back() == '\t' || text.back() == '\r')) text.pop_back();
    std::string_view digits = text;
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int64_t base = IntOr(a, 1, "base", 10);
    if (base < 2 || base > 36) throw TemplateError("int() base must be >= 2 and <= 36");
    for (const auto& [prefix, radix] : {std::pair{"0x", 16}, {"0o", 8}, {"0b", 2}}) {
      if (base == radix && (digits.starts_with(prefix))) digits.remove_prefix(2);
    }
    int64_t whole = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), whole, static_cast<int>(base));
    if (!digits.empty() && error == std::errc() && end == digits.data() + digits.size()) return Value::MakeInt(whole);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return fallback;
  }
  if (!std::isfinite(value) || std::abs(value) >= 9.2e18) return fallback;
  return Value::MakeInt(static_cast<int64_t>(value));
}

Value ToFloat(Evaluator&, const Value& input, Arguments& a) {
  if (input.is_number()) return Value::MakeFloat(input.AsDouble());
  if (input.is_string()) {
    std::string_view text = input.string();
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    if (text.starts_with('+')) text.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (!text.empty() && error == std::errc() && end == text.data() + text.size()) return Value::MakeFloat(value);
  }
  const Value* missing = Argument(a, 0, "default");
  return missing != nullptr ? *missing : Value::MakeFloat(0);
}

Value Round(Evaluator&, const Value& input, Arguments& a) {
  if (!input.is_number()) throw TemplateError(fmt::format("type {} doesn't define __round__ method", input.TypeName()));
  const int64_t precision = IntOr(a, 0, "precision", 0);
  const std::string method = TextOr(a, 1, "method", "common");
  if (method != "common" && method != "ceil" && method != "floor") throw TemplateError("method must be common, ceil or floor");
  if (precision < -300 || precision > 300) throw TemplateError("the precision is out of range");
  const double value = input.AsDouble();
  if (method == "common") {  // Python rounds the decimal text half to even, exactly
    if (precision < 0) {
      const double unit = std::pow(10.0, static_cast<double>(-precision));
      return Value::MakeFloat(std::nearbyint(value / unit) * unit);
    }
    const std::string text = fmt::format("{:.{}f}", value, static_cast<int>(precision));
    double rounded = value;
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return Value::MakeFloat(rounded);
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  return Value::MakeFloat((method == "ceil" ? std::ceil(value * unit) : std::floor(value * unit)) / unit);
}

Value Abs(Evaluator& evaluator, const Value& input, Arguments&) {
  if (input.is_float()) return Value::MakeFloat(std::abs(input.AsDouble()));
  if (!input.is_integral()) throw TemplateError(fmt::format("bad operand type for abs(): '{}'", input.TypeName()));
  return input.AsInt() < 0 ? BinaryOperation(evaluator, "-", Value::MakeInt(0), input) : Value::MakeInt(input.AsInt());
}

Value Truncate(Evaluator&, const Value& input, Arguments& a) {
  const int64_t length = IntOr(a, 0, "length", 255);
  const bool kills_words = TruthOr(a, 1, "killwords", false);
  const std::string end = TextOr(a, 2, "end", "...");
  const int64_t leeway = IntOr(a, 3, "leeway", 5);
  const std::u32string text = Decode(input.Str());
  const int64_t end_length = CountCodePoints(end);
  if (length < end_length || leeway < 0) throw TemplateError(fmt::format("expected length >= {}, got {}", end_length, length));
  if (static_cast<int64_t>(text.size()) <= length + leeway) return input;
  std::u32string cut = text.substr(0, static_cast<size_t>(length - end_length));
  if (!kills_words) {
    const size_t space = cut.rfind(U' ');
    if (space != std::u32string::npos) cut.resize(space);
  }
  return Value::MakeString(Encode(cut) + end);
}

Value WordCount(Evaluator&, const Value& input, Arguments&) {
  int64_t count = 0;
  bool in_word = false;
  for (char32_t c : Decode(input.Str())) {
    const bool is_word = c == U'_' || (c < 0x80 ? std::isalnum(static_cast<int>(c)) != 0 : true);
    count += is_word && !in_word;
    in_word = is_word;
  }
  return Value::MakeInt(count);
}

Value UrlEncode(Evaluator& evaluator, const Value& input, Arguments&) {
  const auto quote = [](const std::string& text, bool is_query) {
    std::string out;
    for (char c : text) {
      const bool is_safe =
          std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !is_query);
      out += is_safe ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    return out;
  };
  if (input.is_string() || input.is_number()) return Value::MakeString(quote(input.Str(), false));
  std::string out;
  Arguments none;
  const Value pairs = input.is_mapping() ? Items(evaluator, input, none) : input;
  for (const Value& pair : evaluator.Iterate(pairs)) {
    const std::vector<Value> entry = evaluator.Iterate(pair);
    if (entry.size() != 2) throw TemplateError("urlencode takes pairs");
    out += (out.empty() ? "" : "&") + quote(entry[0].Str(), true) + "=" + quote(entry[1].Str(), true);
  }
  return Value::MakeString(std::move(out));
}

Value ToJson(Evaluator& evaluator, const Value& input, Arguments& a) {
  JsonStyle style;
  const Value* ensure_ascii = Argument(a, 0, "ensure_ascii");
  const Value* indent = Argument(a, 1, "indent");
  const Value* separators = Argument(a, 2, "separators");
  const Value* sort_keys = Argument(a, 3, "sort_keys");
  style.ensure_ascii = ensure_ascii != nullptr && ensure_ascii->IsTrue();
  style.sort_keys = sort_keys != nullptr && sort_keys->IsTrue();
  if (indent != nullptr && indent->is_integral()) style.indent = static_cast<int32_t>(std::clamp<int64_t>(indent->AsInt(), 0, 1000));
  if (separators != nullptr && separators->is_sequence() && separators->sequence().items.size() == 2) {
    style.item_separator = separators->sequence().items[0].Str();
    style.key_separator = separators->sequence().items[1].Str();
  }
  std::string out;
  DumpJson(input, style, out);
  evaluator.CheckBytes(out.size());
  evaluator.Charge(static_cast<int64_t>(out.size() / 64));
  return Value::MakeString(std::move(out));
}

Value AttributeOf(Evaluator& evaluator, const Value& input, Arguments& a) {
  const Value* name = Argument(a, 0, "name");
  if (name == nullptr) throw TemplateError("attr takes a name");
  return evaluator.Attribute(input, name->Str());
}

Value ToString(Evaluator&, const Value& input, Arguments&) {
  return input.is_string() ? input : Value::MakeString(input.Str());
}
Value Same(Evaluator&, const Value& input, Arguments&) {
  return input;
}

template <const char* const* kMethod>
Value ByMethod(Evaluator& evaluator, const Value& input, Arguments& a) {
  return CallMethod(evaluator, input, *kMethod, a);
}
constexpr const char* kUpper = "upper";
constexpr const char* kLower = "lower";
constexpr const char* kTitle = "title";
constexpr const char* kCapitalize = "capitalize";
constexpr const char* kStrip = "strip";
constexpr const char* kReplace = "replace";

Value Center(Evaluator& evaluator, const Value& input, Arguments& a) {
  if (a.positional.empty() && a.named.empty()) a.positional.push_back(Value::MakeInt(80));
  return CallMethod(evaluator, input, "center", a);
}

Value PercentFormat(Evaluator& evaluator, const Value& input, Arguments& a) {
  return BinaryOperation(evaluator, "%", input, Value::MakeTuple(a.positional));
}

}  // namespace

FilterFn FindFilter(const std::string& name) {
  static const std::unordered_map<std::string, FilterFn> filters = {
      {"default", Default},
      {"d", Default},
      {"length", Length},
      {"count", Length},
      {"first", First},
      {"last", Last},
      {"join", Join},
      {"items", Items},
      {"reverse", Reverse},
      {"sort", Sort},
      {"unique", Unique},
      {"sum", Sum},
      {"map", Map},
      {"groupby", GroupBy},
      {"dictsort", DictSort},
      {"batch", Batch},
      {"slice", Slice},
      {"list", ToList},
      {"indent", Indent},
      {"escape", Escape},
      {"e", Escape},
      {"forceescape", Escape},
      {"safe", Same},
      {"int", ToInt},
      {"float", ToFloat},
      {"round", Round},
      {"abs", Abs},
      {"truncate", Truncate},
      {"wordcount", WordCount},
      {"urlencode", UrlEncode},
      {"tojson", ToJson},
      {"attr", AttributeOf},
      {"string", ToString},
      {"upper", ByMethod<&kUpper>},
      {"lower", ByMethod<&kLower>},
      {"title", ByMethod<&kTitle>},
      {"capitalize", ByMethod<&kCapitalize>},
      {"trim", ByMethod<&kStrip>},
      {"replace", ByMethod<&kReplace>},
      {"center", Center},
      {"format", PercentFormat},
      {"max", [](Evaluator& e, const Value& v, Arguments& a) { return Extreme(e, v, a, true); }},
      {"min", [](Evaluator& e, const Value& v, Arguments& a) { return Extreme(e, v, a, false); }},
      {"select", [](Evaluator& e, const Value& v, Arguments& a) { return Choose(e, v, a, false, true); }},
      {"reject", [](Evaluator& e, const Value& v, Arguments& a) { return Choose(e, v, a, false, false); }},
      {"selectattr", [](Evaluator& e, const Value& v, Arguments& a) { return Choose(e, v, a, true, true); }},
      {"rejectattr", [](Evaluator& e, const Value& v, Arguments& a) { return Choose(e, v, a, true, false); }},
  };
  const auto found = filters.find(name);
  return found != filters.end() ? found->second : nullptr;
}

}  // namespace avocet::tokenizer::jinja
