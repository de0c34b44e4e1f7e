#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include "base/check.h"

namespace avocet::tokenizer {

namespace {

// Up to here a plain scan for the lowest rank beats the heap (tokenizer_bench).
constexpr size_t kShortPieceBytes = 64;
// A window of a long piece: many tokens, and small enough that symbols and heap (24 bytes per byte) stay in a first-level cache of
// 32 KiB: one letter repeated is encoded 3 to 4 times as fast as with 8192 (tokenizer_bench, EPYC with 2 cores).
constexpr size_t kWindowBytesMin = 1024;
constexpr size_t kWindowTokens = 8;  // at least so many of the longest tokens fit into a window
// A cut that does not join is moved back by a token so often; then the whole piece is merged at once. No text is known to need it.
constexpr int32_t kCutRetriesMax = 3;

constexpr size_t kCacheEntriesMin = 64;
constexpr size_t kCacheEntriesMax = 16384;
constexpr size_t kTextBytesPerCacheEntry = 16;

uint64_t LoadEight(const char* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint64_t LoadFour(const char* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace

Result<Bpe> Bpe::Create(std::shared_ptr<const Vocabulary> vocabulary, std::span<const Merge> merges, WholePieces whole_pieces) {
  Bpe bpe;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(static_cast<unsigned char>(byte));
    const std::optional<int32_t> id = vocabulary->Find({&value, 1});
    if (!id) return Fail(Errc::kCorrupt, "the vocabulary has no token for byte 0x{:02x}; only byte-level vocabularies are read", byte);
    bpe.byte_ids_[byte] = *id;
  }
  bpe.vocabulary_ = std::move(vocabulary);
  bpe.whole_pieces_ = whole_pieces;
  const size_t num_slots = std::bit_ceil(2 * merges.size() + 2);
  bpe.slots_.resize(num_slots);
  bpe.shift_ = 64 - std::countr_zero(num_slots);
  bpe.merged_by_rank_.reserve(merges.size());
  for (const Merge& merge : merges) {
    const uint64_t pair = PairKey(merge.left, merge.right);
    bpe.slots_[bpe.SlotIndex(pair)] = {pair, static_cast<uint32_t>(bpe.merged_by_rank_.size())};
    bpe.merged_by_rank_.push_back(merge.merged);
  }
  bpe.byte_pair_ranks_.resize(size_t{256} * 256);
  for (size_t i = 0; i < bpe.byte_pair_ranks_.size(); ++i) {
    bpe.byte_pair_ranks_[i] = bpe.Rank(bpe.byte_ids_[i / 256], bpe.byte_ids_[i % 256]);
  }
  return bpe;
}

PieceEncoder::PieceEncoder(const Bpe& bpe, size_t text_bytes)
    : bpe_(bpe), cache_(std::bit_ceil(std::clamp(text_bytes / kTextBytesPerCacheEntry, kCacheEntriesMin, kCacheEntriesMax))) {
  ids_.reserve(text_bytes / 4 + 16);
}

// Whole pieces as numbers: two loads that cover the piece, so that equal numbers and equal length mean equal bytes.
PieceEncoder::Cached PieceEncoder::KeyOf(std::string_view piece) {
  Cached key;
  const size_t n = piece.size();
  const char* const at = piece.data();
  key.num_bytes = static_cast<uint8_t>(n);
  if (n >= 8) {
    key.bytes = {LoadEight(at), LoadEight(at + n - 8)};
  } else if (n >= 4) {
    key.bytes = {LoadFour(at), LoadFour(at + n - 4)};
  } else {
    const auto byte = [at](size_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(at[i])); };
    key.bytes = {byte(0) | (byte(n / 2) << 8) | (byte(n - 1) << 16), 0};
  }
  return key;
}

void PieceEncoder::AppendPiece(std::string_view piece) {
  if (piece.size() > kCachedBytesMax) {
    Encode(piece);
    return;
  }
  Cached key = KeyOf(piece);
  const uint64_t hash = (key.bytes[0] ^ std::rotl(key.bytes[1] * 0x9E3779B97F4A7C15u, 29)) * 0xD6E8FEB86659FD93u + key.num_bytes;
  Cached& cached = cache_[static_cast<size_t>(hash >> 40) & (cache_.size() - 1)];
  if (cached.bytes == key.bytes && cached.num_bytes == key.num_bytes) {
    ids_.insert(ids_.end(), cached.ids.begin(), cached.ids.begin() + cached.num_ids);
    return;
  }
  const size_t first = ids_.size();
  Encode(piece);
  const size_t num_ids = ids_.size() - first;
  if (num_ids > kCachedIdsMax) return;
  key.num_ids = static_cast<uint8_t>(num_ids);
  std::copy(ids_.begin() + static_cast<ptrdiff_t>(first), ids_.end(), key.ids.begin());
  cached = key;
}

void PieceEncoder::Encode(std::string_view piece) {
  if (bpe_.whole_pieces_ == WholePieces::kLookUpFirst) {
    if (const std::optional<int32_t> id = bpe_.vocabulary_->Find(piece)) {
      ids_.push_back(*id);
      return;
    }
  }
  const size_t window_bytes = std::max(kWindowBytesMin, kWindowTokens * static_cast<size_t>(bpe_.vocabulary_->max_token_bytes()));
  if (piece.size() <= kShortPieceBytes) {
    EncodeShort(piece);
  } else if (piece.size() <= window_bytes) {
    EncodeMedium(piece);
  } else {
    EncodeLong(piece, window_bytes);
  }
}

// At most kShortPieceBytes bytes: look for the lowest rank again after each merge.
void PieceEncoder::EncodeShort(std::string_view piece) {
  std::array<int32_t, kShortPieceBytes> ids;
  std::array<uint32_t, kShortPieceBytes> ranks;  // of the pair (i, i + 1)
  size_t num = piece.size();
  for (size_t i = 0; i < num; ++i) ids[i] = bpe_.byte_ids_[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i + 1 < num; ++i) {
    ranks[i] = bpe_.BytePairRank(static_cast<unsigned char>(piece[i]), static_cast<unsigned char>(piece[i + 1]));
  }
  while (num > 1) {
    const auto lowest = std::min_element(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(num) - 1);
    if (*lowest == Bpe::kNoRank) break;
    const auto left = static_cast<size_t>(lowest - ranks.begin());
    ids[left] = bpe_.merged_by_rank_[*lowest];
    --num;
    for (size_t i = left + 1; i < num; ++i) ids[i] = ids[i + 1];
    for (size_t i = left + 1; i + 1 < num; ++i) ranks[i] = ranks[i + 1];
    if (left + 1 < num) ranks[left] = bpe_.Rank(ids[left], ids[left + 1]);
    if (left > 0) ranks[left - 1] = bpe_.Rank(ids[left - 1], ids[left]);
  }
  ids_.insert(ids_.end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(num));
}

// n log n: a heap of the pairs that merge. Entries go stale when a symbol changes; a stale one no longer has its symbol's rank.
void PieceEncoder::EncodeMedium(std::string_view piece) {
  const auto num = static_cast<uint32_t>(piece.size());
  const auto byte_at = [piece](uint32_t i) { return static_cast<unsigned char>(piece[i]); };
  symbols_.resize(num);
  queue_.clear();
  const auto queue_entry = [](uint32_t rank, uint32_t index) { return (static_cast<uint64_t>(rank) << 32) | index; };
  for (uint32_t i = 0; i < num; ++i) {
    const uint32_t rank = i + 1 < num ? bpe_.BytePairRank(byte_at(i), byte_at(i + 1)) : Bpe::kNoRank;
    symbols_[i] = {bpe_.byte_ids_[byte_at(i)], rank, i - 1, i + 1};
    if (rank != Bpe::kNoRank) queue_.push_back(queue_entry(rank, i));
  }
  std::ranges::make_heap(queue_, std::greater{});

  const auto update_rank = [&](uint32_t index) {
    Symbol& symbol = symbols_[index];
    symbol.rank = symbol.next < num ? bpe_.Rank(symbol.id, symbols_[symbol.next].id) : Bpe::kNoRank;
    if (symbol.rank == Bpe::kNoRank) return;
    queue_.push_back(queue_entry(symbol.rank, index));
    std::ranges::push_heap(queue_, std::greater{});
  };
  while (!queue_.empty()) {
    const auto rank = static_cast<uint32_t>(queue_.front() >> 32);
    const auto index = static_cast<uint32_t>(queue_.front());
    std::ranges::pop_heap(queue_, std::greater{});
    queue_.pop_back();
    Symbol& left = symbols_[index];
    if (left.rank != rank) continue;
    Symbol& right = symbols_[left.next];
    left.id = bpe_.merged_by_rank_[rank];
    left.next = right.next;
    right.rank = Bpe::kNoRank;
    if (left.next < num) symbols_[left.next].previous = index;
    update_rank(index);
    if (index > 0) update_rank(left.previous);
  }
  for (uint32_t i = 0; i < num; i = symbols_[i].next) ids_.push_back(symbols_[i].id);
}

// Merging [left][right] together gives exactly these two tokens again.
//
// Why joining windows is exact: let tokens t1..tk each be what merging gives for its own bytes, and let every neighbouring pair be
// unchanged when merged together. Merging all bytes picks the lowest rank of all candidates, so, seen from one pair, its own
// candidates come up in the same order as when the pair is alone, until a merge crosses a border. The first merge that crossed
// a border would therefore also happen in that pair alone, which it does not. Conversely, neighbouring tokens of a merged text are
// such pairs, so tokens at the end may be dropped and the rest stays exact.
bool PieceEncoder::JoinsUnchanged(int32_t left, int32_t right) {
  std::string bytes(bpe_.vocabulary_->Bytes(left));
  bytes += bpe_.vocabulary_->Bytes(right);
  const size_t first = ids_.size();
  EncodeMedium(bytes);
  const bool unchanged = ids_.size() == first + 2 && ids_[first] == left && ids_[first + 1] == right;
  ids_.resize(first);
  return unchanged;
}

//   |<------------- exact ------------>|
//   first                 begin        |          end
//   [ windows done ......][ kept tokens][ dropped ]
//                                      [ next window ...
void PieceEncoder::EncodeLong(std::string_view piece, size_t window_bytes) {
  const auto bytes_of = [this](int32_t id) { return bpe_.vocabulary_->Bytes(id).size(); };
  const auto dropped_bytes_min = static_cast<size_t>(bpe_.vocabulary_->max_token_bytes());
  const size_t first = ids_.size();
  size_t begin = 0;  // ids_[first..] is exact for piece[0, begin)
  int32_t retries = 0;
  while (true) {
    const size_t end = std::min(piece.size(), begin + window_bytes);
    const size_t joint = ids_.size();
    EncodeMedium(piece.substr(begin, end - begin));
    if (joint > first && !JoinsUnchanged(ids_[joint - 1], ids_[joint])) {
      if (++retries > kCutRetriesMax) {
        ids_.resize(first);
        EncodeMedium(piece);
        return;
      }
      ids_.resize(joint);
      begin -= bytes_of(ids_.back());
      ids_.pop_back();
      continue;
    }
    if (end == piece.size()) return;
    retries = 0;
    begin = end;  // the tokens at the cut saw nothing to their right: drop them
    while (end - begin < dropped_bytes_min) {
      begin -= bytes_of(ids_.back());
      ids_.pop_back();
    }
  }
}

}  // namespace avocet::tokenizer
