// Numbers in files: little endian whatever the machine.
#pragma once

#include <cstdint>

namespace prismem {

// Written out, not as loops: compilers make one load or store of each.
inline void store_le32(char* at, std::uint32_t value) {
  at[0] = static_cast<char>(value);
  at[1] = static_cast<char>(value >> 8);
  at[2] = static_cast<char>(value >> 16);
  at[3] = static_cast<char>(value >> 24);
}

inline void store_le64(char* at, std::uint64_t value) {
  store_le32(at, static_cast<std::uint32_t>(value));
  store_le32(at + 4, static_cast<std::uint32_t>(value >> 32));
}

inline std::uint32_t load_le32(const char* at) {
  const auto byte = [at](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(at[i])); };
  return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
}

inline std::uint64_t load_le64(const char* at) { return static_cast<std::uint64_t>(load_le32(at + 4)) << 32 | load_le32(at); }

}  // namespace prismem
