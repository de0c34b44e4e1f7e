// Token ids of one stream to text, as they come: never a broken character. While the text ends in U+FFFD (an unfinished character,
// invalid bytes, or the character itself) it is held back, as the reference's DecodeStream does; but not more than kHeldBytesMax.
// One object per choice; owned by one io thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace avocet::tokenizer {

class TextDecoder {
 public:
  TextDecoder(std::shared_ptr<const Tokenizer> tokenizer, SpecialTokens special);

  // The text that became complete with this token; often one token's, empty while a character is unfinished.
  // The joined results of Push and one Flush equal Tokenizer::Decode of all ids.
  std::string Push(int32_t id);
  // At the end of the stream: what is still held back (unfinished bytes as U+FFFD).
  std::string Flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  SpecialTokens special_;
  std::string held_;  // raw bytes, at most kHeldBytesMax between calls
};

}  // namespace avocet::tokenizer
