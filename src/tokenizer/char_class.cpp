#include "tokenizer/char_class.h"

#include <algorithm>

#include <unicode/uchar.h>

namespace avocet::tokenizer {

namespace {

constexpr uint32_t kNumCodePoints = 0x110000;
constexpr uint32_t kBlock = 256;

struct FillContext {
  std::vector<CharClass>* classes;
  Marks marks;
};

// ICU calls this for each range [begin, end) of one general category.
UBool FillRange(const void* context, UChar32 begin, UChar32 end, UCharCategory category) {
  const auto& fill = *static_cast<const FillContext*>(context);
  const uint32_t mask = U_MASK(category);
  CharClass value = CharClass::kSymbol;
  if ((mask & U_GC_L_MASK) != 0 || (fill.marks == Marks::kAreLetters && (mask & U_GC_M_MASK) != 0)) value = CharClass::kLetter;
  if ((mask & U_GC_N_MASK) != 0) value = CharClass::kNumber;
  std::fill(fill.classes->begin() + begin, fill.classes->begin() + end, value);
  return true;
}

}  // namespace

CharClassTable::CharClassTable(Marks marks) {
  std::vector<CharClass> classes(kNumCodePoints, CharClass::kSymbol);
  const FillContext context{&classes, marks};
  u_enumCharTypes(FillRange, &context);
  // White_Space ends at U+3000.
  for (UChar32 c = 0; c <= 0x3000; ++c) {
    if (u_isUWhiteSpace(c) != 0) classes[static_cast<size_t>(c)] = CharClass::kSpace;
  }
  classes['\r'] = CharClass::kNewline;
  classes['\n'] = CharClass::kNewline;

  for (uint32_t first = 0; first < kNumCodePoints; first += kBlock) {
    Block block;
    std::copy_n(classes.begin() + first, kBlock, block.begin());
    const auto same = std::ranges::find(blocks_, block);
    block_of_[first / kBlock] = static_cast<uint16_t>(same - blocks_.begin());
    if (same == blocks_.end()) blocks_.push_back(block);
  }
}

}  // namespace avocet::tokenizer
