// Text to token ids and back: byte-level BPE as tokenizer.json describes it (NFC, the file's split pattern, added tokens).
// Immutable after Load; any thread may use it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace avocet::tokenizer {

// Whether added tokens written out in the text become their ids.
enum class AddedTokens { kMatch, kPlainText };
// Whether special tokens appear in decoded text.
enum class SpecialTokens { kKeep, kSkip };

class Tokenizer {
 public:
  // Reads tokenizer.json and, if present, tokenizer_config.json (more added tokens) from a model folder.
  static Result<std::shared_ptr<const Tokenizer>> Load(const std::string& model_dir);
  // The same from the bytes of the two files; tokenizer_config_json is empty if there is none.
  static Result<std::shared_ptr<const Tokenizer>> Parse(std::string_view tokenizer_json, std::string_view tokenizer_config_json);
  ~Tokenizer();

  // Linear in the text. Invalid UTF-8 becomes U+FFFD first. At most limits::kEncodeBytesMax bytes.
  std::vector<int32_t> Encode(std::string_view text, AddedTokens added = AddedTokens::kMatch) const;
  // Valid UTF-8; bytes that do not form a character become U+FFFD. Ids without a token are skipped.
  std::string Decode(std::span<const int32_t> ids, SpecialTokens special) const;

  // One more than the largest id that has a token; the model may have more rows (padding), which are never sampled.
  int32_t vocab_size() const;
  // The raw bytes of one token (may be part of a character); empty if the id has no token. Any id may be asked for, here and below.
  std::string_view TokenBytes(int32_t id) const;
  // The token as written in tokenizer.json (byte-level letters), for /tokenize with return_token_strs.
  std::string TokenString(int32_t id) const;
  bool HasToken(int32_t id) const;
  bool IsAdded(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  std::optional<int32_t> FindAdded(std::string_view content) const;
  // Length in bytes of the longest token: bounds how many tokens a text can have at least.
  int32_t max_token_bytes() const;
  // eos_token / pad_token / bos_token of tokenizer_config.json; empty if unset. A name need not be a token: see FindAdded.
  const std::string& eos_token() const;
  const std::string& pad_token() const;
  const std::string& bos_token() const;
  // chat_template of tokenizer_config.json (a string, or the one named "default" of a list), if there; chat_template.jinja is read by
  // the caller and wins.
  const std::optional<std::string>& config_chat_template() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace avocet::tokenizer
