// Matrix products over packed panels. A register block is R rows by P panels: every one of its R*P sums is its own chain over k, so an
// element has the same bits in every block shape (NUM-1). P panels are P streams of memory: at one row, four of them are needed to
// hide the latency of the chain and to keep the memory busy (performance.md 2a).
// Included once per instruction-set unit, inside its namespace, after kR*/kP* have been defined (registers differ).

// One step of the chain: sixteen columns, two consecutive k.
struct F32Bf16 {
  static constexpr size_t kStepBytes = 64;  // of a panel, per two k
  static constexpr size_t kInputStepBytes = 8;
  struct X {
    V16 even, odd;
  };
  static inline X LoadX(const std::byte* x) {
    const float* f = reinterpret_cast<const float*>(x);
    return {Set1(f[0]), Set1(f[1])};
  }
  struct W {
    V16 even, odd;
  };
  static inline W LoadW(const std::byte* w) {
    const Bits16 bits = LoadBits(w);
    return {EvenBf16(bits), OddBf16(bits)};
  }
  static inline V16 Step(V16 acc, X x, W w) { return Fma(w.odd, x.odd, Fma(w.even, x.even, acc)); }
};

struct F32F32 {
  static constexpr size_t kStepBytes = 128;
  static constexpr size_t kInputStepBytes = 8;
  using X = F32Bf16::X;
  using W = F32Bf16::W;
  static inline X LoadX(const std::byte* x) { return F32Bf16::LoadX(x); }
  static inline W LoadW(const std::byte* w) {
    const float* f = reinterpret_cast<const float*>(w);
    return {Load(f), Load(f + 16)};
  }
  static inline V16 Step(V16 acc, X x, W w) { return F32Bf16::Step(acc, x, w); }
};

template <int R, int P>
struct Block {
  V16 sum[R][P];
};

// steps: pairs of k. An f32 panel with an odd number of k has one k less than steps * 2; `tail_k` says so.
template <typename Op, int R, int P>
static inline void Accumulate2(Block<R, P>& block, const std::byte* const (&x)[R], const std::byte* panels, size_t panel_bytes,
                               size_t begin, size_t end, ptrdiff_t prefetch) {
  for (size_t s = begin; s < end; ++s) {
    typename Op::W w[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const std::byte* at = panels + static_cast<size_t>(p) * panel_bytes + s * Op::kStepBytes;
      _mm_prefetch(reinterpret_cast<const char*>(at + prefetch), _MM_HINT_T0);
      if constexpr (Op::kStepBytes == 128) _mm_prefetch(reinterpret_cast<const char*>(at + prefetch + 64), _MM_HINT_T0);
      w[p] = Op::LoadW(at);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const typename Op::X xr = Op::LoadX(x[r] + s * Op::kInputStepBytes);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) block.sum[r][p] = Op::Step(block.sum[r][p], xr, w[p]);
    }
  }
}

constexpr ptrdiff_t kPrefetchBytes = 1024;

template <typename Op, int R, int P>
static inline Block<R, P> Multiply(const std::byte* const (&x)[R], const std::byte* panels, size_t panel_bytes, int32_t in_features) {
  Block<R, P> block;
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) block.sum[r][p] = Zero();
  }
  // An f32 panel stores exactly in_features rows of 16; a bf16 panel rounds up to pairs (the padding is zero).
  const size_t whole = Op::kStepBytes == 128 ? static_cast<size_t>(in_features / 2) : static_cast<size_t>((in_features + 1) / 2);
  const size_t ahead = kPrefetchBytes / Op::kStepBytes;
  const size_t turn = whole > ahead ? whole - ahead : 0;
  Accumulate2<Op, R, P>(block, x, panels, panel_bytes, 0, turn, kPrefetchBytes);
  // The last kilobyte prefetches the beginning of the next group of panels.
  const ptrdiff_t next_group = static_cast<ptrdiff_t>(P * panel_bytes) - static_cast<ptrdiff_t>(turn * Op::kStepBytes);
  Accumulate2<Op, R, P>(block, x, panels, panel_bytes, turn, whole, next_group);
  if (Op::kStepBytes == 128 && in_features % 2 != 0) {
    for (int p = 0; p < P; ++p) {
      const V16 w = Load(reinterpret_cast<const float*>(panels + static_cast<size_t>(p) * panel_bytes + whole * Op::kStepBytes));
      for (int r = 0; r < R; ++r) block.sum[r][p] = Fma(w, Set1(reinterpret_cast<const float*>(x[r])[in_features - 1]), block.sum[r][p]);
    }
  }
  return block;
}

template <int R>
static inline void RowPointers(const LinearArgs& a, int32_t row, const std::byte* (&x)[R]) {
  for (int r = 0; r < R; ++r) {
    const int32_t source = a.row_index != nullptr ? a.row_index[row + r] : row + r;
    x[r] = a.x + static_cast<size_t>(source) * a.x_row_bytes;
  }
}

struct StoreSums {
  static constexpr int kPanelsPerUnit = 1;
  template <int R, int P>
  static inline void Emit(const LinearArgs& a, int32_t row, int32_t panel, const Block<R, P>& block) {
    for (int r = 0; r < R; ++r) {
      float* out = reinterpret_cast<float*>(a.out + static_cast<size_t>(row + r) * a.out_row_bytes);
      for (int p = 0; p < P; ++p) {
        const int32_t col = (panel + p) * 16;
        const int32_t valid = a.out_cols - col;
        V16 sum = block.sum[r][p];
        if (valid >= 16) {
          if (a.accumulate == Accumulate::kAdd) sum = Add(Load(out + col), sum);
          Store(out + col, sum);
        } else if (valid > 0) {
          if (a.accumulate == Accumulate::kAdd) sum = Add(LoadN(out + col, valid), sum);
          StoreN(out + col, sum, valid);
        }
      }
    }
  }
};

struct StoreSwiGlu {
  static constexpr int kPanelsPerUnit = 2;
  template <int R, int P>
  static inline void Emit(const LinearArgs& a, int32_t row, int32_t panel, const Block<R, P>& block) {
    if constexpr (P % 2 == 0) {
      for (int r = 0; r < R; ++r) {
        std::byte* out = a.out + static_cast<size_t>(row + r) * a.out_row_bytes;
        for (int p = 0; p < P; p += 2) {
          const int32_t col = (panel + p) * 8;
          const V16 product = Mul(Silu(block.sum[r][p]), block.sum[r][p + 1]);
          if (a.out_cols > col) StoreAsN(a.out_type, out, col, product, a.out_cols - col);
        }
      }
    }
  }
};

template <typename Op, typename Sink, int R, int P>
static inline void RowBlock(const LinearArgs& a, int32_t row, int32_t panel) {
  const std::byte* x[R];
  RowPointers<R>(a, row, x);
  const Block<R, P> block = Multiply<Op, R, P>(x, a.panels + static_cast<size_t>(panel) * a.panel_bytes, a.panel_bytes, a.in_features);
  Sink::template Emit<R, P>(a, row, panel, block);
}

// Panels [panel, panel + P) for rows [row, ...): as many full blocks of R rows as there are. Returns the next row.
template <typename Op, typename Sink, int R, int P>
static inline int32_t RowBlocks(const LinearArgs& a, int32_t row, int32_t panel) {
  for (; row + R <= a.rows; row += R) RowBlock<Op, Sink, R, P>(a, row, panel);
  return row;
}

template <typename Op, typename Sink, int R, int P>
static void PanelBlocks(const LinearArgs& a, int32_t row, int32_t end_row) {
  LinearArgs rows = a;
  rows.rows = end_row;
  int32_t panel = 0;
  for (; panel + P <= a.num_panels; panel += P) RowBlocks<Op, Sink, R, P>(rows, row, panel);
  constexpr int kUnit = Sink::kPanelsPerUnit;
  if constexpr (P > 2 && kUnit <= 2) {
    for (; panel + 2 <= a.num_panels; panel += 2) RowBlocks<Op, Sink, R, 2>(rows, row, panel);
  }
  if constexpr (P > 1 && kUnit == 1) {
    for (; panel < a.num_panels; ++panel) RowBlocks<Op, Sink, R, 1>(rows, row, panel);
  }
}

// All rows of one group of panels before the next group: the group (tens to hundreds of KB) stays in the second-level cache.
template <typename Op, typename Sink, int R, int P>
static void FullBlocks(const LinearArgs& a, int32_t rows) {
  PanelBlocks<Op, Sink, R, P>(a, 0, rows);
}

template <typename Op, typename Sink>
static void Product(const LinearArgs& a) {
  const int32_t full = a.rows / kRowsWide * kRowsWide;
  if (full > 0) FullBlocks<Op, Sink, kRowsWide, Sink::kPanelsPerUnit == 1 ? kPanelsWide : kPanelsWideSwiGlu>(a, full);
  constexpr int k1 = 4;
  switch (a.rows - full) {
    case 1: PanelBlocks<Op, Sink, 1, k1>(a, full, a.rows); break;
    case 2: PanelBlocks<Op, Sink, 2, kPanels2>(a, full, a.rows); break;
    case 3: PanelBlocks<Op, Sink, 3, kPanels3>(a, full, a.rows); break;
    case 4: PanelBlocks<Op, Sink, 4, kPanels4>(a, full, a.rows); break;
    case 5: PanelBlocks<Op, Sink, 5, kPanels4>(a, full, a.rows); break;
    default: break;
  }
}
