// Sixteen lanes, one a candidate, for the sketch of mmr_select (simd/mmr_sketch.hpp). What is computed here only bounds scores, so
// instruction sets may differ in the last bits; sums of products of codes are exact.
#pragma once

#include "simd/intrinsics.hpp"
#include "simd/vec.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace lanes {

#if defined(PRISMEM_TARGET_AVX512)

struct Floats {
  __m512 v;
};
struct Sums {
  __m512i v;
};

inline Floats splat(float x) { return {_mm512_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Floats a) { _mm512_storeu_ps(p, a.v); }
inline Floats plus(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats minus(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats times(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats times_plus(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats minus_times(Floats c, Floats a, Floats b) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
inline Floats larger(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Floats size(Floats a) { return {_mm512_abs_ps(a.v)}; }
inline __m256 low_half(Floats a) { return _mm512_castps512_ps256(a.v); }
inline __m256 high_half(Floats a) { return _mm512_extractf32x8_ps(a.v, 1); }
inline std::uint32_t not_below(Floats a, Floats b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }

// The lowest byte of every lane.
inline __m128i low_bytes(Floats a) { return _mm512_cvtepi32_epi8(_mm512_castps_si512(a.v)); }

inline Sums no_sums() { return {_mm512_setzero_si512()}; }

// Codes are kept as code + 128, which the unsigned side of the product takes.
constexpr std::int32_t kCodeOffset = 128;
// Adds the products of four codes of a row, in every lane four codes of its own row.
inline Sums add_products(Sums sums, const std::int8_t* line, const std::int8_t* four) {
  std::int32_t codes;
  __builtin_memcpy(&codes, four, sizeof codes);
  return {_mm512_dpbusd_epi32(sums.v, _mm512_load_si512(line), _mm512_set1_epi32(codes))};
}
inline Sums add(Sums a, Sums b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Floats as_floats(Sums a, std::int32_t offset) { return {_mm512_cvtepi32_ps(_mm512_sub_epi32(a.v, _mm512_set1_epi32(offset)))}; }

#else

struct Floats {
  __m256 a;
  __m256 b;
};
struct Sums {
  __m256i a;
  __m256i b;
};

inline Floats splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Floats x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline Floats plus(Floats x, Floats y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Floats minus(Floats x, Floats y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Floats times(Floats x, Floats y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Floats times_plus(Floats x, Floats y, Floats z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline Floats minus_times(Floats z, Floats x, Floats y) { return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }
inline Floats larger(Floats x, Floats y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Floats size(Floats x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline __m256 low_half(Floats x) { return x.a; }
inline __m256 high_half(Floats x) { return x.b; }
inline std::uint32_t not_below(Floats x, Floats y) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ));
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 8;
}

inline __m128i low_bytes(Floats x) {
  const __m256i byte = _mm256_set1_epi32(0xff);
  const __m256i a = _mm256_and_si256(_mm256_castps_si256(x.a), byte);
  const __m256i b = _mm256_and_si256(_mm256_castps_si256(x.b), byte);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

inline Sums no_sums() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }

constexpr std::int32_t kCodeOffset = 0;
inline __m256i add_half(__m256i sums, const std::int8_t* line, __m256i codes, __m256i sizes) {
  // size * sign(code) * other: two of them are at most 2 * 127 * 127, which 16 bits hold.
  const __m256i others = _mm256_sign_epi8(_mm256_load_si256(reinterpret_cast<const __m256i*>(line)), codes);
  return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(sizes, others), _mm256_set1_epi16(1)));
}
inline Sums add_products(Sums sums, const std::int8_t* line, const std::int8_t* four) {
  std::int32_t bits;
  __builtin_memcpy(&bits, four, sizeof bits);
  const __m256i codes = _mm256_set1_epi32(bits);
  const __m256i sizes = _mm256_abs_epi8(codes);
  return {add_half(sums.a, line, codes, sizes), add_half(sums.b, line + 32, codes, sizes)};
}
inline Sums add(Sums x, Sums y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline Floats as_floats(Sums x, std::int32_t) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

#endif

inline float largest(Floats x) {
  const __m256 eight = _mm256_max_ps(low_half(x), high_half(x));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float total(Floats x) { return sum8(F8{_mm256_add_ps(low_half(x), high_half(x))}); }

// Takes the offset from the codes of one row, and returns their sum.
inline std::int32_t centre(std::int8_t* codes, std::int64_t count) {
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::int8_t>(codes[i] - kCodeOffset);
    sum += codes[i];
  }
  return sum;
}

// Four rows of sixteen bytes become four lines of sixteen: line i holds bytes 4 i .. 4 i + 3 of each row. Lines are 64 bytes apart.
inline void store_turned(const __m128i (&row)[4], std::int8_t* line) {
  const __m128i low01 = _mm_unpacklo_epi32(row[0], row[1]);
  const __m128i high01 = _mm_unpackhi_epi32(row[0], row[1]);
  const __m128i low23 = _mm_unpacklo_epi32(row[2], row[3]);
  const __m128i high23 = _mm_unpackhi_epi32(row[2], row[3]);
  _mm_store_si128(reinterpret_cast<__m128i*>(line), _mm_unpacklo_epi64(low01, low23));
  _mm_store_si128(reinterpret_cast<__m128i*>(line + 64), _mm_unpackhi_epi64(low01, low23));
  _mm_store_si128(reinterpret_cast<__m128i*>(line + 128), _mm_unpacklo_epi64(high01, high23));
  _mm_store_si128(reinterpret_cast<__m128i*>(line + 192), _mm_unpackhi_epi64(high01, high23));
}

}  // namespace lanes
}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
