// AVX-512 on a CPU that has AVX2: the intrinsics of SIMDe under their own names, and those that SIMDe lacks.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace simde_additions {

inline __m512d cvtps_pd(__m256 a) {
  return simde_mm512_insertf64x4(simde_mm512_castpd256_pd512(_mm256_cvtps_pd(_mm256_castps256_ps128(a))),
                                 _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)), 1);
}

inline int reduce_add_epi32(__m512i a) {
  int lanes[16];
  simde_mm512_storeu_si512(lanes, a);
  unsigned sum = 0;
  for (const int lane : lanes) sum += static_cast<unsigned>(lane);
  return static_cast<int>(sum);
}

// In the order of the compiler's own: halves of the lanes, again and again.
inline float reduce_add_ps(__m512 a) {
  const __m256 eight = _mm256_add_ps(simde_mm512_castps512_ps256(a), simde_mm512_extractf32x8_ps(a, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline __m128i cvtepi32_epi8(__m512i a) {
  int lanes[16];
  simde_mm512_storeu_si512(lanes, a);
  char bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<char>(lanes[i]);
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

// Lanes that are not taken are not read.
inline __m512i maskz_loadu_epi32(unsigned taken, const void* p) {
  int lanes[16] = {};
  for (int i = 0; i < 16; ++i) {
    if ((taken >> i & 1u) != 0) __builtin_memcpy(&lanes[i], static_cast<const char*>(p) + 4 * i, 4);
  }
  return simde_mm512_loadu_si512(lanes);
}

}  // namespace simde_additions
}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem

// The compiler's own header, which SIMDe includes, declares these for the real instructions: only a macro comes before them.
#define _mm512_cvtps_pd(a) ::prismem::PRISMEM_NAMESPACE::simde_additions::cvtps_pd(a)
#define _mm512_reduce_add_epi32(a) ::prismem::PRISMEM_NAMESPACE::simde_additions::reduce_add_epi32(a)
#define _mm512_reduce_add_ps(a) ::prismem::PRISMEM_NAMESPACE::simde_additions::reduce_add_ps(a)
#define _mm512_cvtepi32_epi8(a) ::prismem::PRISMEM_NAMESPACE::simde_additions::cvtepi32_epi8(a)
#define _mm512_maskz_loadu_epi32(taken, p) ::prismem::PRISMEM_NAMESPACE::simde_additions::maskz_loadu_epi32(taken, p)
