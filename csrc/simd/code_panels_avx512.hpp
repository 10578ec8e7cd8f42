// simd/code_panels.hpp on AVX-512 with VNNI.
#pragma once

namespace prismem {
namespace PRISMEM_NAMESPACE {

constexpr int kCodePanelQueries = 12;
constexpr std::int32_t kCodePanelLevels = 127;

// sums[i] of the result: the lanes of rows[i] added up.
inline __m512i sums_of_rows(__m512i (&rows)[16]) {
  // Each step adds halves of neighbouring lanes and puts two registers into one.
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) rows[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]), _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) rows[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(rows[2 * i], rows[2 * i + 1]), _mm512_unpackhi_epi64(rows[2 * i], rows[2 * i + 1]));
  // Now each 128-bit lane of rows[i] has sums of rows 4 i .. 4 i + 3.
  const __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(rows[0], rows[1], 0x88), _mm512_shuffle_i32x4(rows[0], rows[1], 0xdd));
  const __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(rows[2], rows[3], 0x88), _mm512_shuffle_i32x4(rows[2], rows[3], 0xdd));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

inline I16 low_dots(const std::uint8_t* rows, std::int64_t stride, std::int64_t bytes, const std::int8_t* low, const std::int8_t* high) {
  const __m512i low_nibbles = _mm512_set1_epi8(15);
  const __m512i high_nibbles = _mm512_set1_epi8(static_cast<char>(240));
  __m512i sums[16];
  // One row after the other, as they lie in memory.
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) {
    __m512i sums_low = _mm512_setzero_si512();
    __m512i sums_high = sums_low;  // sixteen times too large
    for (std::int64_t i = 0; i < bytes; i += 64) {
      const __m512i codes = _mm512_load_si512(rows + i);
      sums_low = _mm512_dpbusd_epi32(sums_low, _mm512_and_si512(codes, low_nibbles), _mm512_loadu_si512(low + i));
      sums_high = _mm512_dpbusd_epi32(sums_high, _mm512_and_si512(codes, high_nibbles), _mm512_loadu_si512(high + i));
    }
    sums[r] = _mm512_add_epi32(sums_low, _mm512_srai_epi32(sums_high, 4));
    rows += stride;
  }
  return I16{sums_of_rows(sums)};
}

// The words of sixteen rows, of which those in `from_first` lie behind `first` and the others behind `second`.
inline __m512i joined_rows(const std::uint8_t* first, __mmask16 from_first, const std::uint8_t* second) {
  const __m512i rows = _mm512_maskz_loadu_epi32(from_first, first);
  return _mm512_mask_loadu_epi32(rows, static_cast<__mmask16>(~from_first), second);
}

// The codes of two lines, from the high halves as a block has them and the low halves in the same order.
inline void put_lines(__m512i high, __m512i low, std::uint8_t* first, std::uint8_t* second) {
  const __m512i low_nibbles = _mm512_set1_epi8(15);
  const __m512i high_nibbles = _mm512_set1_epi8(static_cast<char>(240));
  _mm512_store_si512(first, _mm512_or_si512(_mm512_slli_epi16(_mm512_and_si512(high, low_nibbles), 4), _mm512_and_si512(low, low_nibbles)));
  _mm512_store_si512(second, _mm512_or_si512(_mm512_and_si512(high, high_nibbles), _mm512_and_si512(_mm512_srli_epi16(low, 4), low_nibbles)));
}

inline void fill_code_panel(const CodeView& codes, std::int64_t first, std::uint8_t* panel) {
  const std::int64_t groups = code_groups(codes.dim);
  const std::int64_t low_stride = low_row_bytes(codes.dim);
  const std::int64_t lane = first % kCodeRows;
  // Lines of the block that holds the first row, and of the next one where there is one: neighbours in memory, one block apart.
  const std::uint8_t* lines = codes.blocks + first / kCodeRows * code_block_bytes(codes.dim) + kCodeHeaderBytes + 4 * lane;
  const bool last_block = first / kCodeRows + 1 >= code_blocks(codes.count);
  const __mmask16 from_first = static_cast<__mmask16>(0xffffu >> lane);
  const std::uint8_t* next = last_block ? lines - 4 * lane : lines + code_block_bytes(codes.dim) - 64;
  const std::uint8_t* low = codes.low + first * low_stride;
  const std::int64_t rows = last_block ? kCodeRows - lane : kCodeRows;
  for (std::int64_t begin = 0; begin < groups; begin += 16) {
    __m512i words[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) words[r] = _mm512_load_si512(low + (r < rows ? r : 0) * low_stride + 4 * begin);
    transpose16(words);
    std::uint8_t* first_lines = panel + 64 * begin;
    std::uint8_t* second_lines = first_lines + 64 * groups;
    if (groups - begin >= 16) {
#pragma GCC unroll 16
      for (int g = 0; g < 16; ++g) {
        put_lines(joined_rows(lines + 64 * (begin + g), from_first, next + 64 * (begin + g)), words[g], first_lines + 64 * g, second_lines + 64 * g);
      }
    } else {
      alignas(64) std::uint8_t rest[16][64];
#pragma GCC unroll 16
      for (int g = 0; g < 16; ++g) _mm512_store_si512(rest[g], words[g]);
      for (std::int64_t g = 0; g < groups - begin; ++g) {
        put_lines(joined_rows(lines + 64 * (begin + g), from_first, next + 64 * (begin + g)), _mm512_load_si512(rest[g]), first_lines + 64 * g,
                  second_lines + 64 * g);
      }
    }
  }
}

template <int Q>
inline void code_panel_dots(const std::uint8_t* panel, std::int64_t groups, const std::int8_t* queries, std::int64_t stride, I16 (&sums)[Q]) {
  __m512i acc[Q];
#pragma GCC unroll 16
  for (int q = 0; q < Q; ++q) acc[q] = _mm512_setzero_si512();
  for (int half = 0; half < 2; ++half) {
    // Addresses three queries apart: with offsets of one and two strides these reach every query without a register for each.
    const std::int8_t* every_third[(Q + 2) / 3];
#pragma GCC unroll 16
    for (int t = 0; t < (Q + 2) / 3; ++t) every_third[t] = queries + 3 * t * stride + half * (stride / 2);
    for (std::int64_t g = 0; g < groups; ++g) {
      const __m512i rows = _mm512_load_si512(panel);
      panel += 64;
#pragma GCC unroll 16
      for (int q = 0; q < Q; ++q) acc[q] = _mm512_dpbusd_epi32(acc[q], rows, four_bytes(every_third[q / 3] + q % 3 * stride));
#pragma GCC unroll 16
      for (int t = 0; t < (Q + 2) / 3; ++t) every_third[t] += 4;
#pragma GCC unroll 16
      for (int q = 0; q < Q; ++q) keep_in_register(acc[q]);
    }
  }
#pragma GCC unroll 16
  for (int q = 0; q < Q; ++q) sums[q].v = acc[q];
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
