// Format specifications: [[fill]align][sign][#][0][width][,][.precision][type].
#include "tokenizer/jinja/format.h"

#include <algorithm>

#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

struct Specification {
  uint32_t fill = ' ';
  char align = '\0';  // < > ^ =, or none
  char sign = '\0';   // + - space, or none
  bool is_alternate = false;
  int64_t width = 0;
  char grouping = '\0';  // , or _
  std::optional<int64_t> precision;
  char type = '\0';
};

bool IsAlign(uint32_t c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

class SpecificationReader {
 public:
  explicit SpecificationReader(std::string_view text) : text_(text) {}

  Result<Specification> Run() {
    ReadAlign();
    if (At("+") || At("-") || At(" ")) spec_.sign = text_[at_++];
    if (At("#")) {
      spec_.is_alternate = true;
      ++at_;
    }
    if (At("0")) {
      // A width that begins with a zero fills with zeros behind the sign.
      if (!has_fill_) spec_.fill = '0';
      if (spec_.align == '\0') spec_.align = '0';
      ++at_;
    }
    AVOCET_TRY(spec_.width, Number(0));
    if (At(",") || At("_")) spec_.grouping = text_[at_++];
    if (At(",") || At("_")) return Fail(Errc::kInvalidArgument, "a format has two separators of thousands");
    if (At(".")) {
      ++at_;
      AVOCET_TRY(const int64_t precision, Number(-1));
      if (precision < 0) return Fail(Errc::kInvalidArgument, "a format lacks its precision");
      spec_.precision = precision;
    }
    if (at_ < text_.size()) spec_.type = text_[at_++];
    if (at_ < text_.size()) return Fail(Errc::kInvalidArgument, "the format '{}' is not understood", text_);
    return spec_;
  }

 private:
  bool At(std::string_view c) const { return text_.substr(at_).starts_with(c); }

  void ReadAlign() {
    if (text_.empty()) return;
    size_t next = 0;
    const uint32_t first = NextCodePoint(text_, next);
    if (next < text_.size() && IsAlign(static_cast<unsigned char>(text_[next]))) {
      spec_.fill = first;
      spec_.align = text_[next];
      has_fill_ = true;
      at_ = next + 1;
    } else if (IsAlign(first)) {
      spec_.align = static_cast<char>(first);
      at_ = 1;
    }
  }

  Result<int64_t> Number(int64_t missing) {
    if (at_ == text_.size() || text_[at_] < '0' || text_[at_] > '9') return missing;
    int64_t number = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      number = number * 10 + (text_[at_] - '0');
      if (number > INT32_MAX) return Fail(Errc::kInvalidArgument, "too many decimal digits in a format");
    }
    return number;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool has_fill_ = false;
  Specification spec_;
};

std::string Grouped(std::string_view digits, char separator, size_t group) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// Zeros in front of the digits, to the width; with separators, which are not to stand first.
std::string ZeroFilled(std::string digits, int64_t width, char separator, size_t group) {
  if (separator == '\0') {
    if (static_cast<int64_t>(digits.size()) < width) digits.insert(0, static_cast<size_t>(width) - digits.size(), '0');
    return digits;
  }
  const auto with_separators = [group](size_t n) { return n + (n - 1) / group; };
  size_t num_digits = digits.size();
  if (width > 0) {
    // As many digits as fit, and one more where a separator would stand first.
    const auto room = static_cast<size_t>(width);
    num_digits = std::max(num_digits, room - room / (group + 1));
    while (with_separators(num_digits) < room) ++num_digits;
  }
  digits.insert(0, num_digits - digits.size(), '0');
  return Grouped(digits, separator, group);
}

Result<std::string> Assemble(const NumberText& number, const Specification& spec, Budget& budget) {
  // Separators belong to the digits before the fraction or the exponent.
  const bool is_hexadecimal = spec.type == 'x' || spec.type == 'X';
  const size_t whole_end =
      is_hexadecimal ? number.digits.size() : std::min(number.digits.find_first_not_of("0123456789"), number.digits.size());
  std::string whole = number.digits.substr(0, whole_end);
  const std::string tail = number.digits.substr(whole_end);
  const size_t group = is_hexadecimal || spec.type == 'b' || spec.type == 'o' ? 4 : 3;
  const bool fills_zeros = (spec.align == '=' || spec.align == '0') && spec.fill == '0';
  AVOCET_TRY_VOID(budget.Text(static_cast<size_t>(spec.width)));
  const auto rest = static_cast<int64_t>(number.sign.size() + number.prefix.size() + tail.size());
  if (!whole.empty() && (spec.grouping != '\0' || fills_zeros)) {
    whole = ZeroFilled(std::move(whole), fills_zeros ? spec.width - rest : 0, spec.grouping, group);
  }
  const std::string front = number.sign + number.prefix;
  std::string body = whole + tail;
  if (spec.align == '=' || spec.align == '0') {
    AVOCET_TRY(body, Pad(body, spec.width - static_cast<int64_t>(front.size()), spec.fill, Align::kRight, budget));
    return front + body;
  }
  const Align align = spec.align == '<' ? Align::kLeft : spec.align == '^' ? Align::kCenter : Align::kRight;
  return Pad(front + body, spec.width, spec.fill, align, budget);
}

std::string SignOf(bool is_negative, char wanted) {
  if (is_negative) return "-";
  return wanted == '+' || wanted == ' ' ? std::string(1, wanted) : std::string();
}

Result<std::string> FormatString(const Value& value, const Specification& spec, Budget& budget) {
  if (spec.type != '\0' && spec.type != 's') return Fail(Errc::kInvalidArgument, "unknown format code '{}' for a string", spec.type);
  if (spec.sign != '\0') return Fail(Errc::kInvalidArgument, "a sign is not allowed in the format of a string");
  if (spec.is_alternate) return Fail(Errc::kInvalidArgument, "# is not allowed in the format of a string");
  if (spec.grouping != '\0') return Fail(Errc::kInvalidArgument, "'{}' is not allowed in the format of a string", spec.grouping);
  if (spec.align == '=') return Fail(Errc::kInvalidArgument, "'=' is not allowed in the format of a string");
  std::string_view text = value.text();
  if (spec.precision && *spec.precision < value.string().num_code_points) text = text.substr(0, ByteOffset(text, *spec.precision));
  const Align align = spec.align == '>' ? Align::kRight : spec.align == '^' ? Align::kCenter : Align::kLeft;
  return Pad(text, spec.width, spec.fill, align, budget);
}

Result<std::string> FormatReal(const Value& value, const Specification& spec, Budget& budget) {
  if (spec.precision.value_or(0) > kFloatPrecisionMax)
    return Fail(Errc::kInvalidArgument, "a precision of {}; {} are allowed", *spec.precision, kFloatPrecisionMax);
  const double number = value.real();
  NumberText parts;
  parts.sign = SignOf(std::signbit(number), spec.sign);
  if (spec.type == '\0' && !spec.precision && !spec.is_alternate) {
    parts.digits = FloatRepr(std::fabs(number));
  } else {
    FloatStyle style;
    style.type = spec.type == '\0' || spec.type == 'n' ? 'g' : spec.type;
    style.precision = static_cast<int32_t>(spec.precision.value_or(spec.type == '\0' ? 17 : 6));
    style.keeps_point = spec.is_alternate;
    style.adds_point_zero = spec.type == '\0';
    parts.digits = FormatFloat(number, style);
  }
  return Assemble(parts, spec, budget);
}

Result<std::string> FormatCharacter(Integer value, const Specification& spec, Budget& budget) {
  if (spec.sign != '\0' || spec.is_alternate || spec.grouping != '\0')
    return Fail(Errc::kInvalidArgument, "a character takes no sign, # or separator");
  if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
    return Fail(Errc::kInvalidArgument, "no character has the number {}", ToString(value));
  std::string text;
  AppendUtf8(static_cast<uint32_t>(value), text);
  const Align align = spec.align == '>' || spec.align == '=' || spec.align == '0' ? Align::kRight
                      : spec.align == '^'                                         ? Align::kCenter
                                                                                  : Align::kLeft;
  return Pad(text, spec.width, spec.fill, align, budget);
}

Result<std::string> FormatInteger(const Value& value, const Specification& spec, Budget& budget) {
  static constexpr std::string_view kFloatTypes = "eEfFgG%";
  if (spec.type != '\0' && kFloatTypes.find(spec.type) != std::string_view::npos)
    return FormatReal(Value::Float(value.real()), spec, budget);
  if (spec.precision) return Fail(Errc::kInvalidArgument, "a precision is not allowed in the format of an integer");
  if (spec.type == 'c') return FormatCharacter(value.integer(), spec, budget);
  int base = 10;
  switch (spec.type) {
    case 'b': base = 2; break;
    case 'o': base = 8; break;
    case 'x':
    case 'X': base = 16; break;
    case '\0':
    case 'd':
    case 'n': break;
    default: return Fail(Errc::kInvalidArgument, "unknown format code '{}' for an integer", spec.type);
  }
  if (spec.grouping == ',' && base != 10) return Fail(Errc::kInvalidArgument, "',' is not allowed with '{}'", spec.type);
  NumberText parts;
  parts.sign = SignOf(value.integer() < 0, spec.sign);
  if (spec.is_alternate && base != 10) parts.prefix = fmt::format("0{}", spec.type);
  parts.digits = Digits(value.integer(), base);
  if (spec.type == 'X') parts.digits = Upper(parts.digits);
  return Assemble(parts, spec, budget);
}

}  // namespace

std::string Digits(Integer value, int base) {
  if (value == 0) return "0";
  std::string digits;
  for (Integer rest = value; rest != 0; rest /= base) {
    const int digit = static_cast<int>(rest % base);
    digits += "0123456789abcdef"[digit < 0 ? -digit : digit];
  }
  std::ranges::reverse(digits);
  return digits;
}

namespace {

Result<std::string> PadBoth(std::string_view text, int64_t num_before, int64_t num_after, uint32_t fill, Budget& budget) {
  AVOCET_TRY_VOID(budget.Text(text.size() + static_cast<size_t>(num_before + num_after) * 4));
  std::string out;
  for (int64_t i = 0; i < num_before; ++i) AppendUtf8(fill, out);
  out += text;
  for (int64_t i = 0; i < num_after; ++i) AppendUtf8(fill, out);
  return out;
}

}  // namespace

Result<std::string> Pad(std::string_view text, int64_t width, uint32_t fill, Align align, Budget& budget) {
  const int64_t num_missing = width - CountCodePoints(text);
  if (num_missing <= 0) return std::string(text);
  const int64_t num_before = align == Align::kLeft ? 0 : align == Align::kRight ? num_missing : num_missing / 2;
  return PadBoth(text, num_before, num_missing - num_before, fill, budget);
}

Result<std::string> Center(std::string_view text, int64_t width, uint32_t fill, Budget& budget) {
  const int64_t num_missing = width - CountCodePoints(text);
  if (num_missing <= 0) return std::string(text);
  const int64_t num_before = num_missing / 2 + (num_missing & width & 1);
  return PadBoth(text, num_before, num_missing - num_before, fill, budget);
}

Result<std::string> FormatValue(const Value& value, std::string_view specification, Budget& budget) {
  if (specification.empty()) return Str(value, budget);
  AVOCET_TRY(const Specification spec, SpecificationReader(specification).Run());
  if (value.is_string()) return FormatString(value, spec, budget);
  if (value.is_integer()) return FormatInteger(value, spec, budget);
  if (!value.is_float()) return Fail(Errc::kInvalidArgument, "a value of type {} takes no format", value.type_name());
  static constexpr std::string_view kFloatTypes = "eEfFgGn%";
  if (spec.type != '\0' && kFloatTypes.find(spec.type) == std::string_view::npos) {
    return Fail(Errc::kInvalidArgument, "unknown format code '{}' for a float", spec.type);
  }
  return FormatReal(value, spec, budget);
}

}  // namespace avocet::tokenizer::jinja
