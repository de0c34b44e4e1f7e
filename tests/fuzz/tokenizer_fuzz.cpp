// Any bytes through a small byte-level tokenizer: encoding and decoding give back the normal form of the repaired text, a stream of the
// same ids joins to the same text, and added tokens in the text change nothing of that.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/nfc.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace avocet::tokenizer {
namespace {

std::shared_ptr<const Tokenizer> MakeTokenizer() {
  nlohmann::json vocab;
  nlohmann::json merges = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(static_cast<unsigned char>(byte));
    vocab[BytesToLetters({&value, 1})] = byte;
  }
  const auto merge = [&](std::string_view left, std::string_view right) {
    vocab[BytesToLetters(left) + BytesToLetters(right)] = static_cast<int>(vocab.size());
    merges.push_back({BytesToLetters(left), BytesToLetters(right)});
  };
  for (std::string run = "a"; run.size() < 32; run += run) merge(run, run);
  merge("t", "h");
  merge("th", "e");
  merge(" ", "the");
  merge("\xE4", "\xB8");  // two thirds of an ideograph
  merge("!", "\xCC");     // a sign and half a mark
  const nlohmann::json json{
      {"added_tokens", {{{"id", 400}, {"content", "<s>"}, {"special", true}}, {{"id", 401}, {"content", "<sx>"}, {"lstrip", false}}}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", std::string(kQwen35Pattern)}}}, {"behavior", "Isolated"}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
  auto tokenizer = Tokenizer::Parse(json.dump(), "");
  CHECK(tokenizer, "{}", tokenizer.error().message);
  return *tokenizer;
}

void CheckStream(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<int32_t>& ids, SpecialTokens special) {
  TextDecoder decoder(tokenizer, special);
  std::string joined;
  for (const int32_t id : ids) {
    const std::string text = decoder.Push(id);
    CHECK(ValidPrefixBytes(text) == text.size(), "a broken character in {} bytes", text.size());
    joined += text;
  }
  joined += decoder.Flush();
  CHECK(joined == tokenizer->Decode(ids, special), "the stream differs from the whole");
}

}  // namespace
}  // namespace avocet::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace avocet::tokenizer;
  static const std::shared_ptr<const Tokenizer> kTokenizer = MakeTokenizer();
  static const NfcNormalizer kNfc;
  const std::string_view text(reinterpret_cast<const char*>(data), num_bytes);

  const std::string repaired = ReplaceInvalid(text);
  const std::string normal = kNfc.Normalize(repaired).value_or(repaired);
  const std::vector<int32_t> plain_ids = kTokenizer->Encode(text, AddedTokens::kPlainText);
  CHECK(kTokenizer->Decode(plain_ids, SpecialTokens::kKeep) == normal, "plain text of {} bytes does not come back", num_bytes);
  // Around an added token the pieces are normalized one by one, so only already normal text must come back as it was.
  const std::vector<int32_t> ids = kTokenizer->Encode(normal);
  const std::string decoded = kTokenizer->Decode(ids, SpecialTokens::kKeep);
  CHECK(kNfc.Normalize(decoded).value_or(decoded) == normal, "text with added tokens of {} bytes does not come back", num_bytes);
  CheckStream(kTokenizer, ids, SpecialTokens::kKeep);
  CheckStream(kTokenizer, ids, SpecialTokens::kSkip);
  // The bytes as ids: mostly invalid text.
  const std::vector<int32_t> byte_ids(data, data + num_bytes);
  CheckStream(kTokenizer, byte_ids, SpecialTokens::kKeep);
  return 0;
}
