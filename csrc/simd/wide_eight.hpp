// The wide vector of simd/vec.hpp where it is eight lanes of one query: on AVX2 and in plain C++.
#pragma once

namespace prismem {
namespace PRISMEM_NAMESPACE {

using Wide = F8;
constexpr int kWideQueries = 1;
#define PRISMEM_GROUP_KEYS 4
constexpr int kGroupKeys = PRISMEM_GROUP_KEYS;

inline Wide zero_wide() { return zero8(); }
inline Wide load_wide(const float* p) { return load8(p); }
inline Wide repeat_wide(const float* p) { return load8(p); }
inline Wide fma_wide(Wide a, Wide b, Wide c) { return fma8(a, b, c); }
inline void sum_group(const Wide (&sums)[kGroupKeys], float* out, std::int64_t) { sum8_of4(sums, out); }

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
