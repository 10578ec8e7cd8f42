// CRC-32C (Castagnoli), the checksum of files of this project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace prismem {

// The CRC of `size` bytes, continued from `previous`: crc32c(b, nb, crc32c(a, na)) is the CRC of a followed by b.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t previous = 0);

// Copies `size` bytes to `to`, which does not overlap them, and returns their CRC: one pass instead of two.
std::uint32_t copy_crc32c(void* to, const void* from, std::size_t size, std::uint32_t previous = 0);

// The table-driven form that every machine runs.
std::uint32_t crc32c_portable(const void* data, std::size_t size, std::uint32_t previous = 0);

// One way to compute both functions above.
struct Crc32cForm {
  const char* name;
  std::uint32_t (*crc)(const void* data, std::size_t size, std::uint32_t previous);
  std::uint32_t (*copy)(void* to, const void* from, std::size_t size, std::uint32_t previous);
};

// The forms that this processor runs, the fastest last: the one that crc32c() and copy_crc32c() take.
std::vector<Crc32cForm> crc32c_forms();

}  // namespace prismem
