// tokenizer.json as it is written: vocabulary and merges streamed into flat arrays (they are nearly all of its 13 MB), the rest as a
// JSON value. Only the JSON is checked here; tokenizer_spec.h says what it means. The file is hostile until checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace avocet::tokenizer {

struct TokenizerFile {
  struct Entry {
    uint32_t offset = 0;  // into text
    uint32_t num_bytes = 0;
    int32_t id = 0;
  };
  struct Pair {
    uint32_t offset = 0;  // into text: left, then right
    uint32_t left_bytes = 0;
    uint32_t right_bytes = 0;
  };

  std::vector<Entry> vocab;  // in the order of the file
  std::vector<Pair> merges;
  std::string text;
  nlohmann::json rest;  // without model.vocab and model.merges

  std::string_view EntryText(const Entry& entry) const { return std::string_view(text).substr(entry.offset, entry.num_bytes); }
  std::string_view LeftText(const Pair& pair) const { return std::string_view(text).substr(pair.offset, pair.left_bytes); }
  std::string_view RightText(const Pair& pair) const {
    return std::string_view(text).substr(size_t{pair.offset} + pair.left_bytes, pair.right_bytes);
  }
};

Result<TokenizerFile> ReadTokenizerFile(std::string_view json);

}  // namespace avocet::tokenizer
