// CRC-32C (Castagnoli), the checksum of every record on disk.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prismem {

// The CRC of `size` bytes, continued from `previous`: crc32c(b, nb, crc32c(a, na)) is the CRC of a followed by b.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t previous = 0);

// The table-driven form that every machine runs; crc32c() takes the SSE4.2 instruction where the processor has it.
std::uint32_t crc32c_portable(const void* data, std::size_t size, std::uint32_t previous = 0);

}  // namespace prismem
