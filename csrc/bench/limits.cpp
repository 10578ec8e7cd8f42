#include "bench/limits.hpp"

#include "simd/vec.hpp"

#if defined(PRISMEM_TARGET_AVX2) || defined(PRISMEM_TARGET_AVX512)
#include "simd/intrinsics.hpp"
#endif

#define PRISMEM_TEXT_OF(name) #name
#define PRISMEM_TEXT(name) PRISMEM_TEXT_OF(name)

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

constexpr int kChains = 12;  // more than latency times throughput of a fused multiply-add, fewer than the registers
constexpr int kUnroll = 8;

#if defined(PRISMEM_TARGET_AVX512)

using Lanes = __m512;
using Bytes = __m512i;
constexpr std::int64_t kLanes = 16;
inline Lanes all_lanes(float value) { return _mm512_set1_ps(value); }
inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Bytes zero_bytes() { return _mm512_setzero_si512(); }
inline Bytes all_bytes(char value) { return _mm512_set1_epi8(value); }
inline Bytes load_bytes(const unsigned char* p) { return _mm512_loadu_si512(p); }
inline Bytes either(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
inline Bytes dot_32(Bytes sums, Bytes a, Bytes b) { return _mm512_dpbusd_epi32(sums, a, b); }
inline Bytes dot_16(Bytes sums, Bytes a, Bytes b) { return _mm512_add_epi16(sums, _mm512_maddubs_epi16(a, b)); }
inline Bytes widen_add(Bytes sums, Bytes halves) { return _mm512_add_epi32(sums, _mm512_madd_epi16(halves, _mm512_set1_epi16(1))); }

#elif defined(PRISMEM_TARGET_AVX2)

using Lanes = __m256;
using Bytes = __m256i;
constexpr std::int64_t kLanes = 8;
inline Lanes all_lanes(float value) { return _mm256_set1_ps(value); }
inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }
inline Bytes zero_bytes() { return _mm256_setzero_si256(); }
inline Bytes all_bytes(char value) { return _mm256_set1_epi8(value); }
inline Bytes load_bytes(const unsigned char* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline Bytes either(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
inline Bytes dot_32(Bytes sums, Bytes a, Bytes b) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}
inline Bytes dot_16(Bytes sums, Bytes a, Bytes b) { return _mm256_add_epi16(sums, _mm256_maddubs_epi16(a, b)); }
inline Bytes widen_add(Bytes sums, Bytes halves) { return _mm256_add_epi32(sums, _mm256_madd_epi16(halves, _mm256_set1_epi16(1))); }

#endif

#if defined(PRISMEM_TARGET_AVX512) || defined(PRISMEM_TARGET_AVX2)

constexpr std::int64_t kStep = static_cast<std::int64_t>(sizeof(Bytes)) * kUnroll;

inline void read_step(const unsigned char* p, Bytes (&sums)[kUnroll]) {
  for (int i = 0; i < kUnroll; ++i) sums[i] = either(sums[i], load_bytes(p + i * static_cast<std::int64_t>(sizeof(Bytes))));
}

inline std::int32_t first_of(Bytes a) {
  std::int32_t first;
  __builtin_memcpy(&first, &a, sizeof first);
  return first;
}

inline float first_of(Lanes a) {
  float first;
  __builtin_memcpy(&first, &a, sizeof first);
  return first;
}

inline float folded(const Bytes (&sums)[kUnroll]) {
  Bytes all = sums[0];
  for (int i = 1; i < kUnroll; ++i) all = either(all, sums[i]);
  return static_cast<float>(first_of(all));
}

#endif

}  // namespace

#if defined(PRISMEM_TARGET_AVX512) || defined(PRISMEM_TARGET_AVX2)

float read_stream(const unsigned char* bytes, std::int64_t count) {
  Bytes sums[kUnroll];
  for (int i = 0; i < kUnroll; ++i) sums[i] = zero_bytes();
  for (std::int64_t at = 0; at + kStep <= count; at += kStep) read_step(bytes + at, sums);
  return folded(sums);
}

float read_four_streams(const unsigned char* bytes, std::int64_t count) {
  constexpr int kStreams = 4;
  constexpr std::int64_t kAhead = 1024;
  const std::int64_t part = count / kStreams;
  Bytes sums[kUnroll];
  for (int i = 0; i < kUnroll; ++i) sums[i] = zero_bytes();
  for (std::int64_t at = 0; at + kStep <= part; at += kStep) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const unsigned char* p = bytes + stream * part + at;
      // Prefetches past the end are harmless.
      for (std::int64_t line = 0; line < kStep; line += 64) __builtin_prefetch(p + kAhead + line, 0, 0);
      read_step(p, sums);
    }
  }
  return folded(sums);
}

float multiply_floats(std::int64_t rounds) {
  Lanes factor = all_lanes(0.999f);
  const Lanes addend = all_lanes(1e-6f);
  Lanes chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = all_lanes(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
    keep_in_register(factor);
    for (int i = 0; i < kChains; ++i) chains[i] = multiply_add(chains[i], factor, addend);
  }
  Lanes sum = chains[0];
  for (int i = 1; i < kChains; ++i) sum = multiply_add(sum, factor, chains[i]);
  return first_of(sum);
}

std::int32_t multiply_bytes_32(std::int64_t rounds) {
  Bytes left = all_bytes(3);
  Bytes right = all_bytes(5);
  Bytes sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = zero_bytes();
  for (std::int64_t round = 0; round < rounds; ++round) {
    // A product that is the same each time would be computed once: the operands are made to look new.
    for (int i = 0; i < kChains; ++i) {
      keep_in_register(left);
      sums[i] = dot_32(sums[i], left, right);
    }
  }
  Bytes all = sums[0];
  for (int i = 1; i < kChains; ++i) all = either(all, sums[i]);
  return first_of(all);
}

std::int32_t multiply_bytes_16(std::int64_t rounds) {
  constexpr int kHalves = 4;
  Bytes left = all_bytes(3);
  Bytes right = all_bytes(5);
  Bytes sums = zero_bytes();
  for (std::int64_t round = 0; round < rounds; ++round) {
    Bytes halves[kHalves];
    for (int i = 0; i < kHalves; ++i) halves[i] = zero_bytes();
    for (int repeat = 0; repeat < 4; ++repeat) {
      for (int i = 0; i < kHalves; ++i) {
        keep_in_register(left);
        halves[i] = dot_16(halves[i], left, right);
      }
    }
    for (int i = 0; i < kHalves; ++i) sums = widen_add(sums, halves[i]);
  }
  return first_of(sums);
}

extern const LimitKernels limit_kernels;
const LimitKernels limit_kernels = {
    PRISMEM_TEXT(PRISMEM_NAMESPACE), read_stream, read_four_streams, multiply_floats, 2 * kLanes * kChains, multiply_bytes_32, multiply_bytes_16,
    static_cast<std::int64_t>(sizeof(Bytes)) * kChains, static_cast<std::int64_t>(sizeof(Bytes)) * 16,
};

#else

float read_stream(const unsigned char* bytes, std::int64_t count) {
  std::uint64_t sums[kUnroll] = {};
  for (std::int64_t at = 0; at + 8 * kUnroll <= count; at += 8 * kUnroll) {
    for (int i = 0; i < kUnroll; ++i) {
      std::uint64_t word;
      __builtin_memcpy(&word, bytes + at + 8 * i, sizeof word);
      sums[i] |= word;
    }
  }
  std::uint64_t all = 0;
  for (int i = 0; i < kUnroll; ++i) all |= sums[i];
  return static_cast<float>(all & 1u);
}

float multiply_floats(std::int64_t rounds) {
  constexpr int kFloats = 4 * kChains;
  float chains[kFloats];
  float factor = 0.999f;
  for (int i = 0; i < kFloats; ++i) chains[i] = static_cast<float>(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kFloats; ++i) chains[i] = chains[i] * factor + 1e-6f;
  }
  float sum = 0.0f;
  for (int i = 0; i < kFloats; ++i) sum += chains[i];
  return sum;
}

std::int32_t no_bytes(std::int64_t) { return 0; }

extern const LimitKernels limit_kernels;
const LimitKernels limit_kernels = {
    PRISMEM_TEXT(PRISMEM_NAMESPACE), read_stream, read_stream, multiply_floats, 2 * 4 * kChains, no_bytes, no_bytes, 0, 0,
};

#endif

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
