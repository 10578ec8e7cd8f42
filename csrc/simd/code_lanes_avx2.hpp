// simd/code_lanes.hpp on AVX2: unsigned by signed bytes with 16-bit sums, widened before they can overflow.
#pragma once

#include "simd/intrinsics.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

struct I16 {
  __m256i first;
  __m256i second;
};
struct F16 {
  __m256 first;
  __m256 second;
};

inline F16 as_floats(I16 a) { return F16{_mm256_cvtepi32_ps(a.first), _mm256_cvtepi32_ps(a.second)}; }
inline F16 broadcast16(float value) { return F16{_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline __m256 load_bfloats8(const std::uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline F16 load_bfloats16(const std::uint16_t* p) { return F16{load_bfloats8(p), load_bfloats8(p + 8)}; }
inline void store16(float* p, F16 a) {
  _mm256_storeu_ps(p, a.first);
  _mm256_storeu_ps(p + 8, a.second);
}
inline void store16(std::int32_t* p, I16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.first);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.second);
}
inline F16 load16(const float* p) { return F16{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline I16 load16(const std::int32_t* p) {
  return I16{_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline I16 add16(I16 a, I16 b) { return I16{_mm256_add_epi32(a.first, b.first), _mm256_add_epi32(a.second, b.second)}; }
inline I16 add16(I16 a, std::int32_t value) {
  const __m256i all = _mm256_set1_epi32(value);
  return I16{_mm256_add_epi32(a.first, all), _mm256_add_epi32(a.second, all)};
}
inline F16 max16(F16 a, F16 b) { return F16{_mm256_max_ps(a.first, b.first), _mm256_max_ps(a.second, b.second)}; }
inline F16 size16(F16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return F16{_mm256_andnot_ps(sign, a.first), _mm256_andnot_ps(sign, a.second)};
}
inline I16 nearest16(F16 a) { return I16{_mm256_cvtps_epi32(a.first), _mm256_cvtps_epi32(a.second)}; }
inline float largest_of(F16 a) {
  const __m256 eight = _mm256_max_ps(a.first, a.second);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float sum_of(F16 a) {
  const __m256 eight = _mm256_add_ps(a.first, a.second);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline void split_bytes16(I16 a, std::int8_t* low, std::int8_t* high) {
  const __m256i words = _mm256_packs_epi32(a.first, a.second);
  const __m256i bytes = _mm256_packs_epi16(words, words);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(bytes));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(bytes, 1));
}
inline void split_bytes64(const I16 (&a)[4], std::int8_t* low, std::int8_t* high) {
  for (int i = 0; i < 4; ++i) split_bytes16(a[i], low + 8 * i, high + 8 * i);
}
inline F16 multiply16(F16 a, F16 b) { return F16{_mm256_mul_ps(a.first, b.first), _mm256_mul_ps(a.second, b.second)}; }
inline F16 multiply_add16(F16 a, F16 b, F16 c) {
  return F16{_mm256_fmadd_ps(a.first, b.first, c.first), _mm256_fmadd_ps(a.second, b.second, c.second)};
}
inline std::uint32_t not_below16(F16 a, float threshold) {
  const __m256 all = _mm256_set1_ps(threshold);
  const std::uint32_t first = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.first, all, _CMP_NLT_UQ)));
  const std::uint32_t second = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.second, all, _CMP_NLT_UQ)));
  return first | second << 8;
}

inline __m256i four_bytes(const std::int8_t* p) {
  std::int32_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _mm256_set1_epi32(bits);
}
inline __m256i load_line(const std::uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i widen_add(__m256i sums, __m256i pairs, short factor = 1) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(factor)));
}

// 8 products of a pair: 8 * 2 * 15 * 127 = 30480 < 2^15.
constexpr std::int64_t kNibbleRun = 8;

inline I16 high_dots(const std::uint8_t* lines, std::int64_t groups, const std::int8_t* low, const std::int8_t* high) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i first = _mm256_setzero_si256();
  __m256i second = _mm256_setzero_si256();
  for (std::int64_t begin = 0; begin < groups; begin += kNibbleRun) {
    const std::int64_t end = groups - begin < kNibbleRun ? groups : begin + kNibbleRun;
    __m256i first_low = _mm256_setzero_si256();
    __m256i first_high = first_low;
    __m256i second_low = first_low;
    __m256i second_high = first_low;
    for (std::int64_t g = begin; g < end; ++g) {
      const __m256i query_low = four_bytes(low + 4 * g);
      const __m256i query_high = four_bytes(high + 4 * g);
      const __m256i a = load_line(lines + 64 * g);
      const __m256i b = load_line(lines + 64 * g + 32);
      first_low = _mm256_add_epi16(first_low, _mm256_maddubs_epi16(_mm256_and_si256(a, nibble), query_low));
      second_low = _mm256_add_epi16(second_low, _mm256_maddubs_epi16(_mm256_and_si256(b, nibble), query_low));
      first_high = _mm256_add_epi16(first_high, _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(a, 4), nibble), query_high));
      second_high = _mm256_add_epi16(second_high, _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(b, 4), nibble), query_high));
    }
    first = widen_add(widen_add(first, first_low), first_high);
    second = widen_add(widen_add(second, second_low), second_high);
  }
  return I16{_mm256_slli_epi32(first, 4), _mm256_slli_epi32(second, 4)};
}

inline std::int32_t sum_lanes(__m256i a) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

inline std::int32_t sum_of(I16 a) { return sum_lanes(_mm256_add_epi32(a.first, a.second)); }

inline std::int32_t low_dot(const std::uint8_t* row, std::int64_t bytes, const std::int8_t* low, const std::int8_t* high) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i sums = _mm256_setzero_si256();
  for (std::int64_t begin = 0; begin < bytes; begin += 32 * kNibbleRun) {
    const std::int64_t end = bytes - begin < 32 * kNibbleRun ? bytes : begin + 32 * kNibbleRun;
    __m256i pairs_low = _mm256_setzero_si256();
    __m256i pairs_high = pairs_low;
    for (std::int64_t i = begin; i < end; i += 32) {
      const __m256i codes = load_line(row + i);
      const __m256i query_low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low + i));
      const __m256i query_high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high + i));
      pairs_low = _mm256_add_epi16(pairs_low, _mm256_maddubs_epi16(_mm256_and_si256(codes, nibble), query_low));
      pairs_high = _mm256_add_epi16(pairs_high, _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble), query_high));
    }
    sums = widen_add(widen_add(sums, pairs_low), pairs_high);
  }
  return sum_lanes(sums);
}

// Six bits a side: 8 products of a pair are at most 8 * 2 * 63 * 31 = 31248 < 2^15, and both errors weigh alike.
constexpr int kTileBits = 6;
constexpr int kTileLevels = 31;
constexpr int kTileFactor = 2;
constexpr int kTileMiddle = 63;
constexpr int kTileBlocks = 1;
constexpr int kTileQueries = 6;
constexpr std::int64_t kTileRun = 8;

// Rows r[0..7] of eight 32-bit words become columns.
inline void transpose8(__m256i (&r)[8]) {
  __m256i t[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  __m256i s[8];
  for (int half = 0; half < 2; ++half) {
    const __m256i* u = t + 4 * half;
    s[4 * half] = _mm256_unpacklo_epi64(u[0], u[2]);
    s[4 * half + 1] = _mm256_unpackhi_epi64(u[0], u[2]);
    s[4 * half + 2] = _mm256_unpacklo_epi64(u[1], u[3]);
    s[4 * half + 3] = _mm256_unpackhi_epi64(u[1], u[3]);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2x128_si256(s[i], s[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(s[i], s[i + 4], 0x31);
  }
}

inline void unpack_tile_lines(const std::uint8_t* lines, const std::uint8_t* low, std::int64_t low_stride, std::int64_t groups, std::uint8_t* out) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i two_bits = _mm256_set1_epi8(3);
  for (int half = 0; half < 2; ++half) {
    for (std::int64_t begin = 0; begin < groups; begin += 8) {
      __m256i words[8];
      for (int r = 0; r < 8; ++r) words[r] = load_line(low + (8 * half + r) * low_stride + 4 * begin);
      transpose8(words);
      for (int g = 0; g < 8 && begin + g < groups; ++g) {
        const __m256i high_codes = load_line(lines + 64 * (begin + g) + 32 * half);
        const __m256i low_codes = _mm256_srli_epi16(words[g], 2);  // two bits of each nibble are kept
        const __m256i a = _mm256_or_si256(_mm256_slli_epi16(_mm256_and_si256(high_codes, nibble), 2), _mm256_and_si256(low_codes, two_bits));
        const __m256i high_nibbles = _mm256_and_si256(_mm256_srli_epi16(high_codes, 4), nibble);
        const __m256i b = _mm256_or_si256(_mm256_slli_epi16(high_nibbles, 2), _mm256_and_si256(_mm256_srli_epi16(low_codes, 4), two_bits));
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + 128 * (begin + g) + 32 * half), a);
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + 128 * (begin + g) + 64 + 32 * half), b);
      }
    }
  }
}

inline void tile_dots(const std::uint8_t* lines, std::int64_t, std::int64_t steps, const std::int8_t* queries, std::int64_t,
                      const std::int32_t* offsets, I16* sums) {
  for (int q = 0; q < kTileQueries; ++q) sums[q] = I16{_mm256_set1_epi32(offsets[q]), _mm256_set1_epi32(offsets[q])};
  for (std::int64_t begin = 0; begin < steps; begin += kTileRun) {
    const std::int64_t end = steps - begin < kTileRun ? steps : begin + kTileRun;
    __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
    __m256i b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0;
    const auto add = [](__m256i& a, __m256i& b, __m256i first, __m256i second, __m256i query) {
      a = _mm256_add_epi16(a, _mm256_maddubs_epi16(first, query));
      b = _mm256_add_epi16(b, _mm256_maddubs_epi16(second, query));
      keep_in_register(a);
      keep_in_register(b);
    };
    for (std::int64_t s = begin; s < end; ++s) {
      __m256i first = load_line(lines + 64 * s);
      __m256i second = load_line(lines + 64 * s + 32);
      keep_in_register(first);
      keep_in_register(second);
      const std::int8_t* query = queries + 4 * s * kTileQueries;
      add(a0, b0, first, second, four_bytes(query));
      add(a1, b1, first, second, four_bytes(query + 4));
      add(a2, b2, first, second, four_bytes(query + 8));
      add(a3, b3, first, second, four_bytes(query + 12));
      add(a4, b4, first, second, four_bytes(query + 16));
      add(a5, b5, first, second, four_bytes(query + 20));
    }
    const auto widen = [](I16& sum, __m256i a, __m256i b) {
      sum.first = widen_add(sum.first, a, kTileFactor);
      sum.second = widen_add(sum.second, b, kTileFactor);
    };
    widen(sums[0], a0, b0);
    widen(sums[1], a1, b1);
    widen(sums[2], a2, b2);
    widen(sums[3], a3, b3);
    widen(sums[4], a4, b4);
    widen(sums[5], a5, b5);
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
