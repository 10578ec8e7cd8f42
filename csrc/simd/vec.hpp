// Eight float lanes, one spelling for every instruction set; the ops are written on this and compiled once per set.
//
//   F8 zero8(), load8(p), load8_tail(p, count)   p: float, Half or Bfloat; missing lanes are 0
//   F8 fma8(a, b, c)                             a * b + c in each lane (fused where the set can)
//   float sum8(a)                                ((a0+a4)+(a2+a6)) + ((a1+a5)+(a3+a7)), the same order everywhere
//   F8 splat8(x), max8(a, b)                     max8 gives b where a or b is NaN
//   unsigned equal8(a, b)                        bit i is set where lane i of a and b compare equal
//   sum8_of4(a, out)                             out[i] = sum8(a[i]) for four vectors, in fewer steps than one by one
//   F8 mul8(a, b)
//   unsigned outside8(a, limit)                  bits of the lanes that are above the limit, NaN or -infinity
//   F8 cosine8(dots, query_norm, key_norms)      dot / query_norm / key_norms[i] in double, rounded to float, clamped to [-1, 1]
//   D8 zero_d8(), square_add(a, acc)             acc + a * a in double
//   double sum_d8(acc)
//
// And the widest vector that serves register tiles (simd/panels.hpp): one F8 for each of kWideQueries queries.
//
//   Wide zero_wide(), load_wide(p)               8 * kWideQueries floats
//   Wide repeat_wide(p)                          the same eight floats for each query
//   Wide fma_wide(a, b, c), keep(a)              keep: stays in its register (see intrinsics.hpp)
//   void sum_group(sums, out, stride)            out[q * stride + k] = sum8 of sums[k] for query q, for k < kGroupKeys
//   void prefetch(p), prefetch_far(p)            the cache line of p is wanted soon, or later; any address will do
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef PRISMEM_NAMESPACE
#error "files on simd/vec.hpp are compiled by prismem_isa_objects() of cmake/isa.cmake"
#endif

#if defined(PRISMEM_TARGET_AVX512)
#include "simd/vec_avx512.hpp"
#elif defined(PRISMEM_TARGET_AVX2)
#include "simd/vec_avx2.hpp"
#include "simd/wide_eight.hpp"
#else
#include "simd/vec_portable.hpp"
#include "simd/wide_eight.hpp"
#endif
