#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"
#include "base/limits.h"
#include "base/printable.h"
#include "tokenizer/byte_letters.h"

namespace avocet::tokenizer {

namespace {

uint32_t Hash(std::string_view bytes) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(bytes));
}

}  // namespace

Vocabulary::Vocabulary(int32_t num_ids, size_t num_pairs, size_t num_bytes)
    : tokens_(static_cast<size_t>(num_ids)), slots_(std::bit_ceil(2 * num_pairs + 2)) {
  bytes_.reserve(num_bytes);
}

Result<void> Vocabulary::AddPairToken(int32_t id, std::string_view letters) {
  CHECK(id >= 0 && id < num_ids(), "token id {} of {}", id, num_ids());
  if (letters.empty() || letters.size() > limits::kTokenBytesMax) {
    return Fail(Errc::kCorrupt, "token {} has {} bytes, 1 to {} are read", id, letters.size(), limits::kTokenBytesMax);
  }
  if (Has(id)) return Fail(Errc::kCorrupt, "token id {} appears twice, as {} and {}", id, Printable(Written(id)), Printable(letters));
  const std::optional<std::string> bytes = LettersToBytes(letters);
  if (!bytes) {
    Store(id, letters, kPresent);
    return {};
  }
  const uint32_t hash = Hash(*bytes);
  Slot& slot = slots_[SlotOf(*bytes, hash)];
  if (slot.id >= 0) return Fail(Errc::kCorrupt, "token {} appears twice, as ids {} and {}", Printable(letters), slot.id, id);
  slot = {hash, id};
  Store(id, *bytes, kPresent | kInLetters);
  return {};
}

Result<void> Vocabulary::AddAddedToken(const AddedToken& token) {
  CHECK(token.id >= 0 && token.id < num_ids(), "token id {} of {}", token.id, num_ids());
  CHECK(!token.content.empty() && token.content.size() <= limits::kAddedTokenBytesMax, "added token of {} bytes", token.content.size());
  if (!Has(token.id)) {
    Store(token.id, token.content, kPresent);
  } else if (Bytes(token.id) != token.content && Written(token.id) != token.content) {
    return Fail(Errc::kCorrupt, "added token {} has id {}, which is {} elsewhere", Printable(token.content), token.id,
                Printable(Written(token.id)));
  }
  uint8_t& flags = tokens_[static_cast<size_t>(token.id)].flags;
  flags = static_cast<uint8_t>(flags | kAdded | (token.is_special ? unsigned{kSpecial} : 0u));
  return {};
}

void Vocabulary::Store(int32_t id, std::string_view bytes, unsigned flags) {
  tokens_[static_cast<size_t>(id)] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint16_t>(bytes.size()),
                                      static_cast<uint8_t>(flags)};
  bytes_.append(bytes);
  max_token_bytes_ = std::max(max_token_bytes_, static_cast<int32_t>(bytes.size()));
}

size_t Vocabulary::SlotOf(std::string_view bytes, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].id >= 0 && (slots_[at].hash != hash || Bytes(slots_[at].id) != bytes)) at = (at + 1) & mask;
  return at;
}

std::optional<int32_t> Vocabulary::Find(std::string_view bytes) const {
  const Slot& slot = slots_[SlotOf(bytes, Hash(bytes))];
  if (slot.id < 0) return std::nullopt;
  return slot.id;
}

std::optional<int32_t> Vocabulary::FindWritten(std::string_view letters) const {
  const std::optional<std::string> bytes = LettersToBytes(letters);
  return bytes ? Find(*bytes) : std::nullopt;
}

std::string_view Vocabulary::Bytes(int32_t id) const {
  if (!Has(id)) return {};
  const Token& token = tokens_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(token.offset, token.num_bytes);
}

std::string Vocabulary::Written(int32_t id) const {
  return HasFlag(id, kInLetters) ? BytesToLetters(Bytes(id)) : std::string(Bytes(id));
}

}  // namespace avocet::tokenizer
