// What an entry is called: a 32-byte content key inside a stage.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace prismem::cache {

using Key = std::array<unsigned char, 32>;

// The key that 64 lowercase hex digits spell; ArgumentError for anything else.
Key parse_key(std::string_view hex);

// A key and the number of its stage in the StageTable of this process.
struct EntryId {
  Key key;
  std::uint32_t stage;
  bool operator==(const EntryId& other) const { return stage == other.stage && key == other.key; }
};

struct EntryHash {
  std::size_t operator()(const EntryId& id) const {
    // Keys are SHA-256 in practice, yet every word counts, so that hand-made keys spread too.
    std::uint64_t hash = 0x9E3779B97F4A7C15ull * (id.stage + 1);
    for (std::size_t word = 0; word < 4; ++word) {
      std::uint64_t part;
      std::memcpy(&part, id.key.data() + 8 * word, sizeof part);
      hash = (hash ^ part) * 0xD6E8FEB86659FD93ull;
      hash ^= hash >> 32;
    }
    return static_cast<std::size_t>(hash);
  }
};

}  // namespace prismem::cache
