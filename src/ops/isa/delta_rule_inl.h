// Gated delta rule and causal convolution. The state is visited in slices of 16 value columns; a slice stays in L1 while all tokens of
// the call run through it. Per token one sweep gives S^T k and S^T q of the old state (two interleaved sums each, fixed order), the
// output follows from those and k.q, a second sweep writes the state:
//     m = a S^T k,  d = beta (v - m),  o = a S^T q + (k.q) d,  S = a S + k d^T          (a = exp(g))
// Included once per instruction-set unit, inside its namespace.

template <int N>
static inline void DeltaSlices(const DeltaRuleArgs& a, int32_t slice) {
  const size_t slice_floats = static_cast<size_t>(a.key_dim) * 16;
  float* state = a.state + static_cast<size_t>(slice) * slice_floats;
  for (int32_t t = 0; t < a.num_tokens; ++t) {
    const float* k = a.k + static_cast<ptrdiff_t>(t) * a.qk_ld;
    const float* q = a.q + static_cast<ptrdiff_t>(t) * a.qk_ld;
    V16 sk[N][2], sq[N][2];
    for (int n = 0; n < N; ++n) sk[n][0] = sk[n][1] = sq[n][0] = sq[n][1] = Zero();
    int32_t i = 0;
    for (; i + 2 <= a.key_dim; i += 2) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const V16 ki = Set1(k[i + half]);
        const V16 qi = Set1(q[i + half]);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
          const V16 s = Load(state + static_cast<size_t>(n) * slice_floats + static_cast<size_t>(i + half) * 16);
          sk[n][half] = Fma(s, ki, sk[n][half]);
          sq[n][half] = Fma(s, qi, sq[n][half]);
        }
      }
    }
    if (i < a.key_dim) {
      for (int n = 0; n < N; ++n) {
        const V16 s = Load(state + static_cast<size_t>(n) * slice_floats + static_cast<size_t>(i) * 16);
        sk[n][0] = Fma(s, Set1(k[i]), sk[n][0]);
        sq[n][0] = Fma(s, Set1(q[i]), sq[n][0]);
      }
    }
    const V16 decay = Set1(a.decay[t]);
    V16 delta[N];
    for (int n = 0; n < N; ++n) {
      const int32_t col = (slice + n) * 16;
      const int32_t valid = a.value_dim - col;
      const V16 v = LoadN(a.v + static_cast<ptrdiff_t>(t) * a.v_ld + col, valid);
      delta[n] = Mul(Set1(a.beta[t]), Sub(v, Mul(decay, Add(sk[n][0], sk[n][1]))));
      const V16 out = Fma(Set1(a.kq[t]), delta[n], Mul(decay, Add(sq[n][0], sq[n][1])));
      StoreN(a.out + static_cast<ptrdiff_t>(t) * a.out_ld + col, out, valid);
    }
    for (i = 0; i < a.key_dim; ++i) {
      const V16 ki = Set1(k[i]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        float* s = state + static_cast<size_t>(n) * slice_floats + static_cast<size_t>(i) * 16;
        Store(s, Fma(ki, delta[n], Mul(decay, Load(s))));
      }
    }
  }
}

static void DeltaRule(const DeltaRuleArgs& a) {
  const int32_t slices = (a.value_dim + 15) / 16;
  int32_t slice = 0;
  for (; slice + kDeltaSlices <= slices; slice += kDeltaSlices) DeltaSlices<kDeltaSlices>(a, slice);
  for (; slice < slices; ++slice) DeltaSlices<1>(a, slice);
}

static void ConvSilu(const ConvArgs& a) {
  for (int32_t c = 0; c < a.channels; c += 16) {
    const int32_t n = a.channels - c < 16 ? a.channels - c : 16;
    float taps[16][16];  // [tap][channel]
    for (int32_t j = 0; j < a.taps; ++j) {
      for (int32_t i = 0; i < 16; ++i) taps[j][i] = i < n ? a.weight[static_cast<ptrdiff_t>(c + i) * a.taps + j] : 0.0f;
    }
    for (int32_t t = 0; t < a.num_tokens; ++t) {
      V16 sum = Zero();
      for (int32_t j = 0; j < a.taps; ++j) {
        const int32_t source = t - (a.taps - 1) + j;
        const float* x = source >= 0 ? a.x + static_cast<ptrdiff_t>(source) * a.x_ld
                                     : a.history + static_cast<ptrdiff_t>(source + a.taps - 1) * a.history_ld;
        sum = Fma(Load(taps[j]), LoadN(x + c, n), sum);
      }
      StoreN(a.out + static_cast<ptrdiff_t>(t) * a.out_ld + c, Silu(sum), n);
    }
  }
}
