// Gated delta rule and causal convolution. The state is visited in slices of 16 value columns; a slice stays in L1 while all tokens of
// the call run through it. Per token, from the sums S^T k and S^T q of the old state (two interleaved chains each, fixed order):
//     m = a S^T k,  d = beta (v - m),  o = a S^T q + (k.q) d,  S = a S + k d^T          (a = exp(g))
// The sweep that writes S also gathers the sums of the next token: the same operations in the same order as a sweep of its own, so a
// token has the same bits alone, in a chunk and in verification (NUM-1).
// Included once per instruction-set unit, inside its namespace.

constexpr size_t kSlicesAhead = 2;

// Sums over the key dimension of N slices, even and odd rows apart.
template <int N>
struct StateSums {
  V16 k[N][2];
  V16 q[N][2];
};

template <int N>
[[gnu::always_inline]] static inline void AddRow(StateSums<N>& sums, int half, int n, V16 s, V16 ki, V16 qi) {
  sums.k[n][half] = Fma(s, ki, sums.k[n][half]);
  sums.q[n][half] = Fma(s, qi, sums.q[n][half]);
}

// All tokens of a call in N slices from `slice` on.
template <int N>
class DeltaSlices {
 public:
  DeltaSlices(const DeltaRuleArgs& args, int32_t slice)
      : a_(args),
        slice_(slice),
        slice_floats_(static_cast<size_t>(args.key_dim) * 16),
        state_(args.state + static_cast<size_t>(slice) * slice_floats_) {}

  void Run() {
    StateSums<N> sums = Read(0);
    for (int32_t t = 0; t < a_.num_tokens; ++t) {
      V16 delta[N];
      Emit(t, sums, delta);
      if (t + 1 < a_.num_tokens) {
        sums = WriteAndRead(t, delta);
      } else {
        Write(t, delta);
      }
    }
  }

 private:
  const float* K(int32_t t) const { return a_.k + static_cast<ptrdiff_t>(t) * a_.qk_ld; }
  const float* Q(int32_t t) const { return a_.q + static_cast<ptrdiff_t>(t) * a_.qk_ld; }
  float* At(int n, int32_t row) const { return state_ + static_cast<size_t>(n) * slice_floats_ + static_cast<size_t>(row) * 16; }

  static StateSums<N> ZeroSums() {
    StateSums<N> sums;
    for (int n = 0; n < N; ++n) sums.k[n][0] = sums.k[n][1] = sums.q[n][0] = sums.q[n][1] = Zero();
    return sums;
  }

  // Calls visit(half, row) for all rows in order, two by two.
  template <typename Visit>
  [[gnu::always_inline]] inline void ForRows(const Visit& visit) const {
    int32_t i = 0;
    for (; i + 2 <= a_.key_dim; i += 2) {
      visit(0, i);
      visit(1, i + 1);
    }
    if (i < a_.key_dim) visit(0, i);
  }

  StateSums<N> Read(int32_t t) const {
    StateSums<N> sums = ZeroSums();
    const float* k = K(t);
    const float* q = Q(t);
    ForRows([&](int half, int32_t i) __attribute__((always_inline)) {
      const V16 ki = Set1(k[i]);
      const V16 qi = Set1(q[i]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) AddRow(sums, half, n, Load(At(n, i)), ki, qi);
    });
    return sums;
  }

  void Emit(int32_t t, const StateSums<N>& sums, V16 (&delta)[N]) const {
    const V16 decay = Set1(a_.decay[t]);
    for (int n = 0; n < N; ++n) {
      const int32_t col = (slice_ + n) * 16;
      const int32_t valid = a_.value_dim - col;
      const V16 v = LoadN(a_.v + static_cast<ptrdiff_t>(t) * a_.v_ld + col, valid);
      delta[n] = Mul(Set1(a_.beta[t]), Sub(v, Mul(decay, Add(sums.k[n][0], sums.k[n][1]))));
      const V16 out = Fma(Set1(a_.kq[t]), delta[n], Mul(decay, Add(sums.q[n][0], sums.q[n][1])));
      StoreN(a_.out + static_cast<ptrdiff_t>(t) * a_.out_ld + col, out, valid);
    }
  }

  StateSums<N> WriteAndRead(int32_t t, const V16 (&delta)[N]) const {
    StateSums<N> sums = ZeroSums();
    const V16 decay = Set1(a_.decay[t]);
    const float* k = K(t);
    const float* next_k = K(t + 1);
    const float* next_q = Q(t + 1);
    ForRows([&](int half, int32_t i) __attribute__((always_inline)) {
      const V16 ki = Set1(k[i]);
      const V16 next_ki = Set1(next_k[i]);
      const V16 next_qi = Set1(next_q[i]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const V16 s = Fma(ki, delta[n], Mul(decay, Load(At(n, i))));
        Store(At(n, i), s);
        AddRow(sums, half, n, s, next_ki, next_qi);
      }
    });
    return sums;
  }

  // The last token of the call: asks for the slices that follow, which are the next ones to be visited, here or by the next call.
  void Write(int32_t t, const V16 (&delta)[N]) const {
    const V16 decay = Set1(a_.decay[t]);
    const float* k = K(t);
    ForRows([&](int, int32_t i) __attribute__((always_inline)) {
      const V16 ki = Set1(k[i]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        float* s = At(n, i);
        _mm_prefetch(reinterpret_cast<const char*>(s + kSlicesAhead * slice_floats_), _MM_HINT_T0);
        Store(s, Fma(ki, delta[n], Mul(decay, Load(s))));
      }
    });
  }

  const DeltaRuleArgs& a_;
  int32_t slice_;
  size_t slice_floats_;
  float* state_;
};

static void DeltaRule(const DeltaRuleArgs& a) {
  const int32_t slices = (a.value_dim + 15) / 16;
  int32_t slice = 0;
  // Several slices share the broadcasts of k and q, where arithmetic sets the pace. A single token waits for memory, which prefers to be
  // asked for little at a time (Zen 5: 80 % of the update roof against 71 %).
  for (; a.num_tokens > 1 && slice + kDeltaSlices <= slices; slice += kDeltaSlices) DeltaSlices<kDeltaSlices>(a, slice).Run();
  for (; slice < slices; ++slice) DeltaSlices<1>(a, slice).Run();
}

constexpr int32_t kConvBlock = 128;  // channels
constexpr int32_t kTapsMax = 16;
constexpr int32_t kConvAhead = 3;  // tokens

// Weights of a block of channels by tap: [taps][kConvBlock].
static void TransposeTaps(const ConvArgs& a, int32_t channel, int32_t count, float* by_tap) {
  const float* weight = a.weight + static_cast<ptrdiff_t>(channel) * a.taps;
  int32_t c = 0;
  if (a.taps == 4) {
    for (; c + 16 <= count; c += 16) {
      V16 columns[4];
      Load16x4(weight + static_cast<ptrdiff_t>(c) * 4, columns);
      for (int j = 0; j < 4; ++j) Store(by_tap + j * kConvBlock + c, columns[j]);
    }
  }
  for (; c < count; ++c) {
    for (int32_t j = 0; j < a.taps; ++j) by_tap[j * kConvBlock + c] = weight[static_cast<ptrdiff_t>(c) * a.taps + j];
  }
}

static inline const float* ConvRow(const ConvArgs& a, int32_t token) {
  return token >= 0 ? a.x + static_cast<ptrdiff_t>(token) * a.x_ld : a.history[token + a.taps - 1];
}

// One token of a block of channels. Rows of x are far apart: the line that a later token needs is asked for here.
static inline void ConvToken(const ConvArgs& a, int32_t token, int32_t channel, int32_t count, const float* by_tap) {
  const float* rows[kTapsMax];
  for (int32_t j = 0; j < a.taps; ++j) rows[j] = ConvRow(a, token - (a.taps - 1) + j) + channel;
  const float* ahead = ConvRow(a, token + kConvAhead < a.num_tokens ? token + kConvAhead : token) + channel;
  float* out = a.out + static_cast<ptrdiff_t>(token) * a.out_ld + channel;
  for (int32_t c = 0; c < count; c += 16) {
    const int32_t n = count - c;
    _mm_prefetch(reinterpret_cast<const char*>(ahead + c), _MM_HINT_T0);
    V16 sum = Zero();
    if (a.taps == 4) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum = Fma(LoadN(by_tap + j * kConvBlock + c, n), LoadN(rows[j] + c, n), sum);
    } else {
      for (int32_t j = 0; j < a.taps; ++j) sum = Fma(LoadN(by_tap + j * kConvBlock + c, n), LoadN(rows[j] + c, n), sum);
    }
    StoreN(out + c, Silu(sum), n);
  }
}

static void ConvSilu(const ConvArgs& a) {
  float by_tap[kTapsMax * kConvBlock];
  for (int32_t c = 0; c < a.channels; c += kConvBlock) {
    const int32_t count = a.channels - c < kConvBlock ? a.channels - c : kConvBlock;
    TransposeTaps(a, c, count, by_tap);
    for (int32_t t = 0; t < a.num_tokens; ++t) ConvToken(a, t, c, count, by_tap);
  }
}
