#include "support/crc32c.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define PRISMEM_CRC32C_X86 1
// GCC 12 takes the undefined register behind some of its own intrinsics for a fault of whoever calls them.
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace prismem {
namespace {

// Polynomials over GF(2) are kept as the CRC keeps them: bit 31 of a number is the coefficient of x^0, bit 0 that of x^31.
constexpr std::uint32_t kPolynomial = 0x82F63B78u;

constexpr std::uint32_t times_x(std::uint32_t value) { return (value >> 1) ^ ((value & 1u) ? kPolynomial : 0u); }

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
    tables[0][byte] = crc;
  }
  for (std::size_t slice = 1; slice < 8; ++slice) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[slice - 1][byte];
      tables[slice][byte] = (crc >> 8) ^ tables[0][crc & 0xFFu];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t copy_portable(void* to, const void* from, std::size_t size, std::uint32_t previous) {
  if (size > 0) std::memcpy(to, from, size);
  return crc32c_portable(from, size, previous);
}

#ifdef PRISMEM_CRC32C_X86

#define PRISMEM_STREAMS __attribute__((target("sse4.2,pclmul")))
#define PRISMEM_LANES __attribute__((target("sse4.2,pclmul,avx512f,avx512vl,vpclmulqdq")))
#define PRISMEM_INSIDE __attribute__((always_inline)) inline

// x^power modulo the polynomial.
constexpr std::uint32_t power_of_x(std::size_t power) {
  std::uint32_t value = 0x80000000u;
  for (std::size_t i = 0; i < power; ++i) value = times_x(value);
  return value;
}

// Three streams hide the latency of the CRC instruction. One round takes at most this many words for each: 4080 bytes in all.
constexpr std::size_t kStreamWords = 170;
// Below this the plain loop is at least as fast as streams that have to be joined.
constexpr std::size_t kStreamLeast = 216;

// kJoin[m] carries a CRC over m words that follow: x^(64 m - 33). The carry-less product of two 32-bit polynomials, seen as a 64-bit
// one, is their product times x, and the CRC instruction multiplies by x^32, which makes up for the 33.
constexpr std::array<std::uint32_t, 2 * kStreamWords + 1> make_joins() {
  std::array<std::uint32_t, 2 * kStreamWords + 1> joins{};
  std::uint32_t value = power_of_x(31);
  for (std::size_t words = 1; words < joins.size(); ++words) {
    joins[words] = value;
    for (int bit = 0; bit < 64; ++bit) value = times_x(value);
  }
  return joins;
}

constexpr std::array<std::uint32_t, 2 * kStreamWords + 1> kJoins = make_joins();

// What is at `at`. The words and bytes of a copy pass through a register on their way to the CRC; without one `to` is null.
template <bool kCopy, class Word>
PRISMEM_INSIDE Word take(unsigned char* to, const unsigned char* from, std::size_t at) {
  Word word;
  std::memcpy(&word, from + at, sizeof word);
  if (kCopy) std::memcpy(to + at, &word, sizeof word);
  return word;
}

// `crc` in this and the next functions is the CRC's state, without the inversions at both ends.
template <bool kCopy>
PRISMEM_STREAMS PRISMEM_INSIDE std::uint32_t plain(unsigned char* to, const unsigned char* from, std::size_t size, std::uint32_t crc) {
  std::uint64_t wide = crc;
  std::size_t at = 0;
  for (; at + 8 <= size; at += 8) wide = _mm_crc32_u64(wide, take<kCopy, std::uint64_t>(to, from, at));
  crc = static_cast<std::uint32_t>(wide);
  if (size & 4) {
    crc = _mm_crc32_u32(crc, take<kCopy, std::uint32_t>(to, from, at));
    at += 4;
  }
  if (size & 2) {
    crc = _mm_crc32_u16(crc, take<kCopy, std::uint16_t>(to, from, at));
    at += 2;
  }
  if (size & 1) crc = _mm_crc32_u8(crc, take<kCopy, std::uint8_t>(to, from, at));
  return crc;
}

PRISMEM_STREAMS PRISMEM_INSIDE std::uint64_t carried(std::uint64_t crc, std::size_t words) {
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)), _mm_cvtsi32_si128(static_cast<int>(kJoins[words])), 0);
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(product));
}

template <bool kCopy>
PRISMEM_STREAMS PRISMEM_INSIDE std::uint32_t streams(unsigned char* to, const unsigned char* from, std::size_t size, std::uint32_t crc) {
  while (size >= kStreamLeast) {
    const std::size_t words = std::min(kStreamWords, size / 24);
    const std::size_t stride = 8 * words;
    std::uint64_t first = crc, second = 0, third = 0;
    std::size_t at = 0;
    for (; at < stride - 8; at += 8) {
      first = _mm_crc32_u64(first, take<kCopy, std::uint64_t>(to, from, at));
      second = _mm_crc32_u64(second, take<kCopy, std::uint64_t>(to, from, stride + at));
      third = _mm_crc32_u64(third, take<kCopy, std::uint64_t>(to, from, 2 * stride + at));
    }
    first = _mm_crc32_u64(first, take<kCopy, std::uint64_t>(to, from, at));
    second = _mm_crc32_u64(second, take<kCopy, std::uint64_t>(to, from, stride + at));
    const std::uint64_t last = take<kCopy, std::uint64_t>(to, from, 2 * stride + at);
    crc = static_cast<std::uint32_t>(_mm_crc32_u64(third, last ^ carried(first, 2 * words) ^ carried(second, words)));
    to += kCopy ? 3 * stride : 0;
    from += 3 * stride;
    size -= 3 * stride;
  }
  return plain<kCopy>(to, from, size, crc);
}

PRISMEM_STREAMS std::uint32_t crc_streams(const void* data, std::size_t size, std::uint32_t previous) {
  return ~streams<false>(nullptr, static_cast<const unsigned char*>(data), size, ~previous);
}

PRISMEM_STREAMS std::uint32_t copy_streams(void* to, const void* from, std::size_t size, std::uint32_t previous) {
  return ~streams<true>(static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), size, ~previous);
}

// A polynomial of degree below 32 as the upper half of a 64-bit one.
constexpr long long wide(std::uint32_t value) { return static_cast<long long>(static_cast<std::uint64_t>(value) << 32); }

// Folding carries each 128-bit lane over `bits` bits that follow. The low half of a lane stands 64 bits further ahead than the high half, and
// the carry-less product of 64-bit polynomials, seen as a 128-bit one, is their product times x: hence the exponents.
constexpr long long fold_low(std::size_t bits) { return wide(power_of_x(bits + 63)); }
constexpr long long fold_high(std::size_t bits) { return wide(power_of_x(bits - 1)); }

constexpr std::size_t kBlock = 64;          // bytes of a register
constexpr std::size_t kLanesLeast = 4 * kBlock;

PRISMEM_LANES PRISMEM_INSIDE __m512i folded(__m512i value, __m512i by, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(value, by, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(value, by, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // the sum of the three
}

template <bool kCopy>
PRISMEM_LANES PRISMEM_INSIDE __m512i take_block(unsigned char* to, const unsigned char* from, std::size_t at) {
  const __m512i block = _mm512_loadu_si512(from + at);
  if (kCopy) _mm512_storeu_si512(to + at, block);
  return block;
}

template <std::size_t kBits>
PRISMEM_LANES PRISMEM_INSIDE __m512i fold_over() {
  constexpr long long low = fold_low(kBits), high = fold_high(kBits);
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

// At least kLanesLeast bytes, a multiple of kBlock; the state after them.
template <bool kCopy>
PRISMEM_LANES PRISMEM_INSIDE std::uint32_t lanes(unsigned char* to, const unsigned char* from, std::size_t size, std::uint32_t crc) {
  const __m512i over_four = fold_over<4 * 512>();
  const __m512i over_one = fold_over<512>();
  __m512i sums[4];
  for (std::size_t i = 0; i < 4; ++i) sums[i] = take_block<kCopy>(to, from, i * kBlock);
  sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  std::size_t at = 4 * kBlock;
  for (; at + 4 * kBlock <= size; at += 4 * kBlock) {
    for (std::size_t i = 0; i < 4; ++i) sums[i] = folded(sums[i], over_four, take_block<kCopy>(to, from, at + i * kBlock));
  }
  sums[1] = folded(sums[0], over_one, sums[1]);
  sums[3] = folded(sums[2], over_one, sums[3]);
  __m512i sum = folded(sums[1], fold_over<2 * 512>(), sums[3]);
  for (; at + kBlock <= size; at += kBlock) sum = folded(sum, over_one, take_block<kCopy>(to, from, at));
  // The first three lanes are carried to the place of the last one, which stays as it is.
  constexpr long long low3 = fold_low(384), high3 = fold_high(384), low2 = fold_low(256), high2 = fold_high(256), low1 = fold_low(128),
                      high1 = fold_high(128);
  const __m512i over_rest = _mm512_set_epi64(0, 0, high1, low1, high2, low2, high3, low3);
  const __m512i carried = folded(sum, over_rest, _mm512_maskz_mov_epi64(0xC0, sum));
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(carried), _mm512_extracti64x4_epi64(carried, 1));
  const __m128i lane = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const std::uint64_t state = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(lane)));
  return static_cast<std::uint32_t>(_mm_crc32_u64(state, static_cast<std::uint64_t>(_mm_extract_epi64(lane, 1))));
}

template <bool kCopy>
PRISMEM_LANES PRISMEM_INSIDE std::uint32_t lanes_and_rest(unsigned char* to, const unsigned char* from, std::size_t size, std::uint32_t crc) {
  if (size >= kLanesLeast) {
    const std::size_t whole = size / kBlock * kBlock;
    crc = lanes<kCopy>(to, from, whole, crc);
    to += kCopy ? whole : 0;
    from += whole;
    size -= whole;
  }
  return plain<kCopy>(to, from, size, crc);
}

PRISMEM_LANES std::uint32_t crc_lanes(const void* data, std::size_t size, std::uint32_t previous) {
  return ~lanes_and_rest<false>(nullptr, static_cast<const unsigned char*>(data), size, ~previous);
}

PRISMEM_LANES std::uint32_t copy_lanes(void* to, const void* from, std::size_t size, std::uint32_t previous) {
  return ~lanes_and_rest<true>(static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), size, ~previous);
}

#endif  // PRISMEM_CRC32C_X86

std::uint32_t first_crc(const void* data, std::size_t size, std::uint32_t previous);
std::uint32_t first_copy(void* to, const void* from, std::size_t size, std::uint32_t previous);

// The first call of either function puts the form of this processor in place of these two; a call costs one load more than a
// direct one, and no guard.
std::atomic<decltype(Crc32cForm::crc)> chosen_crc{first_crc};
std::atomic<decltype(Crc32cForm::copy)> chosen_copy{first_copy};

void choose() {
  const Crc32cForm form = crc32c_forms().back();
  chosen_crc.store(form.crc, std::memory_order_relaxed);
  chosen_copy.store(form.copy, std::memory_order_relaxed);
}

std::uint32_t first_crc(const void* data, std::size_t size, std::uint32_t previous) {
  choose();
  return crc32c(data, size, previous);
}

std::uint32_t first_copy(void* to, const void* from, std::size_t size, std::uint32_t previous) {
  choose();
  return copy_crc32c(to, from, size, previous);
}

}  // namespace

std::vector<Crc32cForm> crc32c_forms() {
  std::vector<Crc32cForm> forms{{"portable", crc32c_portable, copy_portable}};
#ifdef PRISMEM_CRC32C_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
    forms.push_back({"streams", crc_streams, copy_streams});
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq")) {
      forms.push_back({"lanes", crc_lanes, copy_lanes});
    }
  }
#endif
  return forms;
}

std::uint32_t crc32c_portable(const void* data, std::size_t size, std::uint32_t previous) {
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~previous;
  for (; size >= 8; size -= 8, bytes += 8) {
    const std::uint32_t low = crc ^ (static_cast<std::uint32_t>(bytes[0]) | static_cast<std::uint32_t>(bytes[1]) << 8 |
                                     static_cast<std::uint32_t>(bytes[2]) << 16 |
                                     static_cast<std::uint32_t>(bytes[3]) << 24);
    crc = kTables[7][low & 0xFFu] ^ kTables[6][(low >> 8) & 0xFFu] ^ kTables[5][(low >> 16) & 0xFFu] ^
          kTables[4][low >> 24] ^ kTables[3][bytes[4]] ^ kTables[2][bytes[5]] ^ kTables[1][bytes[6]] ^
          kTables[0][bytes[7]];
  }
  for (; size > 0; --size, ++bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ *bytes) & 0xFFu];
  return ~crc;
}

std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t previous) {
  return chosen_crc.load(std::memory_order_relaxed)(data, size, previous);
}

std::uint32_t copy_crc32c(void* to, const void* from, std::size_t size, std::uint32_t previous) {
  return chosen_copy.load(std::memory_order_relaxed)(to, from, size, previous);
}

}  // namespace prismem
