// The few primitives that the kernels are written in, with two back ends: nvcc's device code, and an emulator that g++ compiles.
//
// A kernel touches memory through these names alone, so that the emulator sees each access: it finds races and missing waits, counts
// bytes, and runs the threads of a block in a seeded random order. Each barrier and each wait has a number, unique over all kernels;
// tests take them away one at a time, and each must be missed.
#pragma once

#include <cstdint>

namespace prismem::cuda {

// Tags of the types of rows, and their bits.
struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

// Sixteen bytes, which is the widest load.
struct alignas(16) Quad {
  std::uint32_t words[4];
};

constexpr int kWarp = 32;

template <class T>
constexpr bool kHalf = false;
template <>
inline constexpr bool kHalf<Half> = true;

}  // namespace prismem::cuda

#ifdef __CUDACC__
#include "device/prim_device.cuh"
#else
#include "emulator/prim_emulator.hpp"
#endif

namespace prismem::cuda {

PRISMEM_DEVICE float to_float(float value) { return value; }
PRISMEM_DEVICE float to_float(BFloat16 value) { return float_of_bits(static_cast<std::uint32_t>(value.bits) << 16); }

// The values of sixteen bytes of a row.
PRISMEM_DEVICE void unpack(const Quad& quad, float (&out)[4], float) {
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = float_of_bits(quad.words[i]);
}
PRISMEM_DEVICE void unpack(const Quad& quad, float (&out)[8], BFloat16) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = float_of_bits(quad.words[i] << 16);
    out[2 * i + 1] = float_of_bits(quad.words[i] & 0xffff0000u);
  }
}
PRISMEM_DEVICE void unpack(const Quad& quad, float (&out)[8], Half) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = to_float(Half{static_cast<std::uint16_t>(quad.words[i])});
    out[2 * i + 1] = to_float(Half{static_cast<std::uint16_t>(quad.words[i] >> 16)});
  }
}

// One step of warp_sum_each: lanes whose number has the bit keep the odd values, the others the even ones.
template <int N, int bit>
PRISMEM_DEVICE float halve_each(const float (&values)[N], int lane) {
  if constexpr (N == 1) {
    float sum = values[0];
#pragma unroll
    for (int wider = bit; wider < kWarp; wider <<= 1) sum += shuffle_xor(sum, wider);
    return sum;
  } else {
    const bool odd = (lane & bit) != 0;
    float kept[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float send = odd ? values[2 * i] : values[2 * i + 1];
      kept[i] = (odd ? values[2 * i + 1] : values[2 * i]) + shuffle_xor(send, bit);
    }
    return halve_each<N / 2, bit * 2>(kept, lane);
  }
}

// The sum over the warp of values[lane % N]; the tree is the same for each N, so that a sum does not depend on its neighbours.
template <int N>
PRISMEM_DEVICE float warp_sum_each(const float (&values)[N], int lane) {
  return halve_each<N, 1>(values, lane);
}

PRISMEM_DEVICE float warp_sum(float value) {
#pragma unroll
  for (int bit = 1; bit < kWarp; bit <<= 1) value += shuffle_xor(value, bit);
  return value;
}

PRISMEM_DEVICE std::uint64_t warp_max(std::uint64_t value) {
#pragma unroll
  for (int bit = 1; bit < kWarp; bit <<= 1) {
    const std::uint64_t other = shuffle_xor(value, bit);
    value = other > value ? other : value;
  }
  return value;
}

}  // namespace prismem::cuda
