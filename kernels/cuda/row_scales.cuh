// For each row a power of two that keeps its squares in the range of float32, and the inverse length of the row times that power.
#pragma once

#include "rows.cuh"

namespace prismem::cuda {

constexpr int kScalesThreads = 256;

// One warp a row. A zero row has the inverse length 0; a row with NaN or infinity has NaN.
template <class T>
PRISMEM_KERNEL(kScalesThreads, 2)
row_scales(const RowsView rows, std::int64_t dim, float* powers, float* inverses) {
  constexpr int kElements = kQuadElements<T>;
  const int lane = thread_index() % kWarp;
  const std::int64_t row = block_index() * (kScalesThreads / kWarp) + thread_index() / kWarp;
  const bool real = row < rows.count;
  const T* at = row_of<T>(rows, real ? row : 0);
  const std::int64_t end = real ? dim : 0;
  const auto each = [&](auto visit) {
    for (std::int64_t from = lane * kElements; from < end; from += kWarp * kElements) {
      float values[kElements];
      unpack(rows.aligned != 0 && from + kElements <= end ? load_quad(at + from) : load_elements(at + from, end - from), values, T{});
#pragma unroll
      for (int i = 0; i < kElements; ++i) visit(values[i]);
    }
  };
  float power = 1.0f;
  if (!kHalf<T>) {  // squares of halves are in range as they are
    std::uint32_t largest = 0;
    each([&](float value) {
      const std::uint32_t size = bits_of_float(value) & 0x7fffffffu;
      largest = size > largest ? size : largest;
    });
    const auto exponent = static_cast<int>(warp_max(largest) >> 23);
    // 2 ** -exponent, within the normal numbers. Of NaN and infinity the power does not matter.
    power = float_of_bits(static_cast<std::uint32_t>(exponent >= 253 ? 1 : exponent == 0 ? 253 : 254 - exponent) << 23);
    if (warp_max(largest) == 0 || exponent == 255) power = 1.0f;
  }
  float sum = 0.0f;
  each([&](float value) {
    const float scaled = value * power;
    sum = multiply_add(scaled, scaled, sum);
  });
  sum = warp_sum(sum);
  if (real && lane == 0) {
    store(powers + row, power);
    store(inverses + row, sum == 0.0f ? 0.0f : is_finite(sum) ? static_cast<float>(inverse_root(sum)) : float_of_bits(0x7fc00000u));
  }
}

}  // namespace prismem::cuda
