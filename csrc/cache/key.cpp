#include "cache/key.hpp"

#include <string>

#include "support/error.hpp"

namespace prismem::cache {
namespace {

// The value of each hex digit; 0xFF for every other byte.
constexpr std::array<unsigned char, 256> make_digits() {
  std::array<unsigned char, 256> digits{};
  for (auto& digit : digits) digit = 0xFF;
  for (unsigned char i = 0; i < 10; ++i) digits['0' + i] = i;
  for (unsigned char i = 0; i < 6; ++i) digits['a' + i] = static_cast<unsigned char>(10 + i);
  return digits;
}

constexpr std::array<unsigned char, 256> kDigits = make_digits();

}  // namespace

std::uint64_t stage_seed(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a
  for (const char symbol : name) hash = (hash ^ static_cast<unsigned char>(symbol)) * 0x100000001B3ull;
  return hash * kHashMultiplier;
}

Key parse_key(std::string_view hex) {
  Key key{};
  unsigned bad = hex.size() == 2 * key.size() ? 0u : 0x100u;
  for (std::size_t i = 0; bad == 0 && i < key.size(); i += 8) {
    for (std::size_t j = i; j < i + 8; ++j) {
      const unsigned high = kDigits[static_cast<unsigned char>(hex[2 * j])];
      const unsigned low = kDigits[static_cast<unsigned char>(hex[2 * j + 1])];
      bad |= (high | low) & 0xF0u;
      key[j] = static_cast<unsigned char>((high << 4) | low);
    }
  }
  if (bad != 0) {
    throw ArgumentError("key must be 64 lowercase hex digits (as digests.digest returns), got " +
                        std::to_string(hex.size()) + " bytes: '" + std::string(hex.substr(0, 80)) + "'");
  }
  return key;
}

}  // namespace prismem::cache
