// Methods of strings that change or ask about letters.
#include <algorithm>
#include <array>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

template <std::string (*kMap)(std::string_view)>
Result<Value> Mapped(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size() * kCaseGrowthMax));
  std::string text = kMap(self.text());
  return self.string().is_markup ? Value::Markup(std::move(text)) : Value::String(std::move(text));
}

template <bool (*kHolds)(std::string_view)>
Result<Value> Holds(Evaluator& evaluator, const Value& self, const Bound&) {
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  return Value::Bool(kHolds(self.text()));
}

// Whether there are characters and all have the property.
template <bool (*kHas)(uint32_t)>
bool All(std::string_view text) {
  if (text.empty()) return false;
  for (size_t at = 0; at < text.size();) {
    if (!kHas(NextCodePoint(text, at))) return false;
  }
  return true;
}

bool AllAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool AllPrintable(std::string_view text) {
  return text.empty() || All<IsPrintable>(text);
}

constexpr std::array<NativeFunction, 18> kMethods = {{
    {"capitalize", {}, 0, Mapped<Capitalize>},
    {"casefold", {}, 0, Mapped<CaseFold>},
    {"isalnum", {}, 0, Holds<All<IsAlnum>>},
    {"isalpha", {}, 0, Holds<All<IsAlpha>>},
    {"isascii", {}, 0, Holds<AllAscii>},
    {"isdecimal", {}, 0, Holds<All<IsDecimal>>},
    {"isdigit", {}, 0, Holds<All<IsDigit>>},
    {"isidentifier", {}, 0, Holds<IsIdentifier>},
    {"islower", {}, 0, Holds<IsLower>},
    {"isnumeric", {}, 0, Holds<All<IsNumeric>>},
    {"isprintable", {}, 0, Holds<AllPrintable>},
    {"isspace", {}, 0, Holds<All<IsSpace>>},
    {"istitle", {}, 0, Holds<IsTitle>},
    {"isupper", {}, 0, Holds<IsUpper>},
    {"lower", {}, 0, Mapped<Lower>},
    {"swapcase", {}, 0, Mapped<SwapCase>},
    {"title", {}, 0, Mapped<Title>},
    {"upper", {}, 0, Mapped<Upper>},
}};
static_assert(std::ranges::is_sorted(kMethods, {}, &NativeFunction::name));

}  // namespace

std::span<const NativeFunction> CaseMethods() {
  return kMethods;
}

}  // namespace avocet::tokenizer::jinja
