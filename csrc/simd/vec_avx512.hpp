// simd/vec.hpp on AVX-512: the eight lanes of AVX2, and a wide vector that holds eight lanes of two queries.
#pragma once

#include "simd/vec_avx2.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

struct Wide {
  __m512 v;
};
constexpr int kWideQueries = 2;
#define PRISMEM_GROUP_KEYS 8
constexpr int kGroupKeys = PRISMEM_GROUP_KEYS;

inline Wide zero_wide() { return Wide{_mm512_setzero_ps()}; }
inline Wide load_wide(const float* p) { return Wide{_mm512_loadu_ps(p)}; }
inline Wide repeat_wide(const float* p) { return Wide{_mm512_broadcast_f32x8(_mm256_loadu_ps(p))}; }
inline Wide fma_wide(Wide a, Wide b, Wide c) { return Wide{_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline void keep(Wide& a) { keep_in_register(a.v); }

// The additions of sum8 for two queries and eight keys at once. A vector of `halves` holds (a0+a4, a1+a5, a2+a6, a3+a7) of keys k
// and k + 4, for both queries; each of the next two steps adds neighbours and doubles the number of keys in a vector.
inline void sum_group(const Wide (&sums)[kGroupKeys], float* out, std::int64_t stride) {
  __m512 halves[4];
  for (int k = 0; k < 4; ++k) {
    halves[k] = _mm512_add_ps(_mm512_shuffle_f32x4(sums[k].v, sums[k + 4].v, 0x88), _mm512_shuffle_f32x4(sums[k].v, sums[k + 4].v, 0xdd));
  }
  const __m512 first = _mm512_add_ps(_mm512_shuffle_ps(halves[0], halves[1], 0x44), _mm512_shuffle_ps(halves[0], halves[1], 0xee));
  const __m512 second = _mm512_add_ps(_mm512_shuffle_ps(halves[2], halves[3], 0x44), _mm512_shuffle_ps(halves[2], halves[3], 0xee));
  const __m512 mixed = _mm512_add_ps(_mm512_shuffle_ps(first, second, 0x88), _mm512_shuffle_ps(first, second, 0xdd));
  const __m512 sorted = _mm512_shuffle_f32x4(mixed, mixed, 0xd8);
  _mm256_storeu_ps(out, _mm512_castps512_ps256(sorted));
  _mm256_storeu_ps(out + stride, _mm512_extractf32x8_ps(sorted, 1));
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
