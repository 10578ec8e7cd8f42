// What this machine can do at most, for one instruction set: fixed work to be timed, so that a benchmark can say which part of the
// limit it reached. The kernels are limits.cpp (compiled once per set), the public class is in limits_launch.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prismem {

// What each kernel returns is folded from all it did, so that no work can be left out; it means nothing.
struct LimitKernels {
  const char* isa;
  // Read `count` bytes, a multiple of kReadBlock, once: as one stream, or as four with prefetches.
  float (*read_stream)(const unsigned char* bytes, std::int64_t count);
  float (*read_four_streams)(const unsigned char* bytes, std::int64_t count);
  // `rounds` of independent fused multiply-adds of floats; each round is `flops_per_round` operations.
  float (*multiply_floats)(std::int64_t rounds);
  std::int64_t flops_per_round;
  // `rounds` of products of bytes added into 32-bit sums, and into 16-bit sums that are widened now and then; multiplications a
  // round, 0 where the set has no such instruction.
  std::int32_t (*multiply_bytes_32)(std::int64_t rounds);
  std::int32_t (*multiply_bytes_16)(std::int64_t rounds);
  std::int64_t products_per_round_32;
  std::int64_t products_per_round_16;
};

static constexpr std::int64_t kReadBlock = 4096;

}  // namespace prismem
