// Matrix products over packed panels. A register block is R rows by P panels; every one of its R*P sums is one chain over k in
// ascending order, so an element has the same bits in every block shape, piece and prefetch pattern (NUM-1).
//
// Rows pass over a piece of the weights (a group of panels, a range of k) that stays in the second-level cache:
//   for each group of panels: for each batch of rows: for each range of k: for each block of rows
// Sums of a block wait in `sums` between the ranges of k: stored and loaded again they are the same f32.
//
// Memory. One block of rows reads its panels as so many streams and asks for them a kilobyte ahead (performance.md 2a). With more
// blocks the last ones ask for the next piece while they multiply this one: M = 16 to 32 pays neither time alone (performance.md 2f).
// Included once per instruction-set unit, inside its namespace, after the constants that depend on its registers.

// One step of a chain: sixteen columns, two consecutive k, in kParts parts that each need the weights of P panels in registers.
struct F32Bf16 {
  static constexpr int kParts = 2;
  static constexpr size_t kStepBytes = 64;  // of a panel
  static constexpr int kStepInputs = 2;
  static constexpr size_t kInputStepBytes = 8;
  using X = V16;
  using W = V16;
  template <int kPart>
  static inline X LoadX(const std::byte* x) {
    return Set1(reinterpret_cast<const float*>(x)[kPart]);
  }
  template <int kPart>
  static inline W LoadW(const std::byte* w) {
    return kPart == 0 ? EvenBf16(LoadBits(w)) : OddBf16(LoadBitsAgain(w));
  }
  static inline V16 Step(V16 sum, X x, W w) { return Fma(w, x, sum); }
};

struct F32F32 {
  static constexpr int kParts = 2;
  static constexpr size_t kStepBytes = 128;
  static constexpr int kStepInputs = 2;
  static constexpr size_t kInputStepBytes = 8;
  using X = V16;
  using W = V16;
  template <int kPart>
  static inline X LoadX(const std::byte* x) {
    return Set1(reinterpret_cast<const float*>(x)[kPart]);
  }
  template <int kPart>
  static inline W LoadW(const std::byte* w) {
    return Load(reinterpret_cast<const float*>(w) + 16 * kPart);
  }
  static inline V16 Step(V16 sum, X x, W w) { return Fma(w, x, sum); }
};

// Four consecutive k in int32, without a dot product of bytes: k 0 and 2, then 1 and 3, as int16. The left operand lies ready in that order
// (kInt8Pairs): taken apart here it would cost as many instructions as two rows' products. The sums are exact, so every family has the
// same. The V16 of an int8 product holds int32 lanes until its sink.
struct Int8ByPairs {
  static constexpr int kParts = 2;
  static constexpr size_t kStepBytes = 64;
  static constexpr int kStepInputs = 4;
  static constexpr size_t kInputStepBytes = 8;
  using X = Bits16;
  using W = Bits16;
  template <int kPart>
  static inline X LoadX(const std::byte* x) {
    int32_t pair;
    __builtin_memcpy(&pair, x + 4 * kPart, 4);
    return SetBits1(pair);
  }
  template <int kPart>
  static inline W LoadW(const std::byte* w) {
    return kPart == 0 ? EvenBytes(LoadBits(w)) : OddBytes(LoadBitsAgain(w));
  }
  static inline V16 Step(V16 sum, X x, W w) { return AddPairs(sum, x, w); }
};

template <typename Op, int kPart, int R, int P>
[[gnu::always_inline]] static inline void StepPart(V16 (&sum)[R][P], const std::byte* const (&x)[R], const std::byte* panels,
                                                   size_t panel_bytes, size_t step) {
  typename Op::W w[P];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) w[p] = Op::template LoadW<kPart>(panels + static_cast<size_t>(p) * panel_bytes + step * Op::kStepBytes);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const typename Op::X xr = Op::template LoadX<kPart>(x[r] + step * Op::kInputStepBytes);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[r][p] = Op::Step(sum[r][p], xr, w[p]);
  }
}

// Steps [begin, end) of the chains; `hint` is told of every step.
template <typename Op, int R, int P, typename Hint>
[[gnu::always_inline]] static inline void RunSteps(V16 (&sum)[R][P], const std::byte* const (&x)[R], const std::byte* panels,
                                                   size_t panel_bytes, size_t begin, size_t end, Hint hint) {
  for (size_t s = begin; s < end; ++s) {
    hint.template Step<Op, P>(panels + s * Op::kStepBytes, panel_bytes, s);
    StepPart<Op, 0, R, P>(sum, x, panels, panel_bytes, s);
    if constexpr (Op::kParts == 2) StepPart<Op, 1, R, P>(sum, x, panels, panel_bytes, s);
  }
}

struct NoHint {
  template <typename Op, int P>
  [[gnu::always_inline]] inline void Step(const std::byte*, size_t, size_t) const {}
};

// Asks for the same panels `bytes` further on.
struct AskAhead {
  ptrdiff_t bytes;
  template <typename Op, int P>
  [[gnu::always_inline]] inline void Step(const std::byte* at, size_t panel_bytes, size_t) const {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const char* line = reinterpret_cast<const char*>(at + static_cast<size_t>(p) * panel_bytes + bytes);
      _mm_prefetch(line, _MM_HINT_T0);
      if constexpr (Op::kStepBytes == 128) _mm_prefetch(line + 64, _MM_HINT_T0);
    }
  }
};

// Asks for up to two panels of the next piece, step by step. A stride of zero asks for a line that is there already.
struct AskNext {
  const std::byte* first;
  const std::byte* second;
  size_t first_stride;
  size_t second_stride;
  template <typename Op, int P>
  [[gnu::always_inline]] inline void Step(const std::byte*, size_t, size_t step) const {
    const char* lines[2] = {reinterpret_cast<const char*>(first + step * first_stride),
                            reinterpret_cast<const char*>(second + step * second_stride)};
    for (const char* line : lines) {
      _mm_prefetch(line, _MM_HINT_T0);
      if constexpr (Op::kStepBytes == 128) _mm_prefetch(line + 64, _MM_HINT_T0);
    }
  }
};

constexpr int kGroupPanels = 4;
constexpr int kBatchBlocks = 16;
// Few blocks of rows are over before a piece of kPieceBytes per panel has arrived: there a piece and the next one fit the first-level
// cache, and what is asked for is used soon (M=16: 78 % of its roof against 68 %; Zen 5, linear_bench).
constexpr size_t kSmallPieceBytes = 4 * 1024;
constexpr int kSmallPieceBlocks = 3;
constexpr size_t kAheadBytes = 1024;

// A block of rows and some panels of a group, over one range of k.
struct BlockArgs {
  const std::byte* x[kRowsWide];  // at the first k of the range
  const std::byte* panels;        // likewise
  size_t panel_bytes;
  size_t steps;
  V16* sums;  // [rows][kGroupPanels]
  bool is_first_range;
  AskNext next;
};

template <typename Op, int R, int P, typename Hint>
static void RunBlock(const BlockArgs& a) {
  if constexpr (P > kPanelsOfRows[R]) return;  // never asked for
  const std::byte* x[R];
  V16 sum[R][P];
  for (int r = 0; r < R; ++r) {
    x[r] = a.x[r];
    for (int p = 0; p < P; ++p) sum[r][p] = a.is_first_range ? Zero() : a.sums[r * kGroupPanels + p];
  }
  if constexpr (__is_same(Hint, AskAhead)) {
    // The last kilobyte asks for the beginning of the panels that follow.
    const size_t ahead = kAheadBytes / Op::kStepBytes;
    const size_t turn = a.steps > ahead ? a.steps - ahead : 0;
    RunSteps<Op, R, P>(sum, x, a.panels, a.panel_bytes, 0, turn, AskAhead{kAheadBytes});
    const ptrdiff_t following = static_cast<ptrdiff_t>(P * a.panel_bytes) - static_cast<ptrdiff_t>(turn * Op::kStepBytes);
    RunSteps<Op, R, P>(sum, x, a.panels, a.panel_bytes, turn, a.steps, AskAhead{following});
  } else {
    RunSteps<Op, R, P>(sum, x, a.panels, a.panel_bytes, 0, a.steps, a.next);
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) a.sums[r * kGroupPanels + p] = sum[r][p];
  }
}

template <typename Op, int P, typename Hint>
static void RunRows(const BlockArgs& a, int32_t rows) {
  static_assert(kRowsWide == 6);
  switch (rows) {
    case 1: return RunBlock<Op, 1, P, Hint>(a);
    case 2: return RunBlock<Op, 2, P, Hint>(a);
    case 3: return RunBlock<Op, 3, P, Hint>(a);
    case 4: return RunBlock<Op, 4, P, Hint>(a);
    case 5: return RunBlock<Op, 5, P, Hint>(a);
    default: return RunBlock<Op, 6, P, Hint>(a);
  }
}

template <typename Op, typename Hint>
static void RunPanels(const BlockArgs& a, int32_t rows, int32_t panels) {
  switch (panels) {
    case 1: return RunRows<Op, 1, Hint>(a, rows);
    case 2: return RunRows<Op, 2, Hint>(a, rows);
    default: return RunRows<Op, 4, Hint>(a, rows);
  }
}

// Panels that a block of so many rows takes at once, of `left` in the group: the widest that the registers hold.
static inline int32_t BlockPanels(int32_t rows, int32_t left) {
  const int32_t widest = kPanelsOfRows[rows];
  return left >= widest ? widest : left >= 2 && widest > 2 ? 2 : 1;
}

static inline int32_t NumCalls(int32_t rows, int32_t panels) {
  int32_t calls = 0;
  for (int32_t p = 0; p < panels; p += BlockPanels(rows, panels - p)) ++calls;
  return calls;
}

// The blocks of a product: rows divided as evenly as possible into blocks of at most kRowsWide.
struct RowBlocks {
  int32_t rows;
  int32_t count;
  explicit RowBlocks(int32_t rows_in) : rows(rows_in), count((rows_in + kRowsWide - 1) / kRowsWide) {}
  int32_t Begin(int32_t block) const { return static_cast<int32_t>(static_cast<int64_t>(rows) * block / count); }
};

// A group of panels, for all rows.
template <typename Op, typename Sink>
class Group {
 public:
  Group(const LinearArgs& args, int32_t first_panel, V16* sums)
      : a_(args),
        first_(first_panel),
        sums_(sums),
        blocks_(args.rows),
        panels_(args.num_panels - first_panel < kGroupPanels ? args.num_panels - first_panel : kGroupPanels),
        // An f32 panel holds exactly in_features rows of 16; the others round up to whole words (the padding is zero).
        steps_(static_cast<size_t>((args.in_features + (Op::kStepBytes == 128 ? 0 : Op::kStepInputs - 1)) / Op::kStepInputs)),
        is_streamed_(blocks_.count == 1 && kPanelsOfRows[args.rows] >= panels_) {}

  void Run() {
    const size_t range_steps = (blocks_.count <= kSmallPieceBlocks ? kSmallPieceBytes : kPieceBytes) / Op::kStepBytes;
    const bool has_ranges = steps_ > range_steps && !is_streamed_;
    const int32_t batch = has_ranges ? kBatchBlocks : blocks_.count;
    for (int32_t block = 0; block < blocks_.count; block += batch) {
      const int32_t end = block + batch < blocks_.count ? block + batch : blocks_.count;
      const bool is_last_batch = end == blocks_.count;
      size_t begin = 0;
      do {
        const size_t steps = has_ranges && steps_ - begin > range_steps ? range_steps : steps_ - begin;
        const bool is_last_range = begin + steps == steps_;
        Pass(block, end, begin, steps, !is_last_range || is_last_batch);
        begin += steps;
      } while (begin < steps_);
    }
  }

 private:
  const std::byte* Panel(int32_t panel) const { return a_.panels + static_cast<size_t>(panel) * a_.panel_bytes; }

  // Blocks [block, end) of rows over steps [begin, begin + steps) of k.
  void Pass(int32_t block, int32_t end, size_t begin, size_t steps, bool has_next) {
    const bool is_last_range = begin + steps == steps_;
    const bool is_whole = is_last_range && begin == 0;
    Next next = has_next ? NextPiece(begin + steps) : Next{};
    int32_t calls_left = 0;
    for (int32_t b = block; b < end; ++b) calls_left += NumCalls(blocks_.Begin(b + 1) - blocks_.Begin(b), panels_);
    for (int32_t b = block; b < end; ++b) {
      const int32_t row = blocks_.Begin(b);
      const int32_t rows = blocks_.Begin(b + 1) - row;
      V16* sums = sums_ + (is_whole ? 0 : (b - block) * kRowsWide * kGroupPanels);
      BlockArgs args;
      args.panel_bytes = a_.panel_bytes;
      args.steps = steps;
      args.is_first_range = begin == 0;
      for (int32_t r = 0; r < rows; ++r) args.x[r] = Row(row + r) + begin * Op::kInputStepBytes;
      for (int32_t p = 0; p < panels_;) {
        const int32_t width = BlockPanels(rows, panels_ - p);
        args.panels = Panel(first_ + p) + begin * Op::kStepBytes;
        args.sums = sums + p;
        if (is_streamed_) {
          RunPanels<Op, AskAhead>(args, rows, width);
        } else {
          args.next = Ask(args.panels, next, calls_left);
          RunPanels<Op, AskNext>(args, rows, width);
        }
        --calls_left;
        p += width;
      }
      if (is_last_range) Finish(row, rows, sums);
    }
  }

  // What follows a piece: panels that have not been asked for yet.
  struct Next {
    const std::byte* panels;
    int32_t count;
  };
  Next NextPiece(size_t step) const {
    if (step < steps_) return {Panel(first_) + step * Op::kStepBytes, panels_};
    const int32_t panel = first_ + kGroupPanels;
    const int32_t left = a_.num_panels - panel;
    return left > 0 ? Next{Panel(panel), left < kGroupPanels ? left : kGroupPanels} : Next{nullptr, 0};
  }

  // The last calls of a pass share out the panels of the next piece.
  AskNext Ask(const std::byte* here, Next& next, int32_t calls_left) const {
    AskNext ask{here, here, 0, 0};
    if (calls_left > kGroupPanels || next.count == 0) return ask;
    const bool takes_two = next.count > calls_left;
    ask.first = next.panels;
    ask.first_stride = Op::kStepBytes;
    if (takes_two) {
      ask.second = next.panels + a_.panel_bytes;
      ask.second_stride = Op::kStepBytes;
    }
    next.panels += (takes_two ? 2 : 1) * a_.panel_bytes;
    next.count -= takes_two ? 2 : 1;
    return ask;
  }

  const std::byte* Row(int32_t row) const {
    const int32_t source = a_.row_index != nullptr ? a_.row_index[row] : row;
    return a_.x + static_cast<size_t>(source) * a_.x_row_bytes;
  }

  void Finish(int32_t row, int32_t rows, V16* sums) const {
    if (Op::kStepBytes == 128 && a_.in_features % 2 != 0) AddOddInput(row, rows, sums);
    for (int32_t r = 0; r < rows; ++r) Sink::Emit(a_, row + r, first_, panels_, sums + r * kGroupPanels);
  }

  // The last k of f32 panels with an odd number of them.
  void AddOddInput(int32_t row, int32_t rows, V16* sums) const {
    for (int32_t p = 0; p < panels_; ++p) {
      const V16 w = Load(reinterpret_cast<const float*>(Panel(first_ + p) + steps_ * Op::kStepBytes));
      for (int32_t r = 0; r < rows; ++r) {
        V16& sum = sums[r * kGroupPanels + p];
        sum = Fma(w, Set1(reinterpret_cast<const float*>(Row(row + r))[a_.in_features - 1]), sum);
      }
    }
  }

  const LinearArgs& a_;
  int32_t first_;
  V16* sums_;
  RowBlocks blocks_;
  int32_t panels_;
  size_t steps_;
  bool is_streamed_;  // one block takes all rows and panels of a group at once
};

// What becomes of the sums of one row over `panels` panels from `first` on.
struct StoreSums {
  static inline void Emit(const LinearArgs& a, int32_t row, int32_t first, int32_t panels, const V16* sums) {
    float* out = reinterpret_cast<float*>(a.out + static_cast<size_t>(row) * a.out_row_bytes);
    for (int32_t p = 0; p < panels; ++p) {
      const int32_t col = (first + p) * 16;
      const int32_t valid = a.out_cols - col;
      if (valid >= 16) {
        Store(out + col, a.accumulate == Accumulate::kAdd ? Add(Load(out + col), sums[p]) : sums[p]);
      } else if (valid > 0) {
        StoreN(out + col, a.accumulate == Accumulate::kAdd ? Add(LoadN(out + col, valid), sums[p]) : sums[p], valid);
      }
    }
  }
};

struct StoreSwiGlu {
  static inline void Emit(const LinearArgs& a, int32_t row, int32_t first, int32_t panels, const V16* sums) {
    std::byte* out = a.out + static_cast<size_t>(row) * a.out_row_bytes;
    for (int32_t p = 0; p + 1 < panels; p += 2) {
      const int32_t col = (first + p) * 8;
      if (a.out_cols > col) StoreAsN(a.out_type, out, col, Mul(Silu(sums[p]), sums[p + 1]), a.out_cols - col);
    }
  }
};

// The f32 value of int8 sums: times the row's scale, then the column's.
struct Int8Columns {
  const std::byte* scales;
  size_t panel_bytes;
  V16 row_scale;
  Int8Columns(const LinearArgs& a, int32_t row)
      : scales(a.panels + a.panel_bytes - 128),
        panel_bytes(a.panel_bytes),
        row_scale(Set1(a.row_scales[a.row_index != nullptr ? a.row_index[row] : row])) {}
  V16 Widen(V16 sums, int32_t panel) const {
    const float* scale = reinterpret_cast<const float*>(scales + static_cast<size_t>(panel) * panel_bytes);
    return Mul(Mul(IntToF32(sums, reinterpret_cast<const int32_t*>(scale + 16)), row_scale), Load(scale));
  }
};

struct StoreInt8Sums {
  static inline void Emit(const LinearArgs& a, int32_t row, int32_t first, int32_t panels, const V16* sums) {
    const Int8Columns columns(a, row);
    V16 wide[kGroupPanels];
    for (int32_t p = 0; p < panels; ++p) wide[p] = columns.Widen(sums[p], first + p);
    StoreSums::Emit(a, row, first, panels, wide);
  }
};

struct StoreInt8SwiGlu {
  static inline void Emit(const LinearArgs& a, int32_t row, int32_t first, int32_t panels, const V16* sums) {
    const Int8Columns columns(a, row);
    V16 wide[kGroupPanels];
    for (int32_t p = 0; p < panels; ++p) wide[p] = columns.Widen(sums[p], first + p);
    StoreSwiGlu::Emit(a, row, first, panels, wide);
  }
};

template <typename Op, typename Sink>
static void Product(const LinearArgs& a) {
  V16 sums[kBatchBlocks * kRowsWide * kGroupPanels];
  for (int32_t panel = 0; panel < a.num_panels; panel += kGroupPanels) Group<Op, Sink>(a, panel, sums).Run();
}
