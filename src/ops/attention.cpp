// Page layout of one layer: per K/V head first K, then V.
//   K: [page_tokens/16][head_dim/2][16][2] bf16, or [page_tokens/16][head_dim][16] f32: sixteen tokens side by side, so that scores of
//      sixteen tokens come from the same instructions as sixteen columns of a packed weight
//   V: [page_tokens][head_dim]
#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "base/check.h"

namespace avocet::ops {
namespace {

constexpr int32_t kQueriesMax = 32;    // of one item, unless a single row has more heads per K/V head
constexpr int32_t kPointersMax = 512;  // query heads per K/V head; checked when the op starts

constexpr size_t KvBytes(KvType type) {
  return type == KvType::kBf16 ? 2 : 4;
}

std::byte* KHead(const KvLayer& kv, PageId page, int32_t head) {
  const size_t block = static_cast<size_t>(kv.page_tokens) * static_cast<size_t>(kv.head_dim) * KvBytes(kv.type);
  return kv.data + static_cast<size_t>(Index(page)) * kv.page_bytes + static_cast<size_t>(head) * 2 * block;
}
std::byte* VHead(const KvLayer& kv, PageId page, int32_t head) {
  return KHead(kv, page, head) + static_cast<size_t>(kv.page_tokens) * static_cast<size_t>(kv.head_dim) * KvBytes(kv.type);
}

void StoreElement(KvType type, std::byte* at, float value) {
  if (type == KvType::kF32) {
    std::memcpy(at, &value, 4);
  } else {
    const uint16_t bits = ToBf16(value).bits;
    std::memcpy(at, &bits, 2);
  }
}

void StoreK(const KvLayer& kv, PageId page, int32_t head, int32_t token, const float* k) {
  const auto dim = static_cast<size_t>(kv.head_dim);
  const auto group = static_cast<size_t>(token / 16);
  const auto lane = static_cast<size_t>(token % 16);
  std::byte* base = KHead(kv, page, head) + group * dim * 16 * KvBytes(kv.type);
  for (size_t i = 0; i < dim; ++i) {
    const size_t element = kv.type == KvType::kF32 ? i * 16 + lane : (i / 2 * 16 + lane) * 2 + i % 2;
    StoreElement(kv.type, base + element * KvBytes(kv.type), k[i]);
  }
}

void StoreV(const KvLayer& kv, PageId page, int32_t head, int32_t token, const float* v) {
  const auto dim = static_cast<size_t>(kv.head_dim);
  std::byte* base = VHead(kv, page, head) + static_cast<size_t>(token) * dim * KvBytes(kv.type);
  for (size_t i = 0; i < dim; ++i) StoreElement(kv.type, base + i * KvBytes(kv.type), v[i]);
}

// Split-half pairs (d, d + half): model.md 2.8.
void Rotate(float* x, const float* cos, const float* sin, int32_t half) {
  for (int32_t d = 0; d < half; ++d) {
    const float a = x[d];
    const float b = x[d + half];
    x[d] = a * cos[d] - b * sin[d];
    x[d + half] = b * cos[d] + a * sin[d];
  }
}

void NormHead(const KernelTable& kernels, float* x, std::span<const float> weight, float eps) {
  kernels.norm({.x = x,
                .weight = weight.data(),
                .gate = nullptr,
                .size = static_cast<int32_t>(weight.size()),
                .eps = eps,
                .out_type = InputType::kF32,
                .out = reinterpret_cast<std::byte*>(x)});
}

// Rows [first_row, +num_rows) of one span under one K/V head: the queries that share K and V.
struct Item {
  const AttentionSpan* span = nullptr;
  int32_t kv_head = 0;
  int32_t first_row = 0;  // within the span
  int32_t num_rows = 0;

  int32_t tokens() const { return span->first_position + first_row + num_rows; }  // that the last row sees
  int32_t num_splits() const { return (tokens() + kSplitTokens - 1) / kSplitTokens; }
  int32_t SplitTokens(int32_t split) const { return std::min(kSplitTokens, tokens() - split * kSplitTokens); }
};

int32_t HeadsPerKv(const AttentionShape& shape) {
  return shape.num_heads / shape.num_kv_heads;
}
int32_t RowsPerItem(const AttentionShape& shape) {
  return std::max(1, kQueriesMax / HeadsPerKv(shape));
}
int32_t QueriesMax(const AttentionShape& shape) {
  return RowsPerItem(shape) * HeadsPerKv(shape);
}

template <typename Visit>
void ForEachItem(const AttentionShape& shape, std::span<const AttentionSpan> spans, const Visit& visit) {
  const int32_t step = RowsPerItem(shape);
  for (const AttentionSpan& span : spans) {
    for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
      for (int32_t row = 0; row < span.num_rows; row += step) visit(Item{&span, head, row, std::min(step, span.num_rows - row)});
    }
  }
}

size_t RoundUp16(size_t floats) {
  return (floats + 15) / 16 * 16;
}

// Results of the queries of one item over one split, or over all splits so far.
struct Partial {
  float* acc = nullptr;  // [queries][head_dim]
  float* max = nullptr;  // [queries]
  float* sum = nullptr;  // [queries]
};

size_t PartialFloats(const AttentionShape& shape, int32_t queries) {
  return RoundUp16(static_cast<size_t>(queries) * (static_cast<size_t>(shape.head_dim) + 2));
}

Partial PartialAt(const AttentionShape& shape, int32_t queries, float* memory) {
  const auto n = static_cast<size_t>(queries);
  return {memory, memory + n * static_cast<size_t>(shape.head_dim), memory + n * (static_cast<size_t>(shape.head_dim) + 1)};
}

size_t ScoresFloats(const AttentionShape& shape) {
  return static_cast<size_t>(QueriesMax(shape)) * kSplitTokens;
}
size_t QueriesFloats(const AttentionShape& shape) {
  return RoundUp16(static_cast<size_t>(QueriesMax(shape)) * static_cast<size_t>(shape.head_dim));
}
size_t WorkerFloats(const AttentionShape& shape) {
  return ScoresFloats(shape) + QueriesFloats(shape) + 2 * PartialFloats(shape, QueriesMax(shape));
}

// Memory for the results of single splits: enough for the K/V heads of two rows of the longest context.
size_t SharedFloats(const AttentionShape& shape, int32_t max_context, int32_t num_workers) {
  if (num_workers == 1) return 0;
  const size_t splits = (static_cast<size_t>(max_context) + kSplitTokens - 1) / kSplitTokens;
  const auto items = static_cast<size_t>(std::min(num_workers - 1, 2 * shape.num_kv_heads));
  return items * splits * PartialFloats(shape, HeadsPerKv(shape));
}

// Who does what in a step, the same for every worker. Items are laid out one after another by what they cost and the whole is cut into
// equal shares. An item that a cut goes through belongs to the worker that has its middle, unless it is so large that the shares would
// become uneven: then its splits are dealt out and combined in ascending order after a barrier, which gives the same bits.
class Schedule {
 public:
  Schedule(const AttentionShape& shape, std::span<const AttentionSpan> spans, int32_t num_workers, size_t shared_floats)
      : shape_(shape), spans_(spans), num_workers_(num_workers), shared_floats_(shared_floats) {
    ForEachItem(shape, spans, [this](const Item& item) { total_ += Cost(item); });
  }

  struct Place {
    Item item;
    int64_t begin = 0;       // cost of all items before
    bool is_shared = false;  // by splits
    size_t partials = 0;     // where the results of its splits begin
  };

  template <typename Visit>
  void ForEach(const Visit& visit) const {
    int64_t begin = 0;
    size_t used = 0;
    ForEachItem(shape_, spans_, [&](const Item& item) {
      Place place{item, begin, false, used};
      const int64_t cost = Cost(item);
      const size_t floats = static_cast<size_t>(item.num_splits()) * SplitFloats(item);
      if (IsLarge(cost) && WorkerAt(begin) != WorkerAt(begin + cost - 1) && item.num_splits() > 1 && used + floats <= shared_floats_) {
        place.is_shared = true;
        used += floats;
      }
      visit(place);
      begin += cost;
    });
  }

  int32_t WorkerOf(const Place& place) const { return WorkerAt(place.begin + Cost(place.item) / 2); }
  int32_t WorkerOf(const Place& place, int32_t split) const {
    const int64_t before = int64_t{split} * kSplitTokens + place.item.SplitTokens(split) / 2;
    return WorkerAt(place.begin + before * CostPerToken(place.item));
  }
  int32_t NumQueries(const Item& item) const { return item.num_rows * HeadsPerKv(shape_); }
  // Between the results of two splits of an item.
  size_t SplitFloats(const Item& item) const { return PartialFloats(shape_, NumQueries(item)); }

 private:
  // Reading a token's K and V takes as long as multiplying it with about four queries.
  int64_t CostPerToken(const Item& item) const { return NumQueries(item) + 4; }
  int64_t Cost(const Item& item) const { return item.tokens() * CostPerToken(item); }
  bool IsLarge(int64_t cost) const { return cost * 8 * num_workers_ > total_; }
  int32_t WorkerAt(int64_t cost) const { return static_cast<int32_t>(cost * num_workers_ / total_); }

  const AttentionShape& shape_;
  std::span<const AttentionSpan> spans_;
  int32_t num_workers_;
  size_t shared_floats_;
  int64_t total_ = 0;
};

class Run {
 public:
  Run(const KernelTable& kernels, const AttentionShape& shape, MatView<const float> qkv, const KvLayer& kv, const MutableInputView& out,
      float* memory)
      : kernels_(kernels), shape_(shape), qkv_(qkv), kv_(kv), out_(out), scores_(memory), queries_(scores_ + ScoresFloats(shape)) {
    float* partials = queries_ + QueriesFloats(shape);
    running_ = PartialAt(shape, QueriesMax(shape), partials);
    split_ = PartialAt(shape, QueriesMax(shape), partials + PartialFloats(shape, QueriesMax(shape)));
  }

  // All splits of an item in ascending order.
  void Whole(const Item& item) {
    for (int32_t s = 0; s < item.num_splits(); ++s) {
      Split(item, s, s == 0 ? running_ : split_);
      for (int32_t q = FirstQueryThatSees(item, s); s > 0 && q < NumQueries(item); ++q) Merge(split_, q, running_, q);
    }
    for (int32_t q = 0; q < NumQueries(item); ++q) Finish(item, q, running_, q);
  }

  void Split(const Item& item, int32_t split, const Partial& result) {
    const int32_t first_token = split * kSplitTokens;
    const int32_t first_query = FirstQueryThatSees(item, split);
    LoadQueries(item, first_token, first_query);
    const int32_t num_pages = (item.SplitTokens(split) + kv_.page_tokens - 1) / kv_.page_tokens;
    for (int32_t p = 0; p < num_pages; ++p) {
      const PageId page = item.span->pages[static_cast<size_t>(first_token / kv_.page_tokens + p)];
      k_[p] = KHead(kv_, page, item.kv_head);
      v_[p] = VHead(kv_, page, item.kv_head);
    }
    kernels_.attention_split({.queries = query_pointers_,
                              .limits = limits_,
                              .num_queries = NumQueries(item) - first_query,
                              .head_dim = shape_.head_dim,
                              .type = kv_.type,
                              .k = k_,
                              .v = v_,
                              .page_tokens = kv_.page_tokens,
                              .scores = scores_,
                              .out = result.acc + static_cast<ptrdiff_t>(first_query) * shape_.head_dim,
                              .max = result.max + first_query,
                              .sum = result.sum + first_query});
  }

  // One query of an item whose splits are all there, `stride` floats apart.
  void Combine(const Item& item, int32_t query, float* partials, size_t stride) {
    const auto partial = [&](int32_t split) { return PartialAt(shape_, NumQueries(item), partials + static_cast<size_t>(split) * stride); };
    const Partial first = partial(0);
    std::copy_n(first.acc + static_cast<ptrdiff_t>(query) * shape_.head_dim, shape_.head_dim, running_.acc);
    running_.max[0] = first.max[query];
    running_.sum[0] = first.sum[query];
    for (int32_t s = 1; s < item.num_splits() && query >= FirstQueryThatSees(item, s); ++s) Merge(partial(s), query, running_, 0);
    Finish(item, query, running_, 0);
  }

 private:
  int32_t NumQueries(const Item& item) const { return item.num_rows * HeadsPerKv(shape_); }

  // Rows ascend by position; those before the split do not see it.
  int32_t FirstQueryThatSees(const Item& item, int32_t split) const {
    const int32_t first_position = item.span->first_position + item.first_row;
    return std::max(0, split * kSplitTokens - first_position) * HeadsPerKv(shape_);
  }

  void LoadQueries(const Item& item, int32_t first_token, int32_t first_query) {
    const int32_t heads = HeadsPerKv(shape_);
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    for (int32_t q = first_query; q < NumQueries(item); ++q) {
      const int32_t row = item.first_row + q / heads;
      const int32_t head = item.kv_head * heads + q % heads;
      const float* source = qkv_.row(item.span->row_begin + row) + static_cast<ptrdiff_t>(head) * 2 * shape_.head_dim;
      float* query = queries_ + static_cast<ptrdiff_t>(q) * shape_.head_dim;
      for (int32_t i = 0; i < shape_.head_dim; ++i) query[i] = source[i] * scale;
      query_pointers_[q - first_query] = query;
      limits_[q - first_query] = std::min(item.span->first_position + row + 1 - first_token, kSplitTokens);
    }
  }

  void Merge(const Partial& from, int32_t from_query, const Partial& into, int32_t query) {
    kernels_.attention_merge({.acc = into.acc + static_cast<ptrdiff_t>(query) * shape_.head_dim,
                              .max = into.max + query,
                              .sum = into.sum + query,
                              .split_acc = from.acc + static_cast<ptrdiff_t>(from_query) * shape_.head_dim,
                              .split_max = from.max[from_query],
                              .split_sum = from.sum[from_query],
                              .size = shape_.head_dim});
  }

  // Query `query` of the item, whose result is query `at` of `result`.
  void Finish(const Item& item, int32_t query, const Partial& result, int32_t at) {
    const int32_t heads = HeadsPerKv(shape_);
    const int32_t row = item.span->row_begin + item.first_row + query / heads;
    const int32_t head = item.kv_head * heads + query % heads;
    kernels_.attention_gate(
        {.acc = result.acc + static_cast<ptrdiff_t>(at) * shape_.head_dim,
         .sum = result.sum[at],
         .gate = qkv_.row(row) + (static_cast<ptrdiff_t>(head) * 2 + 1) * shape_.head_dim,
         .size = shape_.head_dim,
         .out_type = out_.type,
         .out = out_.row(row) + static_cast<size_t>(head) * static_cast<size_t>(shape_.head_dim) * InputBytes(out_.type)});
  }

  const KernelTable& kernels_;
  const AttentionShape& shape_;
  MatView<const float> qkv_;
  const KvLayer& kv_;
  const MutableInputView& out_;
  float* scores_;
  float* queries_;
  Partial running_;
  Partial split_;
  const float* query_pointers_[kPointersMax];
  int32_t limits_[kPointersMax];
  const std::byte* k_[kSplitTokens / 16];
  const std::byte* v_[kSplitTokens / 16];
};

void CombineShared(const device::Worker& worker, const Schedule& schedule, Run& run, float* partials) {
  int32_t turn = 0;
  schedule.ForEach([&](const Schedule::Place& place) {
    if (!place.is_shared) return;
    for (int32_t q = 0; q < schedule.NumQueries(place.item); ++q) {
      if (turn++ % worker.count() == worker.id()) run.Combine(place.item, q, partials + place.partials, schedule.SplitFloats(place.item));
    }
  });
}

}  // namespace

size_t KvPageBytes(KvType type, int32_t page_tokens, int32_t num_kv_heads, int32_t head_dim) {
  return static_cast<size_t>(page_tokens) * static_cast<size_t>(num_kv_heads) * static_cast<size_t>(head_dim) * 2 * KvBytes(type);
}

void ComputeRopeAngles(const device::Worker& worker, MatView<const int32_t> positions, std::span<const float> inv_freq,
                       std::span<const uint8_t> axis, float scale, MatView<float> cos, MatView<float> sin) {
  const auto [begin, end] = worker.Share(positions.cols);
  for (int32_t r = begin; r < end; ++r) {
    for (size_t j = 0; j < inv_freq.size(); ++j) {
      // The angle is an f32 product, as in the reference; its cosine is taken exactly.
      const float angle = static_cast<float>(positions.row(axis[j])[r]) * inv_freq[j];
      cos.row(r)[j] = static_cast<float>(std::cos(static_cast<double>(angle))) * scale;
      sin.row(r)[j] = static_cast<float>(std::sin(static_cast<double>(angle))) * scale;
    }
  }
}

void PrepareQkvAndStore(const device::Worker& worker, const KernelTable& kernels, const AttentionShape& shape, MatView<float> qkv,
                        std::span<const float> q_norm, std::span<const float> k_norm, float eps, const RopeAngles& rope,
                        std::span<const AttentionSpan> spans, const KvLayer& kv) {
  const int32_t units = shape.num_heads + shape.num_kv_heads;  // a K head brings its V head along
  const int32_t half = shape.rotary_dim / 2;
  const auto [begin, end] = worker.Share(qkv.rows * units);
  for (const AttentionSpan& span : spans) {
    const int32_t first = std::max(begin, span.row_begin * units);
    const int32_t last = std::min(end, (span.row_begin + span.num_rows) * units);
    for (int32_t u = first; u < last; ++u) {
      const int32_t row = u / units;
      const int32_t head = u % units;
      if (head < shape.num_heads) {
        float* q = qkv.row(row) + static_cast<ptrdiff_t>(head) * 2 * shape.head_dim;
        NormHead(kernels, q, q_norm, eps);
        Rotate(q, rope.cos.row(row), rope.sin.row(row), half);
        continue;
      }
      const int32_t kv_head = head - shape.num_heads;
      float* k = qkv.row(row) + static_cast<ptrdiff_t>(2 * shape.num_heads + kv_head) * shape.head_dim;
      const float* v = k + static_cast<ptrdiff_t>(shape.num_kv_heads) * shape.head_dim;
      NormHead(kernels, k, k_norm, eps);
      Rotate(k, rope.cos.row(row), rope.sin.row(row), half);
      const int32_t position = span.first_position + row - span.row_begin;
      const PageId page = span.pages[static_cast<size_t>(position / kv.page_tokens)];
      StoreK(kv, page, kv_head, position % kv.page_tokens, k);
      StoreV(kv, page, kv_head, position % kv.page_tokens, v);
    }
  }
}

size_t AttentionScratchBytes(const AttentionShape& shape, int32_t /*max_rows*/, int32_t max_context, int32_t num_workers) {
  return (static_cast<size_t>(num_workers) * WorkerFloats(shape) + SharedFloats(shape, max_context, num_workers)) * sizeof(float);
}

void Attention(device::Worker& worker, const KernelTable& kernels, const AttentionShape& shape, MatView<const float> qkv,
               std::span<const AttentionSpan> spans, const KvLayer& kv, std::span<std::byte> scratch, const MutableInputView& out) {
  DCHECK(QueriesMax(shape) <= kPointersMax, "{} query heads per K/V head", HeadsPerKv(shape));
  float* memory = reinterpret_cast<float*>(scratch.data());
  float* partials = memory + static_cast<size_t>(worker.count()) * WorkerFloats(shape);
  const size_t partial_floats = scratch.size() / sizeof(float) - static_cast<size_t>(partials - memory);
  Run run(kernels, shape, qkv, kv, out, memory + static_cast<size_t>(worker.id()) * WorkerFloats(shape));
  const Schedule schedule(shape, spans, worker.count(), partial_floats);
  bool has_shared = false;
  schedule.ForEach([&](const Schedule::Place& place) {
    if (!place.is_shared) {
      if (schedule.WorkerOf(place) == worker.id()) run.Whole(place.item);
      return;
    }
    has_shared = true;
    for (int32_t s = 0; s < place.item.num_splits(); ++s) {
      if (schedule.WorkerOf(place, s) != worker.id()) continue;
      const size_t offset = place.partials + static_cast<size_t>(s) * schedule.SplitFloats(place.item);
      run.Split(place.item, s, PartialAt(shape, schedule.NumQueries(place.item), partials + offset));
    }
  });
  if (!has_shared) return;
  worker.Barrier();
  CombineShared(worker, schedule, run, partials);
}

}  // namespace avocet::ops
