// Integer work on codes (simd/codes.hpp), one spelling for every instruction set; sums are exact, so sets differ in speed alone.
//
//   I16, F16          sixteen 32-bit integers or floats, one a row of a block
//   high_dots(lines, groups, low, high)          sum of query code * 16 * (high half) for the 16 rows of a block
//   low_dot(row, bytes, low, high)               sum of query code * (low half) for one row
//   kTileBits         bits of a code that the batched product uses: 8, or 6 where sums have 16 bits; then
//                     y ~ scale * 2^(8 - bits) / kTileFactor * (kTileFactor * code - kTileMiddle)
//   kTileLevels       largest size of a query code of the batched product
//   kTileBlocks, kTileQueries                    blocks of rows and queries of one tile
//   unpack_tile_lines(lines, low, stride, groups, out)
//                     the first kTileBits of the codes of a block: 2 * groups lines of 64 bytes, line s with byte i of row r at
//                     4 r + i = dimension 4 s + i
//   tile_dots(lines, block_stride, steps, queries, count, offsets, sums)
//                     for the first `count` queries of a tile, packed as 4 bytes at (s * kTileQueries + q), and blocks of unpacked
//                     lines: sums[b * kTileQueries + q] = offsets[q] + kTileFactor * (sum of query code * code)
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef PRISMEM_NAMESPACE
#error "files on simd/code_lanes.hpp are compiled by prismem_isa_objects() of cmake/isa.cmake"
#endif

#if defined(PRISMEM_TARGET_AVX512)
#include "simd/code_lanes_avx512.hpp"
#elif defined(PRISMEM_TARGET_AVX2)
#include "simd/code_lanes_avx2.hpp"
#else
#include "simd/code_lanes_portable.hpp"
#endif
