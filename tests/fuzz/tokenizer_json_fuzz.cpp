// Any bytes as tokenizer.json and tokenizer_config.json (cut at the first record separator, 0x1E): refused in one line, or a tokenizer that
// encodes and decodes without harm.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace avocet::tokenizer;
  const std::string_view bytes(reinterpret_cast<const char*>(data), num_bytes);
  const size_t cut = std::min(bytes.find('\x1e'), bytes.size());
  const auto tokenizer = Tokenizer::Parse(bytes.substr(0, cut), bytes.substr(std::min(cut + 1, bytes.size())));
  if (!tokenizer) {
    CHECK(!tokenizer.error().message.empty(), "a refusal without a reason");
    CHECK(tokenizer.error().message.find('\n') == std::string::npos, "a refusal of several lines");
    return 0;
  }
  const auto ids = (*tokenizer)->Encode("It's 12 <s>  \u4e2d\u6587 e\u0301\n\n");
  const std::string text = (*tokenizer)->Decode(ids, SpecialTokens::kKeep);
  CHECK(ValidPrefixBytes(text) == text.size(), "invalid text");
  for (const int32_t id : ids) CHECK((*tokenizer)->HasToken(id), "id {} has no token", id);
  return 0;
}
