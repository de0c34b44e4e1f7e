#include "tokenizer/jinja/json.h"

#include <cmath>

#include "tokenizer/jinja/sort.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  Result<std::string> Run(const Value& value) {
    AVOCET_TRY_VOID(Append(value, 0));
    return std::move(out_);
  }

 private:
  Result<void> Append(const Value& value, int32_t level) {
    AVOCET_TRY_VOID(budget_.Steps(1));
    switch (value.kind()) {
      case Kind::kNone: out_ += "null"; break;
      case Kind::kBool: out_ += value.boolean() ? "true" : "false"; break;
      case Kind::kInt:
      case Kind::kBigInt: out_ += ToString(value.integer()); break;
      case Kind::kFloat: out_ += FloatText(value.real()); break;
      case Kind::kString: AVOCET_TRY_VOID(AppendText(value.text())); break;
      case Kind::kSequence: AVOCET_TRY_VOID(AppendList(value.sequence().items, level)); break;
      case Kind::kDict: AVOCET_TRY_VOID(AppendDict(value.dict(), level)); break;
      default: return Fail(Errc::kInvalidArgument, "Object of type {} is not JSON serializable", value.type_name());
    }
    return budget_.Fits(out_.size());
  }

  static std::string FloatText(double value) {
    if (std::isfinite(value)) return FloatRepr(value);
    return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  }

  Result<void> AppendText(std::string_view text) {
    AVOCET_TRY_VOID(budget_.Text(text.size()));
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const uint32_t c = NextCodePoint(text, at);
      if (c == '"' || c == '\\') {
        out_ += '\\';
        out_ += static_cast<char>(c);
      } else if (c < 0x20 || (style_.is_ascii && c >= 0x7F)) {
        AppendEscape(c);
      } else {
        out_.append(text, begin, at - begin);
      }
    }
    out_ += '"';
    return {};
  }

  void AppendEscape(uint32_t c) {
    switch (c) {
      case '\n': out_ += "\\n"; return;
      case '\r': out_ += "\\r"; return;
      case '\t': out_ += "\\t"; return;
      case '\b': out_ += "\\b"; return;
      case '\f': out_ += "\\f"; return;
      default: break;
    }
    if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", c);
    } else {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
    }
  }

  Result<void> NewLine(int32_t level) {
    if (!style_.indent) return {};
    out_ += '\n';
    AVOCET_TRY_VOID(budget_.Text(std::min(style_.indent->size() * static_cast<size_t>(level), limits::kTemplateOutputBytesMax + 1)));
    for (int32_t i = 0; i < level; ++i) out_ += *style_.indent;
    return budget_.Fits(out_.size());
  }

  Result<void> AppendList(const std::vector<Value>& items, int32_t level) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      AVOCET_TRY_VOID(NewLine(level + 1));
      AVOCET_TRY_VOID(Append(items[i], level + 1));
    }
    if (!items.empty()) {
      AVOCET_TRY_VOID(NewLine(level));
    }
    out_ += ']';
    return {};
  }

  Result<void> AppendKey(const Value& key) {
    if (key.is_string()) return AppendText(key.text());
    if (!key.is_number() && !key.is_none()) {
      return Fail(Errc::kInvalidArgument, "keys must be str, int, float, bool or None, not {}", key.type_name());
    }
    out_ += '"';
    AVOCET_TRY_VOID(Append(key, 0));
    out_ += '"';
    return {};
  }

  Result<void> AppendDict(const DictData& dict, int32_t level) {
    std::vector<size_t> order(dict.items.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sorts_keys) {
      AVOCET_TRY_VOID(StableSort(order, [&](size_t a, size_t b) { return Less(dict.items[a].first, dict.items[b].first, budget_); }));
    }
    out_ += '{';
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      AVOCET_TRY_VOID(NewLine(level + 1));
      AVOCET_TRY_VOID(AppendKey(dict.items[order[i]].first));
      out_ += style_.key_separator;
      AVOCET_TRY_VOID(Append(dict.items[order[i]].second, level + 1));
    }
    if (!order.empty()) {
      AVOCET_TRY_VOID(NewLine(level));
    }
    out_ += '}';
    return {};
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

Result<std::string> DumpJson(const Value& value, const JsonStyle& style, Budget& budget) {
  return JsonWriter(style, budget).Run(value);
}

}  // namespace avocet::tokenizer::jinja
