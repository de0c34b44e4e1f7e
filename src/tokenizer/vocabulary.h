// The tokens by id and the byte-pair entries by bytes. Filled while a tokenizer loads, then immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/added_tokens.h"

namespace avocet::tokenizer {

class Vocabulary {
 public:
  // For ids below num_ids, num_pairs entries of the byte-pair vocabulary and about num_bytes bytes of text.
  Vocabulary(int32_t num_ids, size_t num_pairs, size_t num_bytes);

  // An entry of the byte-pair vocabulary, written in byte-level letters. An entry with another character cannot come from merging: it
  // stands for its own text and Find does not know it.
  Result<void> AddPairToken(int32_t id, std::string_view letters);
  // An added token, which may share id and text with a byte-pair entry.
  Result<void> AddAddedToken(const AddedToken& token);

  // The entry of the byte-pair vocabulary with these bytes.
  std::optional<int32_t> Find(std::string_view bytes) const;
  // The same, written in byte-level letters.
  std::optional<int32_t> FindWritten(std::string_view letters) const;

  int32_t num_ids() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t max_token_bytes() const { return max_token_bytes_; }
  // Below: any id; one without a token has no bytes and no properties.
  std::string_view Bytes(int32_t id) const;
  std::string Written(int32_t id) const;
  bool Has(int32_t id) const { return HasFlag(id, kPresent); }
  bool IsAdded(int32_t id) const { return HasFlag(id, kAdded); }
  bool IsSpecial(int32_t id) const { return HasFlag(id, kSpecial); }

 private:
  enum Flag : uint8_t { kPresent = 1, kAdded = 2, kSpecial = 4, kInLetters = 8 };
  struct Token {
    uint32_t offset = 0;  // into bytes_
    uint16_t num_bytes = 0;
    uint8_t flags = 0;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;  // -1: free
  };

  bool HasFlag(int32_t id, Flag flag) const { return id >= 0 && id < num_ids() && (tokens_[static_cast<size_t>(id)].flags & flag) != 0; }
  void Store(int32_t id, std::string_view bytes, unsigned flags);
  // The slot of these bytes, or the free one where they belong.
  size_t SlotOf(std::string_view bytes, uint32_t hash) const;

  std::vector<Token> tokens_;  // by id
  std::string bytes_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  int32_t max_token_bytes_ = 0;
};

}  // namespace avocet::tokenizer
