#include "support/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define PRISMEM_CRC32C_SSE42 1
#include <nmmintrin.h>
#endif

namespace prismem {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;  // reflected

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? kPolynomial : 0u);
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

#ifdef PRISMEM_CRC32C_SSE42
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(const void* data, std::size_t size,
                                                             std::uint32_t previous) {
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t crc = ~previous;
  for (; size >= 8; size -= 8, bytes += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    crc = _mm_crc32_u64(crc, word);
  }
  std::uint32_t narrow = static_cast<std::uint32_t>(crc);
  for (; size > 0; --size, ++bytes) narrow = _mm_crc32_u8(narrow, *bytes);
  return ~narrow;
}
#endif

using Function = std::uint32_t (*)(const void*, std::size_t, std::uint32_t);

Function choose() {
#ifdef PRISMEM_CRC32C_SSE42
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2")) return crc32c_sse42;
#endif
  return crc32c_portable;
}

}  // namespace

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
  static const Function function = choose();
  return function(data, size, previous);
}

}  // namespace prismem
