// Fixed work at the limits of the machine, for a caller that times it.
#pragma once

#include <cstdint>
#include <string>

#include "bench/limits.hpp"
#include "support/huge_buffer.hpp"

namespace prismem {

// Each function spreads its work over `threads` and returns how much was done in all.
class LimitProbe {
 public:
  // Holds `bytes` of memory on huge pages, written once. Throws ArgumentError for an unknown or missing instruction set.
  LimitProbe(std::int64_t bytes, const std::string& isa, int threads);

  const char* isa() const { return kernels_->isa; }

  // Bytes read: the first `bytes` of the memory (rounded down to blocks a thread), `times` times, in one stream or four a thread.
  std::int64_t read(std::int64_t bytes, std::int64_t times, bool four_streams) const;
  // Floating-point operations.
  std::int64_t multiply_floats(std::int64_t rounds) const;
  // Products of bytes, in 32-bit or in 16-bit sums; 0 where the set has no instruction for them.
  std::int64_t multiply_bytes(std::int64_t rounds, bool sums_of_16) const;

 private:
  const LimitKernels* kernels_;
  HugeBuffer memory_;
  int threads_;
};

}  // namespace prismem
