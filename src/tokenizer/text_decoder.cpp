#include "tokenizer/text_decoder.h"

#include <utility>

#include "base/limits.h"
#include "tokenizer/utf8.h"

namespace avocet::tokenizer {

namespace {

// How many bytes at the end are the beginning of a character.
size_t UnfinishedBytes(std::string_view bytes) {
  for (size_t num = 1; num <= 3 && num <= bytes.size(); ++num) {
    const std::string_view tail = bytes.substr(bytes.size() - num);
    const bool is_lead = (static_cast<unsigned char>(tail.front()) & 0xC0u) == 0xC0u;
    if (is_lead) return FirstUnit(tail).kind == Utf8Kind::kUnfinished ? num : 0;
  }
  return 0;
}

}  // namespace

TextDecoder::TextDecoder(std::shared_ptr<const Tokenizer> tokenizer, SpecialTokens special)
    : tokenizer_(std::move(tokenizer)), special_(special) {}

std::string TextDecoder::Push(int32_t id) {
  if (special_ == SpecialTokens::kSkip && tokenizer_->IsSpecial(id)) return {};
  held_ += tokenizer_->TokenBytes(id);
  if (held_.empty()) return {};
  std::string text = ValidPrefixBytes(held_) == held_.size() ? held_ : ReplaceInvalid(held_);
  if (!text.ends_with(kReplacement)) {
    held_.clear();
    return text;
  }
  if (held_.size() <= limits::kHeldBytesMax) return {};
  // Nothing valid for long: let go of what further bytes cannot change.
  const size_t num_unfinished = UnfinishedBytes(held_);
  text = ReplaceInvalid(std::string_view(held_).substr(0, held_.size() - num_unfinished));
  held_.erase(0, held_.size() - num_unfinished);
  return text;
}

std::string TextDecoder::Flush() {
  return ReplaceInvalid(std::exchange(held_, {}));
}

}  // namespace avocet::tokenizer
