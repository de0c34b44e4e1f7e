#include "cli/human_number.h"

#include <array>
#include <limits>

#include "base/printable.h"

namespace avocet::cli {
namespace {

struct Suffix {
  char letter;
  int64_t factor;
};
constexpr std::array<Suffix, 4> kDecimal = {{{'k', 1'000}, {'m', 1'000'000}, {'g', 1'000'000'000}, {'t', 1'000'000'000'000}}};
constexpr std::array<Suffix, 4> kBinary = {
    {{'K', int64_t{1} << 10}, {'M', int64_t{1} << 20}, {'G', int64_t{1} << 30}, {'T', int64_t{1} << 40}}};

int64_t FactorOf(char letter, const std::array<Suffix, 4>& suffixes) {
  for (const Suffix& suffix : suffixes) {
    if (suffix.letter == letter) return suffix.factor;
  }
  return 0;
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Digits to a number times `factor`; false on overflow or a character that is no digit. An empty text is no number.
bool AppendDigits(std::string_view digits, int64_t factor, int64_t* out) {
  if (digits.empty()) return false;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return false;
    if (value > (kMax - (c - '0')) / 10) return false;
    value = value * 10 + (c - '0');
  }
  if (value > kMax / factor) return false;
  *out = value * factor;
  return true;
}

// The fraction's share of `factor`, cut to a whole number: "6" of 1000 is 600. factor is a power of ten.
bool FractionOf(std::string_view digits, int64_t factor, int64_t* out) {
  if (digits.empty()) return false;
  int64_t value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return false;
    factor /= 10;
    value += factor * (c - '0');
  }
  *out = value;
  return true;
}

}  // namespace

Result<int64_t> ParseHumanInt(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  const auto malformed = [text] {
    return Fail(Errc::kInvalidArgument,
                "'{}' is no integer; write 4096, or 4k (4000), 25.6k (25600), 4K (4096), with k m g t decimal and K M G T binary",
                Printable(text));
  };
  if (trimmed.empty()) return malformed();
  const bool is_negative = trimmed.front() == '-';
  std::string_view digits = is_negative || trimmed.front() == '+' ? trimmed.substr(1) : trimmed;
  if (digits.empty()) return malformed();

  const int64_t decimal = FactorOf(digits.back(), kDecimal);
  const int64_t binary = FactorOf(digits.back(), kBinary);
  if (decimal != 0 || binary != 0) digits.remove_suffix(1);
  const size_t point = digits.find('.');
  int64_t whole = 0;
  int64_t fraction = 0;
  if (point != std::string_view::npos) {
    if (binary != 0) {
      return Fail(Errc::kInvalidArgument, "'{}' has a fraction with a binary suffix; did you mean {}{}", Printable(text), digits,
                  static_cast<char>(trimmed.back() - 'A' + 'a'));
    }
    if (decimal == 0 || !FractionOf(digits.substr(point + 1), decimal, &fraction)) return malformed();
    digits = digits.substr(0, point);
  }
  const int64_t factor = decimal != 0 ? decimal : (binary != 0 ? binary : 1);
  if (!AppendDigits(digits, factor, &whole)) return malformed();
  if (whole > std::numeric_limits<int64_t>::max() - fraction) return malformed();
  return is_negative ? -(whole + fraction) : whole + fraction;
}

double Gib(size_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(size_t{1} << 30);
}

std::string FormatBytes(size_t bytes) {
  if (bytes >= size_t{1} << 30) return fmt::format("{:.2f} GiB", Gib(bytes));
  if (bytes >= size_t{1} << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / static_cast<double>(size_t{1} << 20));
  if (bytes >= size_t{1} << 10) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024.0);
  return fmt::format("{} B", bytes);
}

std::string FormatCount(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const size_t first = digits.front() == '-' ? 1 : 0;
  for (size_t place = digits.size(); place > first + 3;) {
    place -= 3;
    digits.insert(place, ",");
  }
  return digits;
}

}  // namespace avocet::cli
