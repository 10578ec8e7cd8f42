// simd/vec.hpp on AVX2, FMA and F16C.
#pragma once

#include "simd/intrinsics.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

struct F8 {
  __m256 v;
};
#if defined(PRISMEM_TARGET_AVX512)
struct D8 {
  __m512d v;
};
#else
struct D8 {
  __m256d low;
  __m256d high;
};
#endif

inline float to_float(float value) { return value; }
inline float to_float(Half value) { return _cvtsh_ss(value.bits); }
inline float to_float(Bfloat value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  float result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}

inline F8 zero8() { return F8{_mm256_setzero_ps()}; }

inline F8 load8(const float* p) { return F8{_mm256_loadu_ps(p)}; }
inline F8 load8(const Half* p) { return F8{_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
inline F8 load8(const Bfloat* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return F8{_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}

// Reads `count` < 8 elements and not a byte more: a row may end at the last byte of a page.
template <class T>
inline F8 load8_tail(const T* p, std::int64_t count) {
  T filled[8] = {};
  for (std::int64_t i = 0; i < count; ++i) filled[i] = p[i];
  return load8(filled);
}

inline void store8(float* p, F8 a) { _mm256_storeu_ps(p, a.v); }

inline F8 fma8(F8 a, F8 b, F8 c) { return F8{_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline void keep(F8& a) { keep_in_register(a.v); }

inline F8 splat8(float x) { return F8{_mm256_set1_ps(x)}; }
inline F8 max8(F8 a, F8 b) { return F8{_mm256_max_ps(a.v, b.v)}; }
inline unsigned equal8(F8 a, F8 b) { return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ))); }

inline float sum8(F8 a) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline void sum8_of4(const F8 (&a)[4], float* out) {
  __m128 four[4];
  for (int i = 0; i < 4; ++i) four[i] = _mm_add_ps(_mm256_castps256_ps128(a[i].v), _mm256_extractf128_ps(a[i].v, 1));
  const __m128 two01 = _mm_add_ps(_mm_movelh_ps(four[0], four[1]), _mm_movehl_ps(four[1], four[0]));
  const __m128 two23 = _mm_add_ps(_mm_movelh_ps(four[2], four[3]), _mm_movehl_ps(four[3], four[2]));
  _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(two01, two23, 0x88), _mm_shuffle_ps(two01, two23, 0xdd)));
}

inline F8 mul8(F8 a, F8 b) { return F8{_mm256_mul_ps(a.v, b.v)}; }

inline unsigned outside8(F8 a, F8 limit) {
  const __m256 beyond = _mm256_cmp_ps(a.v, limit.v, _CMP_NLE_UQ);
  const __m256 minus_infinity = _mm256_cmp_ps(a.v, _mm256_set1_ps(-3.402823466e+38f), _CMP_LT_OQ);
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_or_ps(beyond, minus_infinity)));
}

inline F8 cosine8(F8 dots, double query_norm, const double* key_norms) {
  const __m256d norm = _mm256_set1_pd(query_norm);
  const __m256d low = _mm256_div_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(dots.v)), norm);
  const __m256d high = _mm256_div_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(dots.v, 1)), norm);
  const __m128 first = _mm256_cvtpd_ps(_mm256_div_pd(low, _mm256_loadu_pd(key_norms)));
  const __m128 second = _mm256_cvtpd_ps(_mm256_div_pd(high, _mm256_loadu_pd(key_norms + 4)));
  const __m256 cosines = _mm256_insertf128_ps(_mm256_castps128_ps256(first), second, 1);
  // In this order of the operands a NaN stays NaN.
  return F8{_mm256_max_ps(_mm256_set1_ps(-1.0f), _mm256_min_ps(_mm256_set1_ps(1.0f), cosines))};
}

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

#if defined(PRISMEM_TARGET_AVX512)
inline D8 zero_d8() { return D8{_mm512_setzero_pd()}; }

inline D8 square_add(F8 a, D8 acc) {
  const __m512d wide = _mm512_cvtps_pd(a.v);
  return D8{_mm512_fmadd_pd(wide, wide, acc.v)};
}

inline __m256d fold_d8(D8 a) { return _mm256_add_pd(_mm512_castpd512_pd256(a.v), _mm512_extractf64x4_pd(a.v, 1)); }
#else
inline D8 zero_d8() { return D8{_mm256_setzero_pd(), _mm256_setzero_pd()}; }

inline D8 square_add(F8 a, D8 acc) {
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(a.v));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1));
  return D8{_mm256_fmadd_pd(low, low, acc.low), _mm256_fmadd_pd(high, high, acc.high)};
}

inline __m256d fold_d8(D8 a) { return _mm256_add_pd(a.low, a.high); }
#endif

inline double sum_d8(D8 a) {
  const __m256d four = fold_d8(a);
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
