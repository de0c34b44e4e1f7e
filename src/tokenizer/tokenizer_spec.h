// What tokenizer.json and tokenizer_config.json ask for, in our terms. Everything that would change ids or text and is not offered is
// refused by its name in the file, never ignored.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"

namespace avocet::tokenizer {

enum class Normalizer { kNone, kNfc };

struct TokenizerSpec {
  Normalizer normalizer = Normalizer::kNone;
  std::string split_pattern;
  WholePieces whole_pieces = WholePieces::kMergeAnyway;
  std::vector<AddedToken> added;  // ids and contents are each unique
};

// rest: tokenizer.json without vocabulary and merges (tokenizer_file.h).
Result<TokenizerSpec> ReadSpec(const nlohmann::json& rest);

struct TokenizerConfig {
  std::vector<AddedToken> added;                // added_tokens_decoder: its flags win over tokenizer.json's, as in transformers
  std::vector<std::string> named_specials;      // contents that special-token fields name
  std::string eos_token, pad_token, bos_token;  // empty = unset
  std::optional<std::string> chat_template;
};

// json: the bytes of tokenizer_config.json.
Result<TokenizerConfig> ReadTokenizerConfig(std::string_view json);

}  // namespace avocet::tokenizer
