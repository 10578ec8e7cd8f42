// simd/code_lanes.hpp on AVX-512 with VNNI: unsigned by signed bytes straight into 32-bit sums.
#pragma once

#include "simd/intrinsics.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

struct I16 {
  __m512i v;
};
struct F16 {
  __m512 v;
};

inline F16 as_floats(I16 a) { return F16{_mm512_cvtepi32_ps(a.v)}; }
inline F16 broadcast16(float value) { return F16{_mm512_set1_ps(value)}; }
inline F16 load_bfloats16(const std::uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return F16{_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline void store16(float* p, F16 a) { _mm512_storeu_ps(p, a.v); }
inline void store16(std::int32_t* p, I16 a) { _mm512_storeu_si512(p, a.v); }
inline F16 load16(const float* p) { return F16{_mm512_loadu_ps(p)}; }
inline I16 load16(const std::int32_t* p) { return I16{_mm512_loadu_si512(p)}; }
inline I16 add16(I16 a, I16 b) { return I16{_mm512_add_epi32(a.v, b.v)}; }
inline I16 add16(I16 a, std::int32_t value) { return I16{_mm512_add_epi32(a.v, _mm512_set1_epi32(value))}; }
inline F16 max16(F16 a, F16 b) { return F16{_mm512_max_ps(a.v, b.v)}; }
inline F16 size16(F16 a) { return F16{_mm512_abs_ps(a.v)}; }
inline I16 nearest16(F16 a) { return I16{_mm512_cvtps_epi32(a.v)}; }
inline float largest_of(F16 a) { return _mm512_reduce_max_ps(a.v); }
inline float sum_of(F16 a) { return _mm512_reduce_add_ps(a.v); }
inline std::int32_t sum_of(I16 a) { return _mm512_reduce_add_epi32(a.v); }
inline void split_bytes16(I16 a, std::int8_t* low, std::int8_t* high) {
  const __m128i halves = _mm_shuffle_epi32(_mm512_cvtepi32_epi8(a.v), 0xd8);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(low), halves);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(high), _mm_unpackhi_epi64(halves, halves));
}
// Four times split_bytes16, in fewer steps.
inline void split_bytes64(const I16 (&a)[4], std::int8_t* low, std::int8_t* high) {
  // Each 128-bit lane gets four codes of each vector; even lanes are low halves, odd ones high.
  const __m512i bytes = _mm512_packs_epi16(_mm512_packs_epi32(a[0].v, a[1].v), _mm512_packs_epi32(a[2].v, a[3].v));
  const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  const __m512i halves = _mm512_permutexvar_epi32(order, bytes);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), _mm512_castsi512_si256(halves));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), _mm512_extracti64x4_epi64(halves, 1));
}
inline F16 multiply16(F16 a, F16 b) { return F16{_mm512_mul_ps(a.v, b.v)}; }
inline F16 multiply_add16(F16 a, F16 b, F16 c) { return F16{_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline std::uint32_t not_below16(F16 a, float threshold) {
  return static_cast<std::uint32_t>(_mm512_cmp_ps_mask(a.v, _mm512_set1_ps(threshold), _CMP_NLT_UQ));
}

inline __m512i four_bytes(const std::int8_t* p) {
  std::int32_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _mm512_set1_epi32(bits);
}

inline I16 high_dots(const std::uint8_t* lines, std::int64_t groups, const std::int8_t* low, const std::int8_t* high) {
  const __m512i low_nibbles = _mm512_set1_epi8(15);
  const __m512i high_nibbles = _mm512_set1_epi8(static_cast<char>(240));
  __m512i low_even = _mm512_setzero_si512();
  __m512i low_odd = low_even;
  __m512i high_even = low_even;
  __m512i high_odd = low_even;
  std::int64_t g = 0;
  for (; g + 2 <= groups; g += 2) {
    const __m512i even = _mm512_load_si512(lines + 64 * g);
    const __m512i odd = _mm512_load_si512(lines + 64 * g + 64);
    low_even = _mm512_dpbusd_epi32(low_even, _mm512_and_si512(even, low_nibbles), four_bytes(low + 4 * g));
    high_even = _mm512_dpbusd_epi32(high_even, _mm512_and_si512(even, high_nibbles), four_bytes(high + 4 * g));
    low_odd = _mm512_dpbusd_epi32(low_odd, _mm512_and_si512(odd, low_nibbles), four_bytes(low + 4 * g + 4));
    high_odd = _mm512_dpbusd_epi32(high_odd, _mm512_and_si512(odd, high_nibbles), four_bytes(high + 4 * g + 4));
  }
  if (g < groups) {
    const __m512i even = _mm512_load_si512(lines + 64 * g);
    low_even = _mm512_dpbusd_epi32(low_even, _mm512_and_si512(even, low_nibbles), four_bytes(low + 4 * g));
    high_even = _mm512_dpbusd_epi32(high_even, _mm512_and_si512(even, high_nibbles), four_bytes(high + 4 * g));
  }
  const __m512i shifted = _mm512_slli_epi32(_mm512_add_epi32(low_even, low_odd), 4);
  return I16{_mm512_add_epi32(shifted, _mm512_add_epi32(high_even, high_odd))};
}

inline std::int32_t low_dot(const std::uint8_t* row, std::int64_t bytes, const std::int8_t* low, const std::int8_t* high) {
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512i sums_low = _mm512_setzero_si512();
  __m512i sums_high = sums_low;
  for (std::int64_t i = 0; i < bytes; i += 64) {
    const __m512i codes = _mm512_load_si512(row + i);
    sums_low = _mm512_dpbusd_epi32(sums_low, _mm512_and_si512(codes, nibble), _mm512_loadu_si512(low + i));
    sums_high = _mm512_dpbusd_epi32(sums_high, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble), _mm512_loadu_si512(high + i));
  }
  return _mm512_reduce_add_epi32(_mm512_add_epi32(sums_low, sums_high));
}

constexpr int kTileBits = 8;
constexpr int kTileLevels = 127;
constexpr int kTileFactor = 1;
constexpr int kTileMiddle = 128;
constexpr int kTileBlocks = 2;
constexpr int kTileQueries = 12;

// Rows r[0..15] of sixteen 32-bit words become columns.
inline void transpose16(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  // s[4 f + c]: words c of each 128-bit lane, of rows 4 f .. 4 f + 3.
  __m512i s[16];
#pragma GCC unroll 16
  for (int f = 0; f < 4; ++f) {
    const __m512i* u = t + 4 * f;
    s[4 * f] = _mm512_unpacklo_epi64(u[0], u[2]);
    s[4 * f + 1] = _mm512_unpackhi_epi64(u[0], u[2]);
    s[4 * f + 2] = _mm512_unpacklo_epi64(u[1], u[3]);
    s[4 * f + 3] = _mm512_unpackhi_epi64(u[1], u[3]);
  }
#pragma GCC unroll 16
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(s[c], s[4 + c], 0x88);       // lanes 0, 2 of rows 0-3, then of rows 4-7
    const __m512i b = _mm512_shuffle_i32x4(s[c], s[4 + c], 0xdd);       // lanes 1, 3
    const __m512i d = _mm512_shuffle_i32x4(s[8 + c], s[12 + c], 0x88);
    const __m512i e = _mm512_shuffle_i32x4(s[8 + c], s[12 + c], 0xdd);
    r[c] = _mm512_shuffle_i32x4(a, d, 0x88);
    r[4 + c] = _mm512_shuffle_i32x4(b, e, 0x88);
    r[8 + c] = _mm512_shuffle_i32x4(a, d, 0xdd);
    r[12 + c] = _mm512_shuffle_i32x4(b, e, 0xdd);
  }
}

inline void unpack_tile_lines(const std::uint8_t* lines, const std::uint8_t* low, std::int64_t low_stride, std::int64_t groups, std::uint8_t* out) {
  const __m512i low_nibbles = _mm512_set1_epi8(15);
  const __m512i high_nibbles = _mm512_set1_epi8(static_cast<char>(240));
  for (std::int64_t begin = 0; begin < groups; begin += 16) {
    __m512i words[16];
    for (int r = 0; r < 16; ++r) words[r] = _mm512_load_si512(low + r * low_stride + 4 * begin);
    transpose16(words);
    for (int g = 0; g < 16 && begin + g < groups; ++g) {
      const __m512i high_codes = _mm512_load_si512(lines + 64 * (begin + g));
      const __m512i a = _mm512_or_si512(_mm512_slli_epi16(_mm512_and_si512(high_codes, low_nibbles), 4), _mm512_and_si512(words[g], low_nibbles));
      const __m512i b = _mm512_or_si512(_mm512_and_si512(high_codes, high_nibbles), _mm512_and_si512(_mm512_srli_epi16(words[g], 4), low_nibbles));
      _mm512_store_si512(out + 128 * (begin + g), a);
      _mm512_store_si512(out + 128 * (begin + g) + 64, b);
    }
  }
}

template <int kQueries>
inline void tile_dots_of(const std::uint8_t* lines, std::int64_t block_stride, std::int64_t steps, const std::int8_t* queries,
                         const std::int32_t* offsets, I16* sums) {
  __m512i first[kQueries];
  __m512i second[kQueries];
  for (int q = 0; q < kQueries; ++q) first[q] = second[q] = _mm512_set1_epi32(offsets[q]);
  for (std::int64_t s = 0; s < steps; ++s) {
    const __m512i a = _mm512_load_si512(lines + 64 * s);
    const __m512i b = _mm512_load_si512(lines + block_stride + 64 * s);
    for (int q = 0; q < kQueries; ++q) {
      const __m512i query = four_bytes(queries + 4 * (s * kTileQueries + q));
      first[q] = _mm512_dpbusd_epi32(first[q], a, query);
      second[q] = _mm512_dpbusd_epi32(second[q], b, query);
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    sums[q].v = first[q];
    sums[kTileQueries + q].v = second[q];
  }
}

inline void tile_dots(const std::uint8_t* lines, std::int64_t block_stride, std::int64_t steps, const std::int8_t* queries, std::int64_t count,
                      const std::int32_t* offsets, I16* sums) {
  if (count <= 4) {
    tile_dots_of<4>(lines, block_stride, steps, queries, offsets, sums);
  } else if (count <= 8) {
    tile_dots_of<8>(lines, block_stride, steps, queries, offsets, sums);
  } else {
    tile_dots_of<kTileQueries>(lines, block_stride, steps, queries, offsets, sums);
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
