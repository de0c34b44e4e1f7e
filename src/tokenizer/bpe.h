// Byte-pair merging: the pair with the lowest rank is merged first, the leftmost of equals, until no pair has a rank.
// Exact and linear in the text: a long piece is merged window by window, and the windows are joined where the result provably equals
// that of merging the whole piece. Bpe is immutable after Create; a PieceEncoder belongs to one call of one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/vocabulary.h"

namespace avocet::tokenizer {

// In the order of the file: the rank is the index.
struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

// Whether a piece that is itself a token skips merging (tokenizer.json's ignore_merges).
enum class WholePieces { kMergeAnyway, kLookUpFirst };

class Bpe {
 public:
  // Every byte must be a token. A pair that is listed twice has its later rank, as in the reference.
  static Result<Bpe> Create(std::shared_ptr<const Vocabulary> vocabulary, std::span<const Merge> merges, WholePieces whole_pieces);

 private:
  friend class PieceEncoder;

  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Slot {
    uint64_t pair = kFreeSlot;  // left id above, right id below
    uint32_t rank = kNoRank;
  };
  static constexpr uint64_t kFreeSlot = UINT64_MAX;

  Bpe() = default;
  static uint64_t PairKey(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }
  size_t SlotIndex(uint64_t pair) const {
    size_t at = static_cast<size_t>((pair * 0x9E3779B97F4A7C15u) >> shift_);
    while (slots_[at].pair != pair && slots_[at].pair != kFreeSlot) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  // The rank of the pair; kNoRank if it does not merge.
  uint32_t Rank(int32_t left, int32_t right) const { return slots_[SlotIndex(PairKey(left, right))].rank; }
  uint32_t BytePairRank(unsigned char left, unsigned char right) const { return byte_pair_ranks_[static_cast<size_t>(left) * 256 + right]; }

  std::shared_ptr<const Vocabulary> vocabulary_;
  WholePieces whole_pieces_ = WholePieces::kMergeAnyway;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<uint32_t> byte_pair_ranks_;  // [256 * 256]: most lookups are for these
  std::vector<int32_t> merged_by_rank_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  int shift_ = 0;
};

// Turns the pieces of one text into ids and remembers recent short pieces: natural text repeats its words.
class PieceEncoder {
 public:
  // text_bytes: of the whole text, for the size of the memory.
  PieceEncoder(const Bpe& bpe, size_t text_bytes);

  void AppendPiece(std::string_view piece);
  void AppendId(int32_t id) { ids_.push_back(id); }
  std::vector<int32_t> Take() { return std::move(ids_); }

 private:
  static constexpr size_t kCachedBytesMax = 16;
  static constexpr size_t kCachedIdsMax = 6;
  struct Cached {
    std::array<uint64_t, 2> bytes{};  // all of them; how they are laid out depends on their number
    uint8_t num_bytes = 0;            // 0: free
    uint8_t num_ids = 0;
    std::array<int32_t, kCachedIdsMax> ids{};
  };

  static Cached KeyOf(std::string_view piece);
  void Encode(std::string_view piece);
  void EncodeShort(std::string_view piece);
  void EncodeMedium(std::string_view piece);
  void EncodeLong(std::string_view piece, size_t window_bytes);
  bool JoinsUnchanged(int32_t left, int32_t right);

  const Bpe& bpe_;
  std::vector<int32_t> ids_;
  std::vector<Cached> cache_;  // direct-mapped, a power of two
  // Scratch of EncodeMedium: a list of symbols in text order.
  struct Symbol {
    int32_t id;
    uint32_t rank;  // of the pair that it forms with the next symbol; kNoRank: none, or the symbol has been merged away
    uint32_t previous;
    uint32_t next;
  };
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> queue_;  // heap of rank << 32 | index of the left symbol
};

}  // namespace avocet::tokenizer
