// Sixteen f32 lanes on AVX2: two registers. The same words and the same arithmetic per lane as vec_avx512.h.
// Included once per instruction-set unit, inside its namespace.

struct V16 {
  __m256 lo;
  __m256 hi;
};
struct Bits16 {
  __m256i lo;
  __m256i hi;
};

static inline V16 Zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
static inline V16 Set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline V16 Load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void Store(float* p, V16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
static inline __m256i FirstN8(int32_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline V16 LoadN(const float* p, int32_t n) {
  if (n >= 16) return Load(p);
  return {_mm256_maskload_ps(p, FirstN8(n)), _mm256_maskload_ps(p + 8, FirstN8(n - 8))};
}
static inline void StoreN(float* p, V16 a, int32_t n) {
  if (n >= 16) return Store(p, a);  // a masked store costs tens of cycles
  _mm256_maskstore_ps(p, FirstN8(n), a.lo);
  _mm256_maskstore_ps(p + 8, FirstN8(n - 8), a.hi);
}
// columns[j] = p[j], p[4 + j], p[8 + j], ...: a row-major 16 x 4 matrix by columns
static inline void Load8x4(const float* p, __m256 (&columns)[4]) {
  // Lanes hold rows r and r+4, so that transposing the lanes puts rows 0..3 and 4..7 in order.
  const auto rows = [p](int r) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4 * r)), _mm_loadu_ps(p + 4 * (r + 4)), 1);
  };
  const __m256 a = rows(0), b = rows(1), c = rows(2), d = rows(3);
  const __m256 ab_low = _mm256_unpacklo_ps(a, b), ab_high = _mm256_unpackhi_ps(a, b);
  const __m256 cd_low = _mm256_unpacklo_ps(c, d), cd_high = _mm256_unpackhi_ps(c, d);
  columns[0] = _mm256_shuffle_ps(ab_low, cd_low, 0x44);
  columns[1] = _mm256_shuffle_ps(ab_low, cd_low, 0xee);
  columns[2] = _mm256_shuffle_ps(ab_high, cd_high, 0x44);
  columns[3] = _mm256_shuffle_ps(ab_high, cd_high, 0xee);
}
static inline void Load16x4(const float* p, V16* columns) {
  __m256 low[4], high[4];
  Load8x4(p, low);
  Load8x4(p + 32, high);
  for (int j = 0; j < 4; ++j) columns[j] = {low[j], high[j]};
}
static inline V16 Add(V16 a, V16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline V16 Sub(V16 a, V16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline V16 Mul(V16 a, V16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline V16 Div(V16 a, V16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline V16 Fma(V16 a, V16 b, V16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline V16 Max(V16 a, V16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}  // b where a is NaN
static inline V16 Min(V16 a, V16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
static inline V16 Round(V16 a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kNearest), _mm256_round_ps(a.hi, kNearest)};
}
static inline V16 IfLess(V16 a, V16 b, V16 x, V16 y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
static inline V16 KeepNan(V16 a, V16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q))};
}
static inline V16 KeepN(V16 a, int32_t n, V16 fill) {
  return {_mm256_blendv_ps(fill.lo, a.lo, _mm256_castsi256_ps(FirstN8(n))),
          _mm256_blendv_ps(fill.hi, a.hi, _mm256_castsi256_ps(FirstN8(n - 8)))};
}
static inline __m256 ScaleByPow2(__m256 a, __m256 n) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}
static inline V16 ScaleByPow2(V16 a, V16 n) {
  return {ScaleByPow2(a.lo, n.lo), ScaleByPow2(a.hi, n.hi)};
}
static inline Bits16 LoadBits(const std::byte* p) {
  const auto* words = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}
// Loads a second time what the compiler would rather keep in registers that it does not have: a sum on the stack would lengthen its
// chain.
static inline Bits16 LoadBitsAgain(const std::byte* p) {
  __asm__("" : "+r"(p));
  return LoadBits(p);
}
static inline V16 EvenBf16(Bits16 w) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(w.lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(w.hi, 16))};
}
static inline V16 OddBf16(Bits16 w) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(w.lo, high)), _mm256_castsi256_ps(_mm256_and_si256(w.hi, high))};
}
static inline Bits16 SetBits1(int32_t word) {
  const __m256i all = _mm256_set1_epi32(word);
  return {all, all};
}
// Bytes 0 and 2 of every word, or 1 and 3, as int16.
static inline Bits16 EvenBytes(Bits16 w) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(w.lo, 8), 8), _mm256_srai_epi16(_mm256_slli_epi16(w.hi, 8), 8)};
}
static inline Bits16 OddBytes(Bits16 w) {
  return {_mm256_srai_epi16(w.lo, 8), _mm256_srai_epi16(w.hi, 8)};
}
static inline __m256 AddPairs8(__m256 sum, __m256i a, __m256i b) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), _mm256_madd_epi16(a, b)));
}
// int32 lanes: sum + a0 b0 + a1 b1
static inline V16 AddPairs(V16 sum, Bits16 a, Bits16 b) {
  return {AddPairs8(sum.lo, a.lo, b.lo), AddPairs8(sum.hi, a.hi, b.hi)};
}
// int32 lanes plus `bias`, as f32
static inline V16 IntToF32(V16 sums, const int32_t* bias) {
  const auto* words = reinterpret_cast<const __m256i*>(bias);
  return {_mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_castps_si256(sums.lo), _mm256_loadu_si256(words))),
          _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_castps_si256(sums.hi), _mm256_loadu_si256(words + 1)))};
}
// whole numbers from 0 to 255 as bytes
static inline void StoreBytesN(std::byte* p, V16 a, int32_t n) {
  const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
  if (n >= 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  } else {
    __builtin_memcpy(p, &bytes, static_cast<size_t>(n));
  }
}
// whole numbers as int16, every four in the order 0, 2, 1, 3
static inline void StorePairs(std::byte* p, V16 a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)), 0xd8);
  const __m256i swapped = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), swapped);
}
static inline __m256 WidenBf16(const std::byte* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
static inline V16 LoadBf16(const std::byte* p) {
  return {WidenBf16(p), WidenBf16(p + 16)};
}
static inline V16 LoadBf16N(const std::byte* p, int32_t n) {
  alignas(32) uint16_t words[16] = {};
  const auto* source = reinterpret_cast<const uint16_t*>(p);
  for (int32_t i = 0; i < n && i < 16; ++i) words[i] = source[i];
  return LoadBf16(reinterpret_cast<const std::byte*>(words));
}
static inline __m256i RoundToBf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
static inline __m256i ToBf16Bits(V16 a) {
  // packus works within 128-bit halves; the permutation puts the quarters in order.
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(RoundToBf16(a.lo), RoundToBf16(a.hi)), 0xd8);
}
static inline void StoreBf16(std::byte* p, V16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToBf16Bits(a));
}
static inline void StoreBf16N(std::byte* p, V16 a, int32_t n) {
  alignas(32) uint16_t words[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), ToBf16Bits(a));
  auto* target = reinterpret_cast<uint16_t*>(p);
  for (int32_t i = 0; i < n && i < 16; ++i) target[i] = words[i];
}
static inline __m256 Fold(V16 a, __m256 (*op)(__m256, __m256)) {
  return op(a.lo, a.hi);
}
