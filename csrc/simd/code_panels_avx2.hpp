// simd/code_panels.hpp on AVX2: products of pairs are summed in 16 bits, which 8-bit codes leave room for only with shorter
// query codes: 2 * 255 * 64 < 2^15.
#pragma once

namespace prismem {
namespace PRISMEM_NAMESPACE {

constexpr int kCodePanelQueries = 4;
constexpr std::int32_t kCodePanelLevels = 64;

// The words of eight rows, of which those in `from_first` lie behind `first` and the others behind `second`.
inline __m256i joined_rows(const std::uint8_t* first, __m256i from_first, const std::uint8_t* second) {
  const __m256i from_second = _mm256_xor_si256(from_first, _mm256_set1_epi32(-1));
  const __m256i a = _mm256_maskload_epi32(reinterpret_cast<const int*>(first), from_first);
  return _mm256_or_si256(a, _mm256_maskload_epi32(reinterpret_cast<const int*>(second), from_second));
}

inline void fill_code_panel(const CodeView& codes, std::int64_t first, std::uint8_t* panel) {
  const std::int64_t groups = code_groups(codes.dim);
  const std::int64_t low_stride = low_row_bytes(codes.dim);
  const std::int64_t lane = first % kCodeRows;
  // Lines of the block that holds the first row, and of the next one where there is one: neighbours in memory, one block apart.
  const std::uint8_t* lines = codes.blocks + first / kCodeRows * code_block_bytes(codes.dim) + kCodeHeaderBytes + 4 * lane;
  const bool last_block = first / kCodeRows + 1 >= code_blocks(codes.count);
  const std::uint8_t* next = last_block ? lines - 4 * lane : lines + code_block_bytes(codes.dim) - 64;
  const std::uint8_t* low = codes.low + first * low_stride;
  const std::int64_t rows = last_block ? kCodeRows - lane : kCodeRows;
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (int half = 0; half < 2; ++half) {
    const __m256i from_first = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(kCodeRows - lane) - 8 * half), numbers);
    for (std::int64_t begin = 0; begin < groups; begin += 8) {
      __m256i words[8];
      for (int r = 0; r < 8; ++r) words[r] = load_line(low + (8 * half + r < rows ? 8 * half + r : 0) * low_stride + 4 * begin);
      transpose8(words);
      for (int g = 0; g < 8 && begin + g < groups; ++g) {
        const std::int64_t line = begin + g;
        const __m256i high = joined_rows(lines + 64 * line + 32 * half, from_first, next + 64 * line + 32 * half);
        const __m256i first_half = _mm256_or_si256(_mm256_slli_epi16(_mm256_and_si256(high, nibble), 4), _mm256_and_si256(words[g], nibble));
        const __m256i second_half = _mm256_or_si256(_mm256_andnot_si256(nibble, high), _mm256_and_si256(_mm256_srli_epi16(words[g], 4), nibble));
        _mm256_store_si256(reinterpret_cast<__m256i*>(panel + 64 * line + 32 * half), first_half);
        _mm256_store_si256(reinterpret_cast<__m256i*>(panel + 64 * (groups + line) + 32 * half), second_half);
      }
    }
  }
}

template <int Q>
inline void code_panel_dots(const std::uint8_t* panel, std::int64_t groups, const std::int8_t* queries, std::int64_t stride, I16 (&sums)[Q]) {
  __m256i first[Q];
  __m256i second[Q];
#pragma GCC unroll 16
  for (int q = 0; q < Q; ++q) first[q] = second[q] = _mm256_setzero_si256();
  for (int half = 0; half < 2; ++half) {
    const std::int8_t* own[Q];
#pragma GCC unroll 16
    for (int q = 0; q < Q; ++q) own[q] = queries + q * stride + half * (stride / 2);
    for (std::int64_t g = 0; g < groups; ++g) {
      const __m256i a = load_line(panel);
      const __m256i b = load_line(panel + 32);
      panel += 64;
#pragma GCC unroll 16
      for (int q = 0; q < Q; ++q) {
        const __m256i query = four_bytes(own[q]);
        first[q] = widen_add(first[q], _mm256_maddubs_epi16(a, query));
        second[q] = widen_add(second[q], _mm256_maddubs_epi16(b, query));
        own[q] += 4;
      }
#pragma GCC unroll 16
      for (int q = 0; q < Q; ++q) {
        keep_in_register(first[q]);
        keep_in_register(second[q]);
      }
    }
  }
#pragma GCC unroll 16
  for (int q = 0; q < Q; ++q) sums[q] = I16{first[q], second[q]};
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
