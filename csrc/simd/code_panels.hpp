// Products of the full codes (simd/codes.hpp) of sixteen neighbouring rows with several queries, for rows that many queries share.
//
// A panel holds the codes of kCodeRows rows, which may start anywhere, with rows as lanes: line g (64 bytes) has at byte 4 r + i
// the code of row r in dimension 8 g + i, line groups + g that in dimension 8 g + 4 + i. It is filled once for all queries.
//
//   low_dots(rows, stride, bytes, low, high)
//                                 sums of query code * (low half) for sixteen low rows, `stride` apart
//   kCodePanelQueries                 queries of one product at most: their sums fit into the registers
//   kCodePanelLevels                    the largest query code that the products can take
//   fill_code_panel(codes, first, panel)
//                                 the panel of rows first .. first + 15; those behind the last row are undefined
//   code_panel_dots<Q>(panel, groups, queries, stride, sums)
//                                 sums[q] = sum of codes of query q * codes of the rows; query q has its codes of dimensions 8 g + i at
//                                 queries + q * stride + 4 g + i and those of dimensions 8 g + 4 + i half a stride behind
#pragma once

#include "simd/code_lanes.hpp"
#include "simd/codes.hpp"

#if !defined(PRISMEM_TARGET_AVX512)
namespace prismem {
namespace PRISMEM_NAMESPACE {

// Rows one by one, where there is no faster way to add up sixteen.
inline I16 low_dots(const std::uint8_t* rows, std::int64_t stride, std::int64_t bytes, const std::int8_t* low, const std::int8_t* high) {
  std::int32_t sums[16];
  for (int r = 0; r < 16; ++r) sums[r] = low_dot(rows + r * stride, bytes, low, high);
  return load16(sums);
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
#endif

#if defined(PRISMEM_TARGET_AVX512)
#include "simd/code_panels_avx512.hpp"
#elif defined(PRISMEM_TARGET_AVX2)
#include "simd/code_panels_avx2.hpp"
#else
#include "simd/code_panels_portable.hpp"
#endif
