// Sixteen f32 lanes on AVX-512: one register. The kernel bodies (*_inl.h) are written in these words; vec_avx2.h has the same words
// with the same arithmetic per lane, so both families give the same bits.
// Included once per instruction-set unit, inside its namespace.

struct V16 {
  __m512 v;
};
using Bits16 = __m512i;

static inline V16 Zero() {
  return {_mm512_setzero_ps()};
}
static inline V16 Set1(float x) {
  return {_mm512_set1_ps(x)};
}
static inline V16 Load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
static inline void Store(float* p, V16 a) {
  _mm512_storeu_ps(p, a.v);
}
static inline __mmask16 FirstN(int32_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}
static inline V16 LoadN(const float* p, int32_t n) {
  return {_mm512_maskz_loadu_ps(FirstN(n), p)};
}
static inline void StoreN(float* p, V16 a, int32_t n) {
  _mm512_mask_storeu_ps(p, FirstN(n), a.v);
}
// columns[j] = p[j], p[4 + j], p[8 + j], ...: a row-major 16 x 4 matrix by columns
static inline void Load16x4(const float* p, V16* columns) {
  const __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16), c = _mm512_loadu_ps(p + 32), d = _mm512_loadu_ps(p + 48);
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
  for (int j = 0; j < 4; ++j) {
    const __m512i index = _mm512_add_epi32(first, _mm512_set1_epi32(j));
    columns[j].v = _mm512_shuffle_f32x4(_mm512_permutex2var_ps(a, index, b), _mm512_permutex2var_ps(c, index, d), 0x44);
  }
}
// a = e0 o0 e1 o1 ..., b = e8 o8 ...: the even and the odd elements, and back
static inline void Deinterleave(V16 a, V16 b, V16* even, V16* odd) {
  const __m512i index = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even->v = _mm512_permutex2var_ps(a.v, index, b.v);
  odd->v = _mm512_permutex2var_ps(a.v, _mm512_add_epi32(index, _mm512_set1_epi32(1)), b.v);
}
static inline void Interleave(V16 even, V16 odd, V16* a, V16* b) {
  const __m512i index = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  a->v = _mm512_permutex2var_ps(even.v, index, odd.v);
  b->v = _mm512_permutex2var_ps(even.v, _mm512_add_epi32(index, _mm512_set1_epi32(8)), odd.v);
}
static inline V16 Add(V16 a, V16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
static inline V16 Sub(V16 a, V16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
static inline V16 Mul(V16 a, V16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
static inline V16 Div(V16 a, V16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
static inline V16 Fma(V16 a, V16 b, V16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
static inline V16 Max(V16 a, V16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}  // b where a is NaN
static inline V16 Min(V16 a, V16 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
static inline V16 Round(V16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// where a < b: x, else y
static inline V16 IfLess(V16 a, V16 b, V16 x, V16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
// where a is NaN: a, else b
static inline V16 KeepNan(V16 a, V16 b) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), b.v, a.v)};
}
// lanes below n: a, else fill
static inline V16 KeepN(V16 a, int32_t n, V16 fill) {
  return {_mm512_mask_blend_ps(FirstN(n), fill.v, a.v)};
}
// a * 2^n for integral n, by the exponent field: a and the result are normal numbers
static inline V16 ScaleByPow2(V16 a, V16 n) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23)))};
}
// 32-bit words holding two bf16 each: the even (low) and the odd (high) one, widened.
static inline Bits16 LoadBits(const std::byte* p) {
  return _mm512_loadu_si512(p);
}
static inline Bits16 LoadBitsAgain(const std::byte* p) {
  return LoadBits(p);
}
static inline V16 EvenBf16(Bits16 w) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(w, 16))};
}
static inline V16 OddBf16(Bits16 w) {
  return {_mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}
static inline Bits16 SetBits1(int32_t word) {
  return _mm512_set1_epi32(word);
}
// Bytes 0 and 2 of every word, or 1 and 3, as int16.
static inline Bits16 EvenBytes(Bits16 w) {
  return _mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8);
}
static inline Bits16 OddBytes(Bits16 w) {
  return _mm512_srai_epi16(w, 8);
}
// int32 lanes: sum + a0 b0 + a1 b1
static inline V16 AddPairs(V16 sum, Bits16 a, Bits16 b) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum.v), _mm512_madd_epi16(a, b)))};
}
// int32 lanes plus `bias`, as f32
static inline V16 IntToF32(V16 sums, const int32_t* bias) {
  return {_mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_castps_si512(sums.v), _mm512_loadu_si512(bias)))};
}
// whole numbers from 0 to 255 as bytes
static inline void StoreBytesN(std::byte* p, V16 a, int32_t n) {
  _mm512_mask_cvtusepi32_storeu_epi8(p, FirstN(n), _mm512_cvtps_epi32(a.v));
}
// whole numbers as int16, every four in the order 0, 2, 1, 3
static inline void StorePairs(std::byte* p, V16 a) {
  const __m256i words = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v));
  const __m256i swapped = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), swapped);
}
// sixteen bf16 in a row
static inline V16 LoadBf16(const std::byte* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
}
static inline V16 LoadBf16N(const std::byte* p, int32_t n) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(FirstN(n), p)), 16))};
}
// Round half to even; NaN stays NaN.
static inline __m256i ToBf16Bits(V16 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
}
static inline void StoreBf16(std::byte* p, V16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToBf16Bits(a));
}
static inline void StoreBf16N(std::byte* p, V16 a, int32_t n) {
  _mm256_mask_storeu_epi16(p, FirstN(n), ToBf16Bits(a));
}
// Horizontal reductions, always in this order: lanes i and i+8, then 4, 2, 1 apart.
static inline __m256 Fold(V16 a, __m256 (*op)(__m256, __m256)) {
  return op(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
}
