#include "support/little_endian.hpp"

namespace prismem {

void store_le32(char* at, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<char>(value >> (8 * i));
}

void store_le64(char* at, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) at[i] = static_cast<char>(value >> (8 * i));
}

std::uint32_t load_le32(const char* at) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<unsigned char>(at[i]);
  return value;
}

std::uint64_t load_le64(const char* at) {
  return static_cast<std::uint64_t>(load_le32(at + 4)) << 32 | load_le32(at);
}

}  // namespace prismem
