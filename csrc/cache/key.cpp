#include "cache/key.hpp"

#include <string>

#include "support/error.hpp"

namespace prismem::cache {
namespace {

int hex_digit(char symbol) {
  if (symbol >= '0' && symbol <= '9') return symbol - '0';
  if (symbol >= 'a' && symbol <= 'f') return symbol - 'a' + 10;
  return -1;
}

}  // namespace

Key parse_key(std::string_view hex) {
  Key key{};
  bool valid = hex.size() == 2 * key.size();
  for (std::size_t i = 0; valid && i < key.size(); ++i) {
    const int high = hex_digit(hex[2 * i]);
    const int low = hex_digit(hex[2 * i + 1]);
    valid = high >= 0 && low >= 0;
    key[i] = static_cast<unsigned char>((high << 4) | (low & 15));
  }
  if (!valid) {
    throw ArgumentError("key must be 64 lowercase hex digits (as digests.digest returns), got " +
                        std::to_string(hex.size()) + " bytes: '" + std::string(hex.substr(0, 80)) + "'");
  }
  return key;
}

}  // namespace prismem::cache
