// Python's three ways to fill in texts: "..." % values, "...".format(...), and the little language of format specifications.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/jinja/native.h"
#include "tokenizer/jinja/value.h"

namespace avocet::tokenizer::jinja {

// form % values; values is a tuple, a mapping or one value. The result is markup if the form is, and then what it is filled with is
// escaped.
Result<Value> PercentFormat(const Value& form, const Value& values, Budget& budget);

// form.format(arguments). Attributes and items of the arguments are reached within the sandbox.
Result<Value> BraceFormat(Evaluator& evaluator, const Value& form, const Arguments& arguments);
// form.format_map(mapping)
Result<Value> BraceFormatMap(Evaluator& evaluator, const Value& form, const Value& mapping);

// format(value, specification)
Result<std::string> FormatValue(const Value& value, std::string_view specification, Budget& budget);

// How a text stands in a wider field.
enum class Align : uint8_t { kLeft, kRight, kCenter };
// text widened to width code points; longer ones stay.
Result<std::string> Pad(std::string_view text, int64_t width, uint32_t fill, Align align, Budget& budget);
// As str.center does, which puts an odd blank elsewhere than format does.
Result<std::string> Center(std::string_view text, int64_t width, uint32_t fill, Budget& budget);

// A number taken apart, so that zeros and separators can go in between.
struct NumberText {
  std::string sign;    // "", "-", "+" or " "
  std::string prefix;  // "", "0x" ...
  std::string digits;  // with a fraction and an exponent, where there are
};
// The integer's digits in the base 2, 8, 10 or 16.
std::string Digits(Integer value, int base);

}  // namespace avocet::tokenizer::jinja
