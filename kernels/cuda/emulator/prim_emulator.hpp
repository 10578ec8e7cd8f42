// The primitives for the emulator: plain C++ that g++ compiles.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/machine.hpp"

#define PRISMEM_DEVICE inline
#define PRISMEM_HOST_DEVICE inline
#define PRISMEM_KERNEL(threads, blocks) void

namespace prismem::cuda {

using emulator::block_index;
using emulator::thread_index;

inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double multiply(double a, double b) { return a * b; }
inline double add_rounded(double a, double b) { return a + b; }
inline double subtract(double a, double b) { return a - b; }
inline double inverse_root(float value) { return 1.0 / __builtin_sqrt(static_cast<double>(value)); }

inline float to_float(Half value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t rest = value.bits & 0x7fffu;
  // The exponent field as a multiplication, so that subnormal numbers need no case of their own.
  if (rest < 0x7c00u) return float_of_bits(sign | bits_of_float(float_of_bits(rest << 13) * 0x1p112f));
  return float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
}
// Rounded to nearest even.
inline std::uint16_t bfloat16_bits(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

template <int id>
inline void sync_block() {
  static_assert(0 <= id && id < emulator::kSyncs, "numbers of barriers are below kSyncs");
  emulator::sync_block(id);
}

template <class T>
struct Exchange {
  T mine;
  T theirs;
  int from;
};
template <class T>
inline T shuffle(T value, int lane) {
  Exchange<T> exchange{value, value, lane & (kWarp - 1)};
  emulator::collective(
      [](void* const(&lanes)[32]) {
        for (void* lane_of : lanes) {
          auto* one = static_cast<Exchange<T>*>(lane_of);
          one->theirs = static_cast<Exchange<T>*>(lanes[one->from])->mine;
        }
      },
      &exchange);
  return exchange.theirs;
}
template <class T>
inline T shuffle_xor(T value, int bit) {
  return shuffle(value, thread_index() ^ bit);
}
inline std::uint32_t ballot(bool predicate) {
  Exchange<std::uint32_t> exchange{predicate ? 1u : 0u, 0u, 0};
  emulator::collective(
      [](void* const(&lanes)[32]) {
        std::uint32_t votes = 0;
        for (int lane = 0; lane < kWarp; ++lane) votes |= static_cast<Exchange<std::uint32_t>*>(lanes[lane])->mine << lane;
        for (void* lane : lanes) static_cast<Exchange<std::uint32_t>*>(lane)->theirs = votes;
      },
      &exchange);
  return exchange.theirs;
}

inline int count_bits(std::uint32_t bits) { return __builtin_popcount(bits); }

// Rows may lie at any address that their type allows; memcpy keeps the compiler from assuming more.
template <class T>
inline T load(const T* at) {
  emulator::read_global(at, sizeof(T));
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
// Counted once a warp.
template <class T>
inline T load_uniform(const T* at) {
  if (thread_index() % kWarp == 0) emulator::read_global(at, sizeof(T));
  return *at;
}
inline Quad load_quad(const void* at) {
  emulator::read_global(at, sizeof(Quad));
  Quad value;
  std::memcpy(&value, __builtin_assume_aligned(at, 16), sizeof value);
  return value;
}
template <class T>
inline void store(T* at, T value) {
  emulator::wrote_global(at, sizeof(T));
  *at = value;
}
inline void atomic_min(std::int64_t* at, std::int64_t value) {
  emulator::wrote_global(at, sizeof value);
  if (value < *at) *at = value;
}

template <class T>
struct Shared {
  T* data;

  static Shared at(int byte_offset) { return Shared{reinterpret_cast<T*>(emulator::shared_memory(static_cast<std::size_t>(byte_offset)))}; }
  Shared operator+(int elements) const { return Shared{data + elements}; }
  T get(int i) const {
    T value{};
    if (emulator::access_shared(data + i, sizeof(T), emulator::Access::read)) std::memcpy(&value, data + i, sizeof value);
    return value;
  }
  void set(int i, T value) const {
    if (emulator::access_shared(data + i, sizeof(T), emulator::Access::write)) std::memcpy(data + i, &value, sizeof value);
  }
  T add(int i, T value) const {
    T before{};
    if (!emulator::access_shared(data + i, sizeof(T), emulator::Access::atomic)) return before;
    std::memcpy(&before, data + i, sizeof before);
    value = static_cast<T>(before + value);
    std::memcpy(data + i, &value, sizeof value);
    return before;
  }
  void maximum(int i, T value) const {
    T before{};
    if (!emulator::access_shared(data + i, sizeof(T), emulator::Access::atomic)) return;
    std::memcpy(&before, data + i, sizeof before);
    if (value > before) std::memcpy(data + i, &value, sizeof value);
  }
  Quad get_quad(int i) const {
    Quad value{};
    if (emulator::access_shared(data + i, sizeof(Quad), emulator::Access::read))
      std::memcpy(&value, __builtin_assume_aligned(data + i, 16), sizeof value);
    return value;
  }
  void set_quad(int i, const Quad& value) const {
    if (emulator::access_shared(data + i, sizeof(Quad), emulator::Access::write))
      std::memcpy(__builtin_assume_aligned(data + i, 16), &value, sizeof value);
  }
};

template <class T>
inline void copy_async(Shared<T> to, const void* from, int bytes) {
  emulator::copy_async(to.data, from, static_cast<std::size_t>(bytes));
}
using emulator::copy_commit;
template <int id, int left>
inline void copy_wait() {
  emulator::copy_wait(id, left);
}

template <class T>
inline void load_matrices(std::uint32_t (&to)[4], Shared<T> row) {
  struct Lane {
    const unsigned char* row;
    std::uint32_t* to;
  };
  Quad checked = Shared<T>{row.data}.get_quad(0);
  (void)checked;
  Lane lane{reinterpret_cast<const unsigned char*>(row.data), to};
  emulator::collective(
      [](void* const(&lanes)[32]) {
        for (int l = 0; l < kWarp; ++l) {
          for (int matrix = 0; matrix < 4; ++matrix) {
            const auto* from = static_cast<const Lane*>(lanes[matrix * 8 + l / 4])->row + l % 4 * 4;
            std::memcpy(static_cast<Lane*>(lanes[l])->to + matrix, from, 4);
          }
        }
      },
      &lane);
}

inline float value_of(std::uint32_t pair, int i, Half) { return to_float(Half{static_cast<std::uint16_t>(pair >> 16 * i)}); }
inline float value_of(std::uint32_t pair, int i, BFloat16) { return float_of_bits(i == 0 ? pair << 16 : pair & 0xffff0000u); }

template <class T>
inline void multiply_tiles(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, T) {
  struct Lane {
    float* sums;
    const std::uint32_t* a;
    std::uint32_t b[2];
  };
  Lane lane{sums, a, {b0, b1}};
  emulator::collective(
      [](void* const(&lanes)[32]) {
        float left[16][16], right[8][16];
        for (int l = 0; l < kWarp; ++l) {
          const auto* one = static_cast<const Lane*>(lanes[l]);
          for (int i = 0; i < 2; ++i) {
            for (int part = 0; part < 4; ++part) left[l / 4 + part % 2 * 8][part / 2 * 8 + l % 4 * 2 + i] = value_of(one->a[part], i, T{});
            for (int part = 0; part < 2; ++part) right[l / 4][part * 8 + l % 4 * 2 + i] = value_of(one->b[part], i, T{});
          }
        }
        for (int l = 0; l < kWarp; ++l) {
          auto* one = static_cast<Lane*>(lanes[l]);
          for (int i = 0; i < 4; ++i) {
            const float *row = left[l / 4 + i / 2 * 8], *column = right[l % 4 * 2 + i % 2];
            float sum = one->sums[i];
            for (int k = 0; k < 16; ++k) sum = __builtin_fmaf(row[k], column[k], sum);
            one->sums[i] = sum;
          }
        }
        emulator::count_tensor_operations(2 * 16 * 8 * 16);
      },
      &lane);
}

inline std::uint32_t scale_pair(std::uint32_t pair, std::uint32_t power) {
  const float by = float_of_bits(power << 16);
  const std::uint32_t low = bfloat16_bits(value_of(pair, 0, BFloat16{}) * by), high = bfloat16_bits(value_of(pair, 1, BFloat16{}) * by);
  return low | high << 16;
}

}  // namespace prismem::cuda
