// Reductions and elementary functions over V16. A lane's result does not depend on its position or its neighbours.
// Included once per instruction-set unit, inside its namespace.

static inline __m256 AddOp(__m256 a, __m256 b) {
  return _mm256_add_ps(a, b);
}
static inline __m256 MaxOp(__m256 a, __m256 b) {
  return _mm256_max_ps(a, b);
}

static inline float ReduceAdd(V16 a) {
  const __m256 eight = Fold(a, AddOp);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

static inline float ReduceMax(V16 a) {
  const __m256 eight = Fold(a, MaxOp);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// exp(x): x = n ln2 + r, |r| <= ln2/2, a polynomial of degree 6 in r (Cephes expf coefficients), times 2^n. Error below 2 ulp;
// results below the smallest normal number are 0, above the largest infinity; NaN stays NaN.
static inline V16 Exp(V16 x) {
  const V16 lowest = Set1(-87.336544f);
  const V16 highest = Set1(0x1.62e42ep6f);  // 88.72283, the largest x whose exp is finite: n = 128, and the polynomial is below 1
  const V16 in_range = Min(Max(x, lowest), highest);
  const V16 n = Round(Mul(in_range, Set1(1.44269504088896341f)));
  V16 r = Fma(n, Set1(-0.693359375f), in_range);
  r = Fma(n, Set1(2.12194440e-4f), r);
  V16 p = Set1(1.9875691500e-4f);
  p = Fma(p, r, Set1(1.3981999507e-3f));
  p = Fma(p, r, Set1(8.3334519073e-3f));
  p = Fma(p, r, Set1(4.1665795894e-2f));
  p = Fma(p, r, Set1(1.6666665459e-1f));
  p = Fma(p, r, Set1(5.0000001201e-1f));
  p = Add(Fma(p, Mul(r, r), r), Set1(1.0f));
  V16 result = ScaleByPow2(p, n);
  result = IfLess(x, lowest, Zero(), result);
  result = IfLess(highest, x, Set1(__builtin_inff()), result);
  return KeepNan(x, result);
}

static inline V16 Sigmoid(V16 x) {
  return Div(Set1(1.0f), Add(Set1(1.0f), Exp(Sub(Zero(), x))));
}
static inline V16 Silu(V16 x) {
  return Div(x, Add(Set1(1.0f), Exp(Sub(Zero(), x))));
}

static inline void StoreAs(InputType type, std::byte* row, int32_t col, V16 a) {
  if (type == InputType::kF32) {
    Store(reinterpret_cast<float*>(row) + col, a);
  } else {
    StoreBf16(row + static_cast<size_t>(col) * 2, a);
  }
}
static inline void StoreAsN(InputType type, std::byte* row, int32_t col, V16 a, int32_t n) {
  if (n >= 16) {
    StoreAs(type, row, col, a);
  } else if (type == InputType::kF32) {
    StoreN(reinterpret_cast<float*>(row) + col, a, n);
  } else {
    StoreBf16N(row + static_cast<size_t>(col) * 2, a, n);
  }
}
