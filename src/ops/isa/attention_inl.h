// One split of the context for queries that share a K/V head. Scores first, then the maximum, then the weighted sum of values: every
// query's arithmetic is its own, in groups of 16 tokens by position, whatever else is in the call.
// Included once per instruction-set unit, inside its namespace.

constexpr int32_t kScoresLd = 512;  // kSplitTokens of attention.h

// P groups of 16 tokens side by side in one page: their chains hide each other's latency.
template <typename Op, int R, int P>
static inline void ScoreGroups(const AttentionArgs& a, const std::byte* k, size_t group_bytes, int32_t query, int32_t token) {
  const std::byte* x[R];
  for (int r = 0; r < R; ++r) x[r] = reinterpret_cast<const std::byte*>(a.queries[query + r]);
  V16 sum[R][P];
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) sum[r][p] = Zero();
  }
  RunSteps<Op, R, P>(sum, x, k, group_bytes, 0, static_cast<size_t>(a.head_dim / 2), AskAhead{1024});
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      // Tokens that the query may not see count as minus infinity, whatever the page holds there.
      const int32_t first = token + 16 * p;
      const V16 score = KeepN(sum[r][p], a.limits[query + r] - first, Set1(-__builtin_inff()));
      Store(a.scores + static_cast<ptrdiff_t>(query + r) * kScoresLd + first, score);
    }
  }
}

template <typename Op, int P1, int P2, int P4, int P6>
static inline void ScoreQueries(const AttentionArgs& a, const std::byte* k, size_t group_bytes, int32_t token) {
  int32_t query = 0;
  constexpr int kGroups = P1;
  for (; query + 6 <= a.num_queries; query += 6) {
    for (int g = 0; g < kGroups; g += P6)
      ScoreGroups<Op, 6, P6>(a, k + static_cast<size_t>(g) * group_bytes, group_bytes, query, token + 16 * g);
  }
  for (; query + 4 <= a.num_queries; query += 4) {
    for (int g = 0; g < kGroups; g += P4)
      ScoreGroups<Op, 4, P4>(a, k + static_cast<size_t>(g) * group_bytes, group_bytes, query, token + 16 * g);
  }
  for (; query + 2 <= a.num_queries; query += 2) {
    for (int g = 0; g < kGroups; g += P2)
      ScoreGroups<Op, 2, P2>(a, k + static_cast<size_t>(g) * group_bytes, group_bytes, query, token + 16 * g);
  }
  for (; query < a.num_queries; ++query) ScoreGroups<Op, 1, P1>(a, k, group_bytes, query, token);
}

template <typename Op>
static void Scores(const AttentionArgs& a, int32_t longest) {
  const size_t group_bytes = static_cast<size_t>(a.head_dim / 2) * Op::kStepBytes;
  for (int32_t token = 0; token < longest;) {
    const std::byte* k = a.k[token / a.page_tokens] + static_cast<size_t>(token % a.page_tokens / 16) * group_bytes;
    const int32_t in_page = a.page_tokens - token % a.page_tokens;
    if (in_page >= 64 && longest - token >= 64) {
      ScoreQueries<Op, 4, kPanelsOfRows[2], kScoreGroups4, kPanelsOfRows[6]>(a, k, group_bytes, token);
      token += 64;
    } else {
      ScoreQueries<Op, 1, 1, 1, 1>(a, k, group_bytes, token);
      token += 16;
    }
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

template <KvType kType>
static inline V16 LoadV(const std::byte* row, int32_t col, int32_t n) {
  if constexpr (kType == KvType::kBf16) {
    return n >= 16 ? LoadBf16(row + static_cast<size_t>(col) * 2) : LoadBf16N(row + static_cast<size_t>(col) * 2, n);
  } else {
    return n >= 16 ? Load(reinterpret_cast<const float*>(row) + col) : LoadN(reinterpret_cast<const float*>(row) + col, n);
  }
}

// out[r][col..] += p[r][token] * v[token][col..] for tokens [begin, end), in order.
template <KvType kType, int R, int C>
static inline void Weigh(const AttentionArgs& a, int32_t query, int32_t col, int32_t cols, int32_t begin, int32_t end) {
  const size_t row_bytes = static_cast<size_t>(a.head_dim) * (kType == KvType::kBf16 ? 2 : 4);
  V16 sum[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sum[r][c] = LoadN(a.out + static_cast<ptrdiff_t>(query + r) * a.head_dim + col + 16 * c, cols - 16 * c);
  }
  for (int32_t token = begin; token < end;) {
    const int32_t in_page = token % a.page_tokens;
    const int32_t count = end - token < a.page_tokens - in_page ? end - token : a.page_tokens - in_page;
    const std::byte* v = a.v[token / a.page_tokens] + static_cast<size_t>(in_page) * row_bytes;
    for (int32_t t = 0; t < count; ++t, v += row_bytes) {
      V16 value[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) value[c] = LoadV<kType>(v, col + 16 * c, cols - 16 * c);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const V16 p = Set1(a.scores[static_cast<ptrdiff_t>(query + r) * kScoresLd + token + t]);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) sum[r][c] = Fma(p, value[c], sum[r][c]);
      }
    }
    token += count;
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) StoreN(a.out + static_cast<ptrdiff_t>(query + r) * a.head_dim + col + 16 * c, sum[r][c], cols - 16 * c);
  }
}

template <KvType kType, int R>
static void WeighColumns(const AttentionArgs& a, int32_t query, int32_t begin, int32_t end) {
  if (begin >= end) return;
  int32_t col = 0;
  for (; col + 16 * kValueCols <= a.head_dim; col += 16 * kValueCols)
    Weigh<kType, R, kValueCols>(a, query, col, 16 * kValueCols, begin, end);
  for (; col < a.head_dim; col += 16) Weigh<kType, R, 1>(a, query, col, a.head_dim - col < 16 ? a.head_dim - col : 16, begin, end);
}

// Together as far as every query of the block sees, then each alone: a token's value never touches a query that may not see it.
template <KvType kType, int R>
static void WeighBlock(const AttentionArgs& a, int32_t query) {
  int32_t common = a.limits[query];
  for (int r = 1; r < R; ++r) common = a.limits[query + r] < common ? a.limits[query + r] : common;
  WeighColumns<kType, R>(a, query, 0, common);
  for (int r = 0; r < R; ++r) WeighColumns<kType, 1>(a, query + r, common, a.limits[query + r]);
}

template <KvType kType>
static void Split(const AttentionArgs& a) {
  int32_t longest = 0;
  for (int32_t q = 0; q < a.num_queries; ++q) longest = a.limits[q] > longest ? a.limits[q] : longest;
  if constexpr (kType == KvType::kBf16) {
    Scores<F32Bf16>(a, longest);
  } else {
    Scores<F32F32>(a, longest);
  }
  for (int32_t q = 0; q < a.num_queries; ++q) {
    Softmax(a, q);
    float* out = a.out + static_cast<ptrdiff_t>(q) * a.head_dim;
    for (int32_t c = 0; c < a.head_dim; ++c) out[c] = 0;
  }
  int32_t query = 0;
  for (; query + 4 <= a.num_queries; query += 4) WeighBlock<kType, 4>(a, query);
  for (; query + 2 <= a.num_queries; query += 2) WeighBlock<kType, 2>(a, query);
  for (; query < a.num_queries; ++query) WeighBlock<kType, 1>(a, query);
}

static void AttentionSplit(const AttentionArgs& a) {
  if (a.type == KvType::kBf16) {
    Split<KvType::kBf16>(a);
  } else {
    Split<KvType::kF32>(a);
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
  const V16 sum = Set1(a.sum);
  for (int32_t i = 0; i < a.size; i += 16) {
    const int32_t n = a.size - i;
    StoreAsN(a.out_type, a.out, i, Mul(Div(LoadN(a.acc + i, n), sum), Sigmoid(LoadN(a.gate + i, n))), n);
  }
}
