// Norms, expert combination and reductions over one row. Four interleaved sums in a fixed order.
// Included once per instruction-set unit, inside its namespace.

static inline float SumOfProducts(const float* a, const float* b, int32_t size) {
  V16 sum[4] = {Zero(), Zero(), Zero(), Zero()};
  int32_t i = 0;
  for (; i + 64 <= size; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[j] = Fma(Load(a + i + 16 * j), Load(b + i + 16 * j), sum[j]);
  }
  for (int j = 0; i < size; i += 16, ++j) sum[j] = Fma(LoadN(a + i, size - i), LoadN(b + i, size - i), sum[j]);
  return ReduceAdd(Add(Add(sum[0], sum[1]), Add(sum[2], sum[3])));
}

static float Dot(const float* a, const float* b, int32_t size) {
  return SumOfProducts(a, b, size);
}

static void Scale(float* x, int32_t size, float scale) {
  for (int32_t i = 0; i < size; i += 16) StoreN(x + i, Mul(LoadN(x + i, size - i), Set1(scale)), size - i);
}

static void Norm(const NormArgs& a) {
  const float mean = SumOfProducts(a.x, a.x, a.size) / static_cast<float>(a.size);
  const V16 scale = Set1(1.0f / __builtin_sqrtf(mean + a.eps));
  for (int32_t i = 0; i < a.size; i += 16) {
    const int32_t n = a.size - i;
    V16 y = Mul(Mul(LoadN(a.x + i, n), scale), LoadN(a.weight + i, n));
    if (a.gate != nullptr) y = Mul(y, Silu(LoadN(a.gate + i, n)));
    StoreAsN(a.out_type, a.out, i, y, n);
  }
}

static inline V16 Abs(V16 x) {
  return Max(x, Sub(Zero(), x));
}

static float MaxAbs(const float* x, int32_t size) {
  V16 max[4] = {Zero(), Zero(), Zero(), Zero()};
  int32_t i = 0;
  for (; i + 64 <= size; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) max[j] = Max(Abs(Load(x + i + 16 * j)), max[j]);  // a NaN in x yields max
  }
  for (; i < size; i += 16) max[0] = Max(Abs(LoadN(x + i, size - i)), max[0]);
  return ReduceMax(Max(Max(max[0], max[1]), Max(max[2], max[3])));
}

// kInt8Pairs fills up whole vectors: rows are padded to cache lines.
static inline void StoreInt8(std::byte* row, int32_t i, V16 biased, int32_t n) {
  if constexpr (kInt8Input == InputType::kInt8) {
    StoreBytesN(row + i, biased, n);
  } else {
    StorePairs(row + static_cast<size_t>(i) * 2, biased);
  }
}

// Division, not a multiplication with the reciprocal: the formats define the rounded quotient.
static void Quantize(const QuantizeArgs& a) {
  const float largest = a.input.is_dynamic() ? MaxAbs(a.x, a.size) : 0.0f;
  const float scale = !a.input.is_dynamic() ? a.input.scale : largest > 0 ? largest / 127.0f : 1.0f;
  const V16 divisor = Set1(scale);
  const V16 offset = Set1(a.input.offset);
  const V16 lowest = Set1(-128.0f);
  const V16 highest = Set1(127.0f);
  for (int32_t i = 0; i < a.size; i += 16) {
    const int32_t n = a.size - i;
    const V16 q = Round(Add(Div(LoadN(a.x + i, n), divisor), offset));
    StoreInt8(a.out, i, Sub(Min(Max(q, lowest), highest), lowest), n);
  }
  *a.row_scale = a.input.is_dynamic() ? scale : 1.0f;
}

static void Combine(const CombineArgs& a) {
  for (int32_t i = 0; i < a.size; i += 16) {
    const int32_t n = a.size - i;
    V16 sum = Zero();
    for (int32_t j = 0; j < a.count; ++j) sum = Fma(LoadN(a.rows[j] + i, n), Set1(a.weights[j]), sum);
    if (a.shared != nullptr) sum = Fma(LoadN(a.shared + i, n), Set1(a.shared_scale), sum);
    StoreN(a.hidden + i, Add(LoadN(a.hidden + i, n), sum), n);
  }
}

static void ArgMaxRow(const float* x, int32_t size, float* max, int32_t* index) {
  const V16 none = Set1(-__builtin_inff());
  V16 best[4] = {none, none, none, none};
  int32_t i = 0;
  for (; i + 64 <= size; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) best[j] = Max(Load(x + i + 16 * j), best[j]);  // a NaN in x yields best
  }
  for (; i < size; i += 16) best[0] = Max(KeepN(LoadN(x + i, size - i), size - i, none), best[0]);
  *max = ReduceMax(Max(Max(best[0], best[1]), Max(best[2], best[3])));
  *index = -1;
  for (i = 0; i < size; ++i) {
    if (x[i] == *max) {
      *index = i;
      return;
    }
  }
}

static float SumExp(const float* x, int32_t size, float max) {
  V16 sum[4] = {Zero(), Zero(), Zero(), Zero()};
  const V16 top = Set1(max);
  int32_t i = 0;
  for (; i + 64 <= size; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[j] = Add(sum[j], Exp(Sub(Load(x + i + 16 * j), top)));
  }
  for (int j = 0; i < size; i += 16, ++j) sum[j] = Add(sum[j], KeepN(Exp(Sub(LoadN(x + i, size - i), top)), size - i, Zero()));
  return ReduceAdd(Add(Add(sum[0], sum[1]), Add(sum[2], sum[3])));
}
