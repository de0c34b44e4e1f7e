// Scalar conversions between f32 and the narrower formats. Widening is exact; narrowing rounds half to even.
// Source: IEEE 754-2019 binary16; bfloat16 is the upper half of binary32.
#pragma once

#include <bit>
#include <cstdint>

namespace avocet {

// A number stored as bfloat16 (sign, 8 exponent bits, 7 mantissa bits).
struct Bf16 {
  uint16_t bits = 0;
  friend bool operator==(Bf16, Bf16) = default;
};

constexpr float ToF32(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// NaN stays NaN (quiet); values above the largest bf16 round to infinity.
constexpr Bf16 ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  const uint32_t round = 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<uint16_t>((bits + round) >> 16)};
}

// A number stored as IEEE binary16.
struct F16 {
  uint16_t bits = 0;
};

constexpr float ToF32(F16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  // Subnormal: mantissa * 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

// A number stored as OCP FP8 E4M3: no infinity, one NaN of each sign (OCP 8-bit Floating Point Specification, 5.1).
struct F8E4M3 {
  uint8_t bits = 0;
};

constexpr float ToF32(F8E4M3 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80u) << 24;
  const uint32_t exponent = (value.bits >> 3) & 0xfu;
  const uint32_t mantissa = value.bits & 0x7u;
  if ((value.bits & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (mantissa << 20));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;  // subnormal
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace avocet
