// "..." % values.
#include <cmath>

#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

// %[(key)][flags][width][.precision]type
struct Conversion {
  bool is_left = false;
  bool is_alternate = false;
  bool fills_zeros = false;
  char sign = '\0';
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = '\0';
};

// Python takes anything with items for a mapping here: then values may be left over.
bool IsMapping(const Value& value) {
  return value.is_dict() || value.is_list() || value.is_undefined() || value.kind() == Kind::kRange;
}

class PercentFormatter {
 public:
  PercentFormatter(const Value& form, const Value& values, Budget& budget)
      : form_(form), text_(form.text()), values_(values), budget_(budget) {}

  Result<Value> Run() {
    while (at_ < text_.size()) {
      const size_t percent = std::min(text_.find('%', at_), text_.size());
      out_.append(text_, at_, percent - at_);
      if (percent == text_.size()) break;
      at_ = percent + 1;
      AVOCET_TRY_VOID(ConvertNext());
      AVOCET_TRY_VOID(budget_.Steps(1));
      AVOCET_TRY_VOID(budget_.Fits(out_.size()));
    }
    if (next_value_ < NumValues() && !IsMapping(values_))
      return Fail(Errc::kInvalidArgument, "not all arguments converted during string formatting");
    return form_.string().is_markup ? Value::Markup(std::move(out_)) : Value::String(std::move(out_));
  }

 private:
  size_t NumValues() const { return values_.is_tuple() ? values_.sequence().items.size() : 1; }

  Result<Value> NextValue() {
    if (named_) return *named_;
    if (next_value_ == NumValues()) return Fail(Errc::kInvalidArgument, "not enough arguments for format string");
    return values_.is_tuple() ? values_.sequence().items[next_value_++] : (++next_value_, values_);
  }

  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }

  // Text of the key in (key): brackets inside it pair.
  Result<void> ReadKey() {
    int depth = 1;
    const size_t begin = ++at_;
    for (; at_ < text_.size() && depth > 0; ++at_) depth += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
    if (depth > 0) return Fail(Errc::kInvalidArgument, "incomplete format key");
    const std::string_view key = text_.substr(begin, at_ - 1 - begin);
    if (values_.is_undefined()) return UndefinedError(values_);
    if (!values_.is_dict()) return Fail(Errc::kInvalidArgument, "format requires a mapping");
    const Value* const found = values_.dict().Find(key);
    if (found == nullptr) return Fail(Errc::kInvalidArgument, "the format's key '{}' is not in the mapping", key);
    named_ = *found;
    return {};
  }

  Result<int64_t> ReadNumber() {
    if (At('*')) {
      ++at_;
      AVOCET_TRY(const Value value, NextValue());
      if (!value.is_integer() || value.integer() > INT32_MAX || value.integer() < -INT32_MAX)
        return Fail(Errc::kInvalidArgument, "* wants int");
      return static_cast<int64_t>(value.integer());
    }
    int64_t number = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      number = number * 10 + (text_[at_] - '0');
      if (number > INT32_MAX) return Fail(Errc::kInvalidArgument, "a width in a format is too big");
    }
    return number;
  }

  Result<Conversion> ReadConversion() {
    Conversion c;
    for (; At('-') || At('+') || At(' ') || At('#') || At('0'); ++at_) {
      switch (text_[at_]) {
        case '-': c.is_left = true; break;
        case '#': c.is_alternate = true; break;
        case '0': c.fills_zeros = true; break;
        default: c.sign = c.sign == '+' ? '+' : text_[at_];
      }
    }
    AVOCET_TRY(c.width, ReadNumber());
    if (c.width < 0) {
      c.is_left = true;
      c.width = -c.width;
    }
    if (At('.')) {
      ++at_;
      AVOCET_TRY(const int64_t precision, ReadNumber());
      c.precision = std::max<int64_t>(precision, 0);
    }
    if (At('h') || At('l') || At('L')) ++at_;
    if (at_ == text_.size()) return Fail(Errc::kInvalidArgument, "incomplete format");
    c.type = text_[at_++];
    return c;
  }

  Result<void> ConvertNext() {
    named_.reset();
    if (At('(')) {
      AVOCET_TRY_VOID(ReadKey());
    }
    AVOCET_TRY(const Conversion conversion, ReadConversion());
    if (conversion.type == '%') {
      out_ += '%';
      return {};
    }
    AVOCET_TRY(const Value value, NextValue());
    AVOCET_TRY(const std::string text, Convert(conversion, value));
    AVOCET_TRY(const std::string padded, Pad(text, conversion.width, ' ', conversion.is_left ? Align::kLeft : Align::kRight, budget_));
    out_ += padded;
    return {};
  }

  Result<std::string> Convert(const Conversion& c, const Value& value) {
    switch (c.type) {
      case 's':
      case 'r':
      case 'a': return Text(c, value);
      case 'c': return Character(value);
      case 'd':
      case 'i':
      case 'u': return Whole(c, value);
      case 'o':
      case 'x':
      case 'X':
        if (!value.is_integer())
          return Fail(Errc::kInvalidArgument, "%{} format: an integer is required, not {}", c.type, value.type_name());
        return IntegerText(c, value.integer());
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': return Real(c, value);
      default: return Fail(Errc::kInvalidArgument, "unsupported format character '{}'", c.type);
    }
  }

  Result<std::string> Text(const Conversion& c, const Value& value) {
    std::string text;
    if (c.type == 's') {
      AVOCET_TRY(text, Str(value, budget_));
      const bool is_escaped = form_.string().is_markup && !(value.is_string() && value.string().is_markup);
      if (is_escaped) text = EscapeHtml(text);
    } else {
      AVOCET_TRY(text, Repr(value, budget_));
      if (c.type == 'a') text = AsciiOnly(text);
    }
    if (c.precision) text.resize(ByteOffset(text, *c.precision));
    return text;
  }

  static Result<std::string> Character(const Value& value) {
    if (value.is_string() && value.string().num_code_points == 1) return std::string(value.text());
    if (!value.is_integer()) return Fail(Errc::kInvalidArgument, "%c requires an int or a single character, not {}", value.type_name());
    const Integer number = value.integer();
    if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000))
      return Fail(Errc::kInvalidArgument, "no character has the number {}", ToString(number));
    std::string text;
    AppendUtf8(static_cast<uint32_t>(number), text);
    return text;
  }

  Result<std::string> Whole(const Conversion& c, const Value& value) {
    if (value.is_undefined()) return UndefinedError(value);
    if (!value.is_number()) return Fail(Errc::kInvalidArgument, "%{} format: a real number is required, not {}", c.type, value.type_name());
    const std::optional<Integer> number = value.is_integer() ? value.integer() : Truncate(value.real());
    if (!number) return Fail(Errc::kInvalidArgument, "cannot convert float {} to integer", FloatRepr(value.real()));
    return IntegerText(c, *number);
  }

  Result<std::string> IntegerText(const Conversion& c, Integer value) {
    const int base = c.type == 'o' ? 8 : c.type == 'x' || c.type == 'X' ? 16 : 10;
    std::string digits = Digits(value, base);
    if (c.type == 'X') digits = Upper(digits);
    if (c.precision && *c.precision > static_cast<int64_t>(digits.size())) {
      AVOCET_TRY_VOID(budget_.Text(static_cast<size_t>(*c.precision)));
      digits.insert(0, static_cast<size_t>(*c.precision) - digits.size(), '0');
    }
    const std::string prefix = c.is_alternate && base != 10 ? fmt::format("0{}", c.type) : std::string();
    return WithSign(c, value < 0, prefix, std::move(digits));
  }

  Result<std::string> Real(const Conversion& c, const Value& value) {
    if (value.is_undefined()) return UndefinedError(value);
    if (!value.is_number()) return Fail(Errc::kInvalidArgument, "must be real number, not {}", value.type_name());
    if (c.precision.value_or(0) > kFloatPrecisionMax)
      return Fail(Errc::kInvalidArgument, "a precision of {}; {} are allowed", *c.precision, kFloatPrecisionMax);
    FloatStyle style;
    style.type = c.type;
    style.precision = static_cast<int32_t>(c.precision.value_or(6));
    style.keeps_point = c.is_alternate;
    return WithSign(c, std::signbit(value.real()), {}, FormatFloat(value.real(), style));
  }

  // The zeros of a width stand between the sign and the digits.
  Result<std::string> WithSign(const Conversion& c, bool is_negative, const std::string& prefix, std::string digits) {
    const std::string front = (is_negative ? "-" : c.sign == '\0' ? "" : std::string(1, c.sign)) + prefix;
    if (c.fills_zeros && !c.is_left) {
      AVOCET_TRY(digits, Pad(digits, c.width - static_cast<int64_t>(front.size()), '0', Align::kRight, budget_));
    }
    return front + digits;
  }

  const Value& form_;
  std::string_view text_;
  const Value& values_;
  Budget& budget_;
  size_t at_ = 0;
  size_t next_value_ = 0;
  std::optional<Value> named_;  // what (key) names
  std::string out_;
};

}  // namespace

Result<Value> PercentFormat(const Value& form, const Value& values, Budget& budget) {
  return PercentFormatter(form, values, budget).Run();
}

}  // namespace avocet::tokenizer::jinja
