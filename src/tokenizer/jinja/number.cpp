#include "tokenizer/jinja/number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <unicode/uchar.h>

#include "base/check.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

std::unexpected<Error> Overflow() {
  return Fail(Errc::kInvalidArgument, "an integer needs more than 128 bits");
}
std::unexpected<Error> DivisionByZero() {
  return Fail(Errc::kInvalidArgument, "division by zero");
}

Result<Integer> Power(Integer base, Integer exponent) {
  DCHECK(exponent >= 0, "a negative power of integers is a float");
  if (exponent == 0) return Integer{1};
  if (base == 0 || base == 1) return base;
  if (base == -1) return exponent % 2 == 0 ? Integer{1} : base;
  if (exponent > 127) return Overflow();
  Integer result = 1;
  for (Integer i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return Overflow();
  }
  return result;
}

double FloorModulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) rest += b;
    return rest;
  }
  return std::copysign(0.0, b);
}

double FloorDivide(double a, double b) {
  const double rest = FloorModulo(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Result<double> FloatPower(double a, double b) {
  if (a == 0 && b < 0) return Fail(Errc::kInvalidArgument, "0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    return Fail(Errc::kInvalidArgument, "complex numbers are not offered");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return Fail(Errc::kInvalidArgument, "the result of a power is too large");
  return result;
}

// 10^n of n >= 0 as long as it fits.
std::optional<Integer> PowerOfTen(int64_t n) {
  if (n > 38) return std::nullopt;
  Integer result = 1;
  for (int64_t i = 0; i < n; ++i) result *= 10;
  return result;
}

int DigitValue(uint32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c >= 'a' && c <= 'z') return static_cast<int>(c - 'a') + 10;
  if (c >= 'A' && c <= 'Z') return static_cast<int>(c - 'A') + 10;
  return c < 0x80 ? -1 : u_charDigitValue(static_cast<UChar32>(c));
}

// The base that a prefix 0x, 0o or 0b names, or 0.
int PrefixBase(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  switch (text[1] | 0x20) {
    case 'x': return 16;
    case 'o': return 8;
    case 'b': return 2;
    default: return 0;
  }
}

std::string Fixed(double value, int32_t precision) {
  std::string out(static_cast<size_t>(precision) + 320, '\0');
  const auto [end, error] = std::to_chars(out.data(), out.data() + out.size(), value, std::chars_format::fixed, precision);
  CHECK(error == std::errc(), "a number does not fit {} bytes", out.size());
  out.resize(static_cast<size_t>(end - out.data()));
  return out;
}

std::string Scientific(double value, int32_t precision) {
  std::string out(static_cast<size_t>(precision) + 32, '\0');
  const auto [end, error] = std::to_chars(out.data(), out.data() + out.size(), value, std::chars_format::scientific, precision);
  CHECK(error == std::errc(), "a number does not fit {} bytes", out.size());
  out.resize(static_cast<size_t>(end - out.data()));
  return out;
}

void DropTrailingZeros(std::string& digits) {
  if (digits.find('.') == std::string::npos) return;
  while (digits.back() == '0') digits.pop_back();
  if (digits.back() == '.') digits.pop_back();
}

std::string General(double value, const FloatStyle& style) {
  const int32_t precision = std::max(style.precision, 1);
  std::string scientific = Scientific(value, precision - 1);
  const size_t e = scientific.find('e');
  int32_t exponent = 0;
  const char* digits = scientific.data() + e + (scientific[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits, scientific.data() + scientific.size(), exponent);
  if (exponent >= -4 && exponent < precision - (style.adds_point_zero ? 1 : 0)) {
    std::string fixed = Fixed(value, std::max(precision - 1 - exponent, 0));
    if (!style.keeps_point) DropTrailingZeros(fixed);
    if (fixed.find('.') == std::string::npos && (style.adds_point_zero || style.keeps_point)) fixed += style.adds_point_zero ? ".0" : ".";
    return fixed;
  }
  std::string mantissa = scientific.substr(0, e);
  if (!style.keeps_point) DropTrailingZeros(mantissa);
  return mantissa + scientific.substr(e);
}

}  // namespace

std::string_view Symbol(BinaryOp op) {
  static constexpr std::array<std::string_view, 7> kSymbols = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

Result<Integer> IntegerOperation(BinaryOp op, Integer a, Integer b) {
  Integer result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow();
      return result;
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow();
      return result;
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow();
      return result;
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == 0) return DivisionByZero();
      if (b == -1) return op == BinaryOp::kModulo ? Integer{0} : IntegerOperation(BinaryOp::kSubtract, 0, a);
      const Integer rest = a % b;
      const bool is_rounded_up = rest != 0 && (rest < 0) != (b < 0);
      if (op == BinaryOp::kModulo) return is_rounded_up ? rest + b : rest;
      return a / b - (is_rounded_up ? 1 : 0);
    }
    case BinaryOp::kPower: return Power(a, b);
    case BinaryOp::kDivide: break;
  }
  CHECK(false, "operator {} is not one of integers", Symbol(op));
  return result;
}

Result<double> FloatOperation(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd: return a + b;
    case BinaryOp::kSubtract: return a - b;
    case BinaryOp::kMultiply: return a * b;
    case BinaryOp::kPower: return FloatPower(a, b);
    case BinaryOp::kDivide:
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: break;
  }
  if (b == 0) return DivisionByZero();
  if (op == BinaryOp::kDivide) return a / b;
  return op == BinaryOp::kModulo ? FloorModulo(a, b) : FloorDivide(a, b);
}

int Compare(Integer a, double b) {
  if (std::isnan(b)) return 2;
  if (b >= 0x1p127) return -1;
  if (b < -0x1p127) return 1;
  const double whole = std::floor(b);
  const auto floor = static_cast<Integer>(whole);
  if (a != floor) return a < floor ? -1 : 1;
  return whole < b ? -1 : 0;
}

std::string ToString(Integer value) {
  if (value >= std::numeric_limits<int64_t>::min() && value <= std::numeric_limits<int64_t>::max())
    return std::to_string(static_cast<int64_t>(value));
  std::string digits;
  for (Integer rest = value; rest != 0; rest /= 10) {
    const int digit = static_cast<int>(rest % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
  }
  if (value < 0) digits += '-';
  std::ranges::reverse(digits);
  return digits;
}

std::optional<Integer> ParseInteger(std::string_view text, int base) {
  text = StripRight(StripLeft(text, std::nullopt), std::nullopt);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const int prefix = PrefixBase(text);
  const bool has_prefix = prefix != 0 && (base == 0 || base == prefix);
  if (has_prefix) text.remove_prefix(2);
  const bool is_only_zero_allowed = base == 0 && !has_prefix && text.size() > 1 && text[0] == '0';
  if (base == 0) base = has_prefix ? prefix : 10;
  Integer value = 0;
  bool follows_digit = has_prefix;  // an underscore may follow the prefix
  if (text.empty()) return std::nullopt;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextCodePoint(text, at);
    if (c == '_') {
      if (!follows_digit) return std::nullopt;
      follows_digit = false;
      continue;
    }
    const int digit = DigitValue(c);
    if (digit < 0 || digit >= base || (is_only_zero_allowed && digit != 0)) return std::nullopt;
    follows_digit = true;
    // Counted downwards when negative, so that the lowest number is in range.
    if (__builtin_mul_overflow(value, static_cast<Integer>(base), &value)) return std::nullopt;
    if (__builtin_add_overflow(value, static_cast<Integer>(is_negative ? -digit : digit), &value)) return std::nullopt;
  }
  return follows_digit ? std::optional(value) : std::nullopt;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = StripRight(StripLeft(text, std::nullopt), std::nullopt);
  std::string digits;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextCodePoint(text, at);
    if (c == '_') {
      const bool is_between_digits =
          !digits.empty() && digits.back() >= '0' && digits.back() <= '9' && at < text.size() && text[at] >= '0' && text[at] <= '9';
      if (!is_between_digits) return std::nullopt;
    } else if (c < 0x80) {
      digits += static_cast<char>(c);
    } else {
      const int digit = u_charDigitValue(static_cast<UChar32>(c));
      if (digit < 0) return std::nullopt;
      digits += static_cast<char>('0' + digit);
    }
  }
  std::string_view rest = digits;
  const bool is_negative = rest.starts_with('-');
  if (is_negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
  const std::string lower = Lower(rest);
  if (lower.starts_with("nan") && lower != "nan") return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // Too large or too small: from_chars does not say which.
    const size_t e = lower.find('e');
    const bool is_small =
        (e != std::string::npos && lower.find('-', e) != std::string::npos) || lower.starts_with("0") || lower.starts_with(".");
    value = is_small ? 0 : std::numeric_limits<double>::infinity();
  } else if (error != std::errc()) {
    return std::nullopt;
  }
  return is_negative ? -value : value;
}

std::optional<Integer> Truncate(double value) {
  if (!(std::fabs(value) < 0x1p127)) return std::nullopt;
  return static_cast<Integer>(value);
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto scientific = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(scientific.ptr - buffer.data()));
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  std::array<char, 64> fixed{};
  const auto end = std::to_chars(fixed.data(), fixed.data() + fixed.size(), value, std::chars_format::fixed);
  std::string result(fixed.data(), end.ptr);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::string FormatFloat(double value, const FloatStyle& style) {
  DCHECK(style.precision >= 0 && style.precision <= kFloatPrecisionMax, "precision {}", style.precision);
  const char lower = static_cast<char>(style.type | 0x20);
  std::string out;
  value = std::fabs(value);
  if (!std::isfinite(value)) {
    out = std::isnan(value) ? "nan" : "inf";
  } else if (lower == 'f' || style.type == '%') {
    out = Fixed(style.type == '%' ? value * 100 : value, style.precision);
    if (style.keeps_point && style.precision == 0) out += '.';
  } else if (lower == 'e') {
    out = Scientific(value, style.precision);
    if (style.keeps_point && style.precision == 0) out.insert(1, 1, '.');
  } else {
    out = General(value, style);
  }
  if (style.type == '%') out += '%';
  return style.type >= 'A' && style.type <= 'Z' ? Upper(out) : out;
}

double RoundFloat(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    // The scientific form with fewer digits is the number rounded to a power of ten.
    const auto num_kept = static_cast<int32_t>(static_cast<int64_t>(Fixed(std::fabs(value), 0).size()) + digits);
    double rounded = 0;
    if (num_kept > 0) {
      const std::string text = Scientific(std::fabs(value), num_kept - 1);
      std::from_chars(text.data(), text.data() + text.size(), rounded);
    } else if (num_kept == 0) {
      const double unit = std::pow(10.0, static_cast<double>(-digits));
      rounded = std::fabs(value) > unit / 2 ? unit : 0.0;
    }
    return std::copysign(rounded, value);
  }
  const std::string text = Fixed(value, static_cast<int32_t>(digits));
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

std::optional<Integer> RoundInteger(Integer value, int64_t digits) {
  if (digits >= 0) return value;
  const std::optional<Integer> unit = digits < -38 ? std::nullopt : PowerOfTen(-digits);
  if (!unit) return Integer{0};
  Integer rest = value % *unit;
  if (rest < 0) rest += *unit;
  Integer result = value - rest;
  const Integer half = *unit / 2;
  if (rest > half || (rest == half && (result / *unit) % 2 != 0)) {
    if (__builtin_add_overflow(result, *unit, &result)) return std::nullopt;
  }
  return result;
}

}  // namespace avocet::tokenizer::jinja
