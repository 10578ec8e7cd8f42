// Numbers in files: little endian whatever the machine.
#pragma once

#include <cstdint>

namespace prismem {

void store_le32(char* at, std::uint32_t value);
void store_le64(char* at, std::uint64_t value);
std::uint32_t load_le32(const char* at);
std::uint64_t load_le64(const char* at);

}  // namespace prismem
