#include "base/bf16.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"

namespace avocet {
namespace {

TEST(Bf16, EveryPattern_WidenedAndNarrowed_IsItself) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bf16 value{static_cast<uint16_t>(bits)};
    const float wide = ToF32(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(ToF32(ToBf16(wide)))) << bits;
    } else {
      EXPECT_EQ(ToBf16(wide).bits, bits);
    }
  }
}

// Halfway between two neighbours goes to the even one; a hair above or below goes to the nearer one.
TEST(Bf16, EveryHalfway_RoundsToEven) {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const uint32_t half = (bits << 16) | 0x8000u;
    EXPECT_EQ(ToBf16(std::bit_cast<float>(half)).bits, bits + (bits & 1u));
    EXPECT_EQ(ToBf16(std::bit_cast<float>(half - 1)).bits, bits);
    EXPECT_EQ(ToBf16(std::bit_cast<float>(half + 1)).bits, bits + 1);
  }
}

TEST(Bf16, AboveTheLargest_BecomesInfinity) {
  EXPECT_EQ(ToF32(ToBf16(std::numeric_limits<float>::max())), INFINITY);
  EXPECT_EQ(ToF32(ToBf16(-std::numeric_limits<float>::max())), -INFINITY);
}

TEST(F16, EveryPattern_HasItsValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int sign = (bits & 0x8000u) != 0 ? -1 : 1;
    const auto exponent = static_cast<int>((bits >> 10) & 0x1fu);
    const auto mantissa = static_cast<double>(bits & 0x3ffu);
    const float got = ToF32(F16{static_cast<uint16_t>(bits)});
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(got), mantissa != 0) << bits;
      if (mantissa == 0) {
        EXPECT_EQ(got, static_cast<float>(sign) * INFINITY);
      }
    } else {
      const double want = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      EXPECT_EQ(static_cast<double>(got), sign * want) << bits;
    }
  }
}

Result<int> Half(int value) {
  if (value % 2 != 0) return FailParam("value", "{} is odd", value);
  return value / 2;
}

Result<int> Quarter(int value) {
  AVOCET_TRY(const int half, Half(value));
  return Half(half);
}

TEST(Result, Try_ReturnsTheErrorOfTheInnerCall) {
  EXPECT_EQ(Quarter(12).value(), 3);
  EXPECT_EQ(Quarter(6).error().message, "3 is odd");
  EXPECT_EQ(Quarter(6).error().param, "value");
}

}  // namespace
}  // namespace avocet
