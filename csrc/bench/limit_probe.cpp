#include "bench/limit_probe.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "simd/dispatch.hpp"
#include "support/error.hpp"
#include "support/parallel.hpp"

namespace prismem {

namespace portable {
extern const LimitKernels limit_kernels;
}
#if defined(PRISMEM_HAVE_AVX2)
namespace avx2 {
extern const LimitKernels limit_kernels;
}
#endif
#if defined(PRISMEM_HAVE_AVX512)
namespace avx512 {
extern const LimitKernels limit_kernels;
}
#endif

namespace {

const LimitKernels& kernels_of(const std::string& isa) {
  const char* chosen = op_table(isa).isa;
  const LimitKernels* all[] = {
#if defined(PRISMEM_HAVE_AVX512)
      &avx512::limit_kernels,
#endif
#if defined(PRISMEM_HAVE_AVX2)
      &avx2::limit_kernels,
#endif
  };
  for (const LimitKernels* kernels : all) {
    if (std::strcmp(kernels->isa, chosen) == 0) return *kernels;
  }
  return portable::limit_kernels;
}

// Runs `body(worker)` once on each of `threads` threads; its results are used, so the work must be done.
template <class Body>
void on_threads(int threads, Body body) {
  std::atomic<int> used{0};
  parallel_for(threads, threads, [&](int, std::int64_t index) {
    if (body(index) != 0.0f) used.fetch_add(1, std::memory_order_relaxed);
  });
}

}  // namespace

LimitProbe::LimitProbe(std::int64_t bytes, const std::string& isa, int threads)
    : kernels_(&kernels_of(isa)), memory_(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0))), threads_(threads) {
  if (bytes < 0) throw ArgumentError("bytes: expected a number of at least 0, got " + std::to_string(bytes));
  if (threads < 1) throw ArgumentError("threads: expected a number of at least 1, got " + std::to_string(threads));
  // Pages that were never written all map to one page of zeros.
  if (memory_.size() > 0) std::memset(memory_.data(), 1, memory_.size());
}

std::int64_t LimitProbe::read(std::int64_t bytes, std::int64_t times, bool four_streams) const {
  if (bytes < 0) throw ArgumentError("bytes: expected a number of at least 0, got " + std::to_string(bytes));
  if (bytes > static_cast<std::int64_t>(memory_.size())) {
    throw ArgumentError("bytes: expected at most the " + std::to_string(memory_.size()) + " of the probe, got " + std::to_string(bytes));
  }
  const std::int64_t part = bytes / threads_ / (4 * kReadBlock) * (4 * kReadBlock);
  const auto kernel = four_streams ? kernels_->read_four_streams : kernels_->read_stream;
  on_threads(threads_, [&](std::int64_t index) {
    float sum = 0.0f;
    for (std::int64_t time = 0; time < times; ++time) sum += kernel(memory_.data() + index * part, part);
    return sum;
  });
  return part * threads_ * times;
}

std::int64_t LimitProbe::multiply_floats(std::int64_t rounds) const {
  on_threads(threads_, [&](std::int64_t) { return kernels_->multiply_floats(rounds); });
  return rounds * kernels_->flops_per_round * threads_;
}

std::int64_t LimitProbe::multiply_bytes(std::int64_t rounds, bool sums_of_16) const {
  const auto kernel = sums_of_16 ? kernels_->multiply_bytes_16 : kernels_->multiply_bytes_32;
  const std::int64_t products = sums_of_16 ? kernels_->products_per_round_16 : kernels_->products_per_round_32;
  if (products == 0) return 0;
  on_threads(threads_, [&](std::int64_t) { return static_cast<float>(kernel(rounds)); });
  return rounds * products * threads_;
}

}  // namespace prismem
