// str() and repr() of values.
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/jinja/value.h"

namespace avocet::tokenizer::jinja {
namespace {

class ReprWriter {
 public:
  ReprWriter(Budget& budget, std::string& out) : budget_(budget), out_(out) {}

  // Every value costs a step before it is written, and the text is measured after each: shared values can make a small container write
  // a very long text.
  Result<void> Append(const Value& value) {
    const size_t num_bytes_before = out_.size();
    AVOCET_TRY_VOID(budget_.Steps(1));
    if (value.is_string()) {
      AVOCET_TRY_VOID(budget_.Text(value.text().size()));
    }
    AVOCET_TRY_VOID(AppendValue(value));
    AVOCET_TRY_VOID(budget_.Fits(out_.size()));
    return budget_.Steps(static_cast<int64_t>((out_.size() - num_bytes_before) / limits::kTemplateStepBytes));
  }

 private:
  Result<void> AppendValue(const Value& value) {
    switch (value.kind()) {
      case Kind::kUndefined: out_ += "Undefined"; break;
      case Kind::kNone: out_ += "None"; break;
      case Kind::kBool: out_ += value.boolean() ? "True" : "False"; break;
      case Kind::kInt:
      case Kind::kBigInt: out_ += ToString(value.integer()); break;
      case Kind::kFloat: out_ += FloatRepr(value.real()); break;
      case Kind::kString:
        if (value.string().is_markup) out_ += "Markup(";
        AppendRepr(value.text(), out_);
        if (value.string().is_markup) out_ += ')';
        break;
      case Kind::kSequence: return AppendSequence(value);
      case Kind::kDict: return AppendDict(value.dict());
      case Kind::kRange: AppendRange(value.range()); break;
      case Kind::kView: return AppendView(value);
      case Kind::kNamespace: return AppendNamespace(value.name_space());
      case Kind::kIterator: out_ += "<generator object>"; break;
      case Kind::kLoop: out_ += fmt::format("<LoopContext {}>", value.loop().index0 + 1); break;
      case Kind::kFunction: out_ += value.function().Show(); break;
    }
    return {};
  }

  Result<void> AppendItems(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      AVOCET_TRY_VOID(Append(items[i]));
    }
    return {};
  }

  Result<void> AppendSequence(const Value& value) {
    const std::vector<Value>& items = value.sequence().items;
    out_ += value.is_list() ? '[' : '(';
    AVOCET_TRY_VOID(AppendItems(items));
    if (!value.is_list() && items.size() == 1) out_ += ',';
    out_ += value.is_list() ? ']' : ')';
    return {};
  }

  Result<void> AppendDict(const DictData& dict) {
    out_ += '{';
    for (size_t i = 0; i < dict.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      AVOCET_TRY_VOID(Append(dict.items[i].first));
      out_ += ": ";
      AVOCET_TRY_VOID(Append(dict.items[i].second));
    }
    out_ += '}';
    return {};
  }

  Result<void> AppendView(const Value& value) {
    AVOCET_TRY(const std::vector<Value> items, Iterate(value, budget_));
    out_ += value.type_name();
    out_ += "([";
    AVOCET_TRY_VOID(AppendItems(items));
    out_ += "])";
    return {};
  }

  void AppendRange(const RangeData& range) {
    out_ += fmt::format("range({}, {}", range.start, range.stop);
    out_ += range.step == 1 ? ")" : fmt::format(", {})", range.step);
  }

  // A namespace inside another is not opened: it may contain itself.
  Result<void> AppendNamespace(const NamespaceData& data) {
    if (is_in_namespace_) {
      out_ += "<Namespace ...>";
      return {};
    }
    is_in_namespace_ = true;
    out_ += "<Namespace {";
    for (size_t i = 0; i < data.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      AppendRepr(data.items[i].first, out_);
      out_ += ": ";
      AVOCET_TRY_VOID(Append(data.items[i].second));
    }
    out_ += "}>";
    is_in_namespace_ = false;
    return {};
  }

  Budget& budget_;
  std::string& out_;
  bool is_in_namespace_ = false;
};

}  // namespace

Result<void> AppendRepr(const Value& value, Budget& budget, std::string& out) {
  return ReprWriter(budget, out).Append(value);
}

Result<void> AppendStr(const Value& value, Budget& budget, std::string& out) {
  if (value.is_undefined()) return {};
  if (!value.is_string()) return AppendRepr(value, budget, out);
  AVOCET_TRY_VOID(budget.Fits(out.size() + value.text().size()));
  AVOCET_TRY_VOID(budget.Text(value.text().size()));
  out += value.text();
  return {};
}

Result<std::string> Str(const Value& value, Budget& budget) {
  std::string out;
  AVOCET_TRY_VOID(AppendStr(value, budget, out));
  return out;
}

Result<std::string> Repr(const Value& value, Budget& budget) {
  std::string out;
  AVOCET_TRY_VOID(AppendRepr(value, budget, out));
  return out;
}

}  // namespace avocet::tokenizer::jinja
