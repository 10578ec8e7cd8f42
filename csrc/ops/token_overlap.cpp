// token_overlap: how many ids each of 64 keys shares with a query, one byte lane a key, then the share as a quotient.
//
// The vectors are the compiler's own, as wide as the registers of the instruction set that this file is compiled for; integers and one
// division give the same bits with each.
#include "simd/op_table.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

constexpr std::int64_t kFull = 255;  // what a byte counts to

#if defined(PRISMEM_TARGET_AVX512)
constexpr int kRegister = 64;
#elif defined(PRISMEM_TARGET_AVX2)
constexpr int kRegister = 32;
#else
constexpr int kRegister = 16;
#endif
constexpr int kParts = kOverlapLanes / kRegister;

using Bytes = std::uint8_t __attribute__((vector_size(kRegister), may_alias));

// counts[lane] = how many of the rows have a 1 in that lane.
void count_members(const std::uint8_t* members, const std::int32_t* rows, std::int64_t size, std::int32_t* counts) {
  for (int lane = 0; lane < kOverlapLanes; ++lane) counts[lane] = 0;
  for (std::int64_t begin = 0; begin < size; begin += kFull) {
    const std::int64_t end = begin + kFull < size ? begin + kFull : size;
    Bytes sums[kParts] = {};
    for (std::int64_t i = begin; i < end; ++i) {
      const auto* row = reinterpret_cast<const Bytes*>(members + rows[i] * kOverlapLanes);
      for (int part = 0; part < kParts; ++part) sums[part] += row[part];
    }
    std::uint8_t added[kOverlapLanes];
    __builtin_memcpy(added, sums, sizeof added);
    for (int lane = 0; lane < kOverlapLanes; ++lane) counts[lane] += added[lane];
  }
}

}  // namespace

void token_overlap(const OverlapTask& task) {
  for (std::int64_t query = 0; query < task.query_count; ++query) {
    const std::int64_t size = task.query_offsets[query + 1] - task.query_offsets[query];
    std::int32_t counts[kOverlapLanes];
    count_members(task.members, task.query_rows + task.query_offsets[query], size, counts);
    double shares[kOverlapLanes];
    // A set without ids shares none: 0 / 1.
    if (task.key_sizes != nullptr) {
      const double own = static_cast<double>(size);
      for (int lane = 0; lane < kOverlapLanes; ++lane) {
        const double both = own + task.key_sizes[lane];
        shares[lane] = static_cast<double>(2 * counts[lane]) / (both > 1.0 ? both : 1.0);
      }
    } else {
      const double own = size > 1 ? static_cast<double>(size) : 1.0;
      for (int lane = 0; lane < kOverlapLanes; ++lane) shares[lane] = static_cast<double>(counts[lane]) / own;
    }
    double* out = task.out[query] + task.out_begin;
    if (task.key_count == kOverlapLanes) {
      for (int lane = 0; lane < kOverlapLanes; ++lane) out[lane] = shares[lane];
    } else {
      for (std::int64_t lane = 0; lane < task.key_count; ++lane) out[lane] = shares[lane];
    }
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
