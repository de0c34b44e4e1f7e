// One split of the context for queries that share a K/V head. Scores first, then the maximum, then the weighted sum of values: every
// query's arithmetic is its own, in groups of 16 tokens by position and token by token, whatever else is in the call (NUM-1).
//
// K and V pass in units of up to 64 tokens of one page, which stay in the first-level cache while all queries use them. A page is too
// short for the hardware to run ahead in, so each unit asks for the next one, line by line as it is used itself.
// Included once per instruction-set unit, inside its namespace.

constexpr int32_t kScoresLd = 512;  // kSplitTokens of attention.h
constexpr int32_t kUnitTokens = 64;

// Asks for the unit that follows: the same place in it.
struct AskUnit {
  const std::byte* next;
  template <typename Op, int P>
  [[gnu::always_inline]] inline void Step(const std::byte*, size_t panel_bytes, size_t step) const {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const char* line = reinterpret_cast<const char*>(next + static_cast<size_t>(p) * panel_bytes + step * Op::kStepBytes);
      _mm_prefetch(line, _MM_HINT_T0);
      if constexpr (Op::kStepBytes == 128) _mm_prefetch(line + 64, _MM_HINT_T0);
    }
  }
};

// P groups of 16 tokens side by side in one page: their chains hide each other's latency.
template <typename Op, int R, int P>
static inline void ScoreGroups(const AttentionArgs& a, const std::byte* k, size_t group_bytes, int32_t query, int32_t token,
                               const std::byte* next) {
  const std::byte* x[R];
  V16 sum[R][P];
  for (int r = 0; r < R; ++r) {
    x[r] = reinterpret_cast<const std::byte*>(a.queries[query + r]);
    for (int p = 0; p < P; ++p) sum[r][p] = Zero();
  }
  RunSteps<Op, R, P>(sum, x, k, group_bytes, 0, static_cast<size_t>(a.head_dim / 2), AskUnit{next});
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      // Tokens that the query may not see count as minus infinity, whatever the page holds there.
      const int32_t first = token + 16 * p;
      const V16 score = KeepN(sum[r][p], a.limits[query + r] - first, Set1(-__builtin_inff()));
      Store(a.scores + static_cast<ptrdiff_t>(query + r) * kScoresLd + first, score);
    }
  }
}

// kGroups groups of a page for R queries, as many at once as the registers hold.
template <typename Op, int R, int kGroups>
static void ScoreRows(const AttentionArgs& a, const std::byte* k, size_t group_bytes, int32_t query, int32_t token, const std::byte* next) {
  constexpr int kWidth = kGroups < kPanelsOfRows[R] ? kGroups : kPanelsOfRows[R];
  for (int g = 0; g < kGroups; g += kWidth) {
    const size_t offset = static_cast<size_t>(g) * group_bytes;
    ScoreGroups<Op, R, kWidth>(a, k + offset, group_bytes, query, token + 16 * g, next + offset);
  }
}

template <typename Op, int kGroups>
static void ScoreQueries(const AttentionArgs& a, const std::byte* k, size_t group_bytes, int32_t token, const std::byte* next) {
  int32_t query = 0;
  for (; query + 6 <= a.num_queries; query += 6) ScoreRows<Op, 6, kGroups>(a, k, group_bytes, query, token, next);
  for (; query + 4 <= a.num_queries; query += 4) ScoreRows<Op, 4, kGroups>(a, k, group_bytes, query, token, next);
  for (; query + 2 <= a.num_queries; query += 2) ScoreRows<Op, 2, kGroups>(a, k, group_bytes, query, token, next);
  for (; query < a.num_queries; ++query) ScoreRows<Op, 1, kGroups>(a, k, group_bytes, query, token, next);
}

static inline const std::byte* UnitOfK(const AttentionArgs& a, int32_t token, size_t group_bytes) {
  return a.k[token / a.page_tokens] + static_cast<size_t>(token % a.page_tokens / 16) * group_bytes;
}
static inline const std::byte* UnitOfV(const AttentionArgs& a, int32_t token, size_t row_bytes) {
  return a.v[token / a.page_tokens] + static_cast<size_t>(token % a.page_tokens) * row_bytes;
}

template <typename Op>
static void Scores(const AttentionArgs& a, int32_t longest) {
  const size_t group_bytes = static_cast<size_t>(a.head_dim / 2) * Op::kStepBytes;
  for (int32_t token = 0; token < longest;) {
    const std::byte* k = UnitOfK(a, token, group_bytes);
    const int32_t in_page = a.page_tokens - token % a.page_tokens;
    const bool is_whole = in_page >= kUnitTokens && longest - token >= kUnitTokens;
    const int32_t count = is_whole ? kUnitTokens : 16;
    const std::byte* next = token + count < longest ? UnitOfK(a, token + count, group_bytes) : a.v[0];
    if (is_whole) {
      ScoreQueries<Op, kUnitTokens / 16>(a, k, group_bytes, token, next);
    } else {
      ScoreQueries<Op, 1>(a, k, group_bytes, token, next);
    }
    token += count;
  }
}

// Scores become exp(score - max); returns max and sum of one query over its own groups only.
static inline void Softmax(const AttentionArgs& a, int32_t query) {
  float* scores = a.scores + static_cast<ptrdiff_t>(query) * kScoresLd;
  V16 max = Set1(-__builtin_inff());
  for (int32_t token = 0; token < a.limits[query]; token += 16) max = Max(Load(scores + token), max);
  const float top = ReduceMax(max);
  V16 sum = Zero();
  for (int32_t token = 0; token < a.limits[query]; token += 16) {
    const V16 p = Exp(Sub(Load(scores + token), Set1(top)));
    Store(scores + token, p);
    sum = Add(sum, p);
  }
  a.max[query] = top;
  a.sum[query] = ReduceAdd(sum);
}

// Tokens [token, end) of one unit of V for queries [query, query + R): sums in `out` go on where the unit before left them.
struct ValueUnit {
  const std::byte* v;
  const std::byte* next;
  size_t row_bytes;
  int32_t token;
  int32_t end;
};

template <KvType kType>
static inline V16 LoadV(const std::byte* row, int32_t col, int32_t n) {
  if constexpr (kType == KvType::kBf16) {
    return n >= 16 ? LoadBf16(row + static_cast<size_t>(col) * 2) : LoadBf16N(row + static_cast<size_t>(col) * 2, n);
  } else {
    return n >= 16 ? Load(reinterpret_cast<const float*>(row) + col) : LoadN(reinterpret_cast<const float*>(row) + col, n);
  }
}

// Columns [col, col + 16 C), of which `cols` exist.
template <KvType kType, int R, int C>
static inline void Weigh(const AttentionArgs& a, const ValueUnit& unit, int32_t query, int32_t col, int32_t cols) {
  constexpr size_t kColBytes = 16 * (kType == KvType::kBf16 ? 2 : 4);
  V16 sum[R][C];
  for (int r = 0; r < R; ++r) {
    const float* out = a.out + static_cast<ptrdiff_t>(query + r) * a.head_dim + col;
    for (int c = 0; c < C; ++c) sum[r][c] = unit.token == 0 ? Zero() : LoadN(out + 16 * c, cols - 16 * c);
  }
  const float* weights = a.scores + static_cast<ptrdiff_t>(query) * kScoresLd;
  const std::byte* v = unit.v;
  const char* ahead = reinterpret_cast<const char*>(unit.next) + static_cast<size_t>(col / 16) * kColBytes;
  for (int32_t token = unit.token; token < unit.end; ++token, v += unit.row_bytes, ahead += unit.row_bytes) {
    for (size_t line = 0; line < C * kColBytes; line += 64) _mm_prefetch(ahead + line, _MM_HINT_T0);
    V16 value[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) value[c] = LoadV<kType>(v, col + 16 * c, cols - 16 * c);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const V16 p = Set1(weights[r * kScoresLd + token]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[r][c] = Fma(p, value[c], sum[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    float* out = a.out + static_cast<ptrdiff_t>(query + r) * a.head_dim + col;
    for (int c = 0; c < C; ++c) StoreN(out + 16 * c, sum[r][c], cols - 16 * c);
  }
}

// As Weigh, for C times 32 columns of bf16: a word holds two neighbours, whose halves widen with one instruction each.
template <int R, int C>
static inline void WeighPairs(const AttentionArgs& a, const ValueUnit& unit, int32_t query, int32_t col) {
  V16 even[R][C], odd[R][C];
  for (int r = 0; r < R; ++r) {
    const float* out = a.out + static_cast<ptrdiff_t>(query + r) * a.head_dim + col;
    for (int c = 0; c < C; ++c) {
      even[r][c] = odd[r][c] = Zero();
      if (unit.token > 0) Deinterleave(Load(out + 32 * c), Load(out + 32 * c + 16), &even[r][c], &odd[r][c]);
    }
  }
  const float* weights = a.scores + static_cast<ptrdiff_t>(query) * kScoresLd;
  const std::byte* v = unit.v + static_cast<size_t>(col) * 2;
  const char* ahead = reinterpret_cast<const char*>(unit.next) + static_cast<size_t>(col) * 2;
  for (int32_t token = unit.token; token < unit.end; ++token, v += unit.row_bytes, ahead += unit.row_bytes) {
    V16 low[C], high[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      _mm_prefetch(ahead + 64 * c, _MM_HINT_T0);
      const Bits16 words = LoadBits(v + 64 * c);
      low[c] = EvenBf16(words);
      high[c] = OddBf16(words);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const V16 p = Set1(weights[r * kScoresLd + token]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        even[r][c] = Fma(p, low[c], even[r][c]);
        odd[r][c] = Fma(p, high[c], odd[r][c]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    float* out = a.out + static_cast<ptrdiff_t>(query + r) * a.head_dim + col;
    for (int c = 0; c < C; ++c) {
      V16 first, second;
      Interleave(even[r][c], odd[r][c], &first, &second);
      Store(out + 32 * c, first);
      Store(out + 32 * c + 16, second);
    }
  }
}

template <KvType kType, int R>
static void WeighColumns(const AttentionArgs& a, const ValueUnit& unit, int32_t query) {
  if (unit.token >= unit.end) return;
  int32_t col = 0;
  if constexpr (kType == KvType::kBf16 && kValuePairs > 0) {
    for (; col + 32 * kValuePairs <= a.head_dim; col += 32 * kValuePairs) WeighPairs<R, kValuePairs>(a, unit, query, col);
  }
  for (; col + 16 * kValueCols <= a.head_dim; col += 16 * kValueCols) Weigh<kType, R, kValueCols>(a, unit, query, col, 16 * kValueCols);
  for (; col < a.head_dim; col += 16) Weigh<kType, R, 1>(a, unit, query, col, a.head_dim - col < 16 ? a.head_dim - col : 16);
}

// Together as far as every query of the block sees, then each alone: a token's value never touches a query that may not see it.
template <KvType kType, int R>
static void WeighBlock(const AttentionArgs& a, const ValueUnit& unit, int32_t query) {
  ValueUnit common = unit;
  for (int r = 0; r < R; ++r) common.end = a.limits[query + r] < common.end ? a.limits[query + r] : common.end;
  if (common.end < common.token) common.end = common.token;
  WeighColumns<kType, R>(a, common, query);
  for (int r = 0; r < R; ++r) {
    ValueUnit rest = unit;
    rest.token = common.end;
    rest.v += static_cast<size_t>(rest.token - unit.token) * unit.row_bytes;
    rest.end = a.limits[query + r] < unit.end ? a.limits[query + r] : unit.end;
    WeighColumns<kType, 1>(a, rest, query + r);
  }
}

template <KvType kType>
static void Values(const AttentionArgs& a, int32_t longest) {
  ValueUnit unit;
  unit.row_bytes = static_cast<size_t>(a.head_dim) * (kType == KvType::kBf16 ? 2 : 4);
  for (unit.token = 0; unit.token < longest; unit.token = unit.end) {
    const int32_t in_page = a.page_tokens - unit.token % a.page_tokens;
    const int32_t count = in_page < kUnitTokens ? in_page : kUnitTokens;
    unit.end = longest - unit.token < count ? longest : unit.token + count;
    unit.v = UnitOfV(a, unit.token, unit.row_bytes);
    unit.next = unit.end < longest ? UnitOfV(a, unit.end, unit.row_bytes) : unit.v;
    int32_t query = 0;
    for (; query + kValueRows <= a.num_queries; query += kValueRows) WeighBlock<kType, kValueRows>(a, unit, query);
    for (; query + 2 <= a.num_queries; query += 2) WeighBlock<kType, 2>(a, unit, query);
    for (; query < a.num_queries; ++query) WeighBlock<kType, 1>(a, unit, query);
  }
}

template <KvType kType, typename Op>
static void Split(const AttentionArgs& a) {
  int32_t longest = 0;
  for (int32_t q = 0; q < a.num_queries; ++q) longest = a.limits[q] > longest ? a.limits[q] : longest;
  Scores<Op>(a, longest);
  for (int32_t q = 0; q < a.num_queries; ++q) Softmax(a, q);
  Values<kType>(a, longest);
}

static void AttentionSplit(const AttentionArgs& a) {
  if (a.type == KvType::kBf16) {
    Split<KvType::kBf16, F32Bf16>(a);
  } else {
    Split<KvType::kF32, F32F32>(a);
  }
}

static float ExpOf(float x) {
  float lanes[16];
  Store(lanes, Exp(Set1(x)));
  return lanes[0];
}

static void AttentionMerge(const MergeArgs& a) {
  const float top = a.split_max > *a.max ? a.split_max : *a.max;
  const float before = ExpOf(*a.max - top);
  const float now = ExpOf(a.split_max - top);
  const V16 scale_before = Set1(before);
  const V16 scale_now = Set1(now);
  for (int32_t i = 0; i < a.size; i += 16) {
    const int32_t n = a.size - i;
    StoreN(a.acc + i, Fma(LoadN(a.split_acc + i, n), scale_now, Mul(LoadN(a.acc + i, n), scale_before)), n);
  }
  *a.sum = *a.sum * before + a.split_sum * now;
  *a.max = top;
}

static void AttentionGate(const GateArgs& a) {
  const V16 scale = Set1(1.0f / a.sum);
  for (int32_t i = 0; i < a.size; i += 16) {
    const int32_t n = a.size - i;
    StoreAsN(a.out_type, a.out, i, Mul(Mul(LoadN(a.acc + i, n), scale), Sigmoid(LoadN(a.gate + i, n))), n);
  }
}
