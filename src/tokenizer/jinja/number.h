// Numbers as Python computes and writes them. Integers have 128 bits: enough for every number a template is likely to meet; what goes
// beyond is an error, where Python has no bound. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace avocet::tokenizer::jinja {

__extension__ typedef __int128 Integer;

enum class BinaryOp : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
std::string_view Symbol(BinaryOp op);

// kDivide of integers, and kPower with a negative exponent, give floats and are not done here.
Result<Integer> IntegerOperation(BinaryOp op, Integer a, Integer b);
Result<double> FloatOperation(BinaryOp op, double a, double b);

// a < b: -1, equal: 0, a > b: 1; a NaN compares with nothing: 2. Exact, also where the integer has no double of its own.
int Compare(Integer a, double b);

std::string ToString(Integer value);
// int(text, base): white space around, a sign, a prefix that fits the base, single underscores between digits. base 0: by the prefix.
std::optional<Integer> ParseInteger(std::string_view text, int base);
// float(text): also inf and nan.
std::optional<double> ParseFloat(std::string_view text);
// int(value), towards zero; nothing for what has no integer of 128 bits.
std::optional<Integer> Truncate(double value);

// repr(value): the shortest digits that read back equal.
std::string FloatRepr(double value);
// How the letters e, f, g and % of Python's formats write the absolute value; upper case letters give upper case results.
struct FloatStyle {
  char type = 'g';
  int32_t precision = 6;         // at most kFloatPrecisionMax
  bool keeps_point = false;      // the # flag: a decimal point in any case, and the trailing zeros of g
  bool adds_point_zero = false;  // str.format without a letter: at least one decimal
};
inline constexpr int32_t kFloatPrecisionMax = 4096;
std::string FormatFloat(double value, const FloatStyle& style);
// round(value, digits): correctly rounded decimals, ties to even.
double RoundFloat(double value, int64_t digits);
std::optional<Integer> RoundInteger(Integer value, int64_t digits);

}  // namespace avocet::tokenizer::jinja
