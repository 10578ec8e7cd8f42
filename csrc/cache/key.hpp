// What an entry is called: a 32-byte content key inside a stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "prismem/cache.hpp"

namespace prismem::cache {

constexpr std::uint64_t kHashMultiplier = 0xD6E8FEB86659FD93ull;

// The hash under which the index of a directory knows an entry, the same in every process; never 0. `stage_seed` is Stage::seed.
inline std::uint64_t entry_hash(const Key& key, std::uint64_t stage_seed) {
  // Keys are SHA-256 in practice, yet every word counts, so that hand-made keys spread too.
  std::uint64_t hash = stage_seed;
  for (std::size_t word = 0; word < 4; ++word) {
    std::uint64_t part;
    std::memcpy(&part, key.data() + 8 * word, sizeof part);
    hash = (hash ^ part) * kHashMultiplier;
    hash ^= hash >> 32;
  }
  hash *= kHashMultiplier;
  return hash == 0 ? 1 : hash;
}

// The seed that a stage's name gives to the hashes of its entries.
std::uint64_t stage_seed(std::string_view name);

// A key and the number of its stage in the StageTable of this process.
struct EntryId {
  Key key;
  std::uint32_t stage;
  bool operator==(const EntryId& other) const { return stage == other.stage && key == other.key; }
};

struct EntryHash {
  std::size_t operator()(const EntryId& id) const {
    return static_cast<std::size_t>(entry_hash(id.key, 0x9E3779B97F4A7C15ull * (id.stage + 1)));
  }
};

}  // namespace prismem::cache
