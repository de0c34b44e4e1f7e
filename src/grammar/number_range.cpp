#include "grammar/number_range.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace avocet::grammar {
namespace {

constexpr int64_t kLargest = 999'999'999'999'999;  // 15 digits, exact as a double

Expr Digits(char first, char last, Builder& builder) {
  if (first > last) return builder.Choice({});
  return builder.Chars({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

Expr AnyDigits(size_t count, Builder& builder) {
  return builder.Repeat(Digits('0', '9', builder), static_cast<int32_t>(count), static_cast<int32_t>(count));
}

// The rest of numbers of one length, from digit i on: not below `low`, not above `high`.
Expr AtLeast(const std::string& low, size_t i, Builder& builder) {
  if (i == low.size()) return builder.Empty();
  return builder.Choice({builder.Sequence({builder.Bytes(low.substr(i, 1)), AtLeast(low, i + 1, builder)}),
                         builder.Sequence({Digits(static_cast<char>(low[i] + 1), '9', builder), AnyDigits(low.size() - i - 1, builder)})});
}

Expr AtMost(const std::string& high, size_t i, Builder& builder) {
  if (i == high.size()) return builder.Empty();
  return builder.Choice(
      {builder.Sequence({builder.Bytes(high.substr(i, 1)), AtMost(high, i + 1, builder)}),
       builder.Sequence({Digits('0', static_cast<char>(high[i] - 1), builder), AnyDigits(high.size() - i - 1, builder)})});
}

Expr SameLength(const std::string& low, const std::string& high, size_t i, Builder& builder) {
  if (i == low.size()) return builder.Empty();
  if (low[i] == high[i]) return builder.Sequence({builder.Bytes(low.substr(i, 1)), SameLength(low, high, i + 1, builder)});
  const Expr between = Digits(static_cast<char>(low[i] + 1), static_cast<char>(high[i] - 1), builder);
  return builder.Choice({builder.Sequence({builder.Bytes(low.substr(i, 1)), AtLeast(low, i + 1, builder)}),
                         builder.Sequence({between, AnyDigits(low.size() - i - 1, builder)}),
                         builder.Sequence({builder.Bytes(high.substr(i, 1)), AtMost(high, i + 1, builder)})});
}

// 0 <= low; nothing when high is below.
Expr Natural(int64_t low, int64_t high, Builder& builder) {
  std::vector<Expr> branches;
  for (int64_t begin = low; begin <= high;) {
    const std::string first = std::to_string(begin);
    const int64_t end = std::min<int64_t>(high, std::stoll(std::string(first.size(), '9')));
    branches.push_back(SameLength(first, std::to_string(end), 0, builder));
    begin = end + 1;
  }
  return builder.Choice(std::move(branches));
}

int64_t Clamp(double value) {
  return static_cast<int64_t>(std::clamp(value, -static_cast<double>(kLargest), static_cast<double>(kLargest)));
}

int64_t Lowest(const NumberBounds& bounds) {
  if (!bounds.min.has_value()) return -kLargest;
  const double low = std::ceil(*bounds.min);
  return Clamp(bounds.min_is_open && low == *bounds.min ? low + 1 : low);
}

int64_t Highest(const NumberBounds& bounds) {
  if (!bounds.max.has_value()) return kLargest;
  const double high = std::floor(*bounds.max);
  return Clamp(bounds.max_is_open && high == *bounds.max ? high - 1 : high);
}

}  // namespace

Expr IntegerWithin(const NumberBounds& bounds, Builder& builder) {
  const int64_t low = Lowest(bounds);
  const int64_t high = Highest(bounds);
  std::vector<Expr> branches;
  if (high >= 0) branches.push_back(Natural(std::max<int64_t>(low, 0), high, builder));
  if (low < 0) branches.push_back(builder.Sequence({builder.Bytes("-"), Natural(std::max<int64_t>(-high, 1), -low, builder)}));
  return builder.Choice(std::move(branches));
}

Expr NumberWithin(const NumberBounds& bounds, Builder& builder) {
  // n.fraction lies strictly above n and below n + 1 once its last digit is not 0.
  const Expr fraction = builder.Sequence({builder.Bytes("."), builder.Repeat(Digits('0', '9', builder), 0, 14), Digits('1', '9', builder)});
  std::vector<Expr> branches{IntegerWithin(bounds, builder)};
  const double min = bounds.min.value_or(-static_cast<double>(kLargest));
  const double max = bounds.max.value_or(static_cast<double>(kLargest));
  const int64_t above = Clamp(std::max(std::ceil(min), 0.0));
  const int64_t below = Clamp(std::floor(max) - 1);
  if (below >= above) branches.push_back(builder.Sequence({Natural(above, below, builder), fraction}));
  const int64_t above_negative = Clamp(std::max(std::ceil(-max), 0.0));
  const int64_t below_negative = Clamp(std::floor(-min) - 1);
  if (below_negative >= above_negative) {
    branches.push_back(builder.Sequence({builder.Bytes("-"), Natural(above_negative, below_negative, builder), fraction}));
  }
  return builder.Choice(std::move(branches));
}

}  // namespace avocet::grammar
