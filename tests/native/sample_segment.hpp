// The bytes of segments, made in memory for tests of what reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/record.hpp"
#include "support/crc32c.hpp"

namespace prismem::testing {

struct SampleEntry {
  std::uint8_t kind = cache::kValueRecord;
  std::string stage = "stage";
  cache::Key key{};
  std::string value;
  float cost = 0.0f;
  std::uint32_t stored_at = 0;
};

inline cache::Key sample_key(unsigned number) {
  cache::Key key{};
  for (std::size_t byte = 0; byte < key.size(); ++byte) key[byte] = static_cast<unsigned char>(number * 31 + byte * 7);
  return key;
}

// Seven entries with stages and values of awkward lengths.
inline std::vector<SampleEntry> sample_entries() {
  constexpr std::size_t kStageBytes[] = {1, 8, 64, 5, 7, 9, 16};
  constexpr std::size_t kValueBytes[] = {0, 1, 7, 8, 9, 31, 300};
  std::vector<SampleEntry> entries;
  for (unsigned i = 0; i < 7; ++i) {
    SampleEntry entry;
    entry.stage = std::string(kStageBytes[i], static_cast<char>('a' + i));
    entry.key = sample_key(i);
    for (std::size_t byte = 0; byte < kValueBytes[i]; ++byte) entry.value += static_cast<char>(byte * 13 + i);
    entry.cost = 0.5f * static_cast<float>(i);
    entry.stored_at = 1700000000u + i;
    entries.push_back(entry);
  }
  return entries;
}

// Records one behind the other; the first starts at `start`.
struct SampleSegment {
  explicit SampleSegment(std::uint32_t seed_of_all, std::size_t start = 64) : seed(seed_of_all), bytes(start, '\0') {}

  void add(const SampleEntry& entry) {
    starts.push_back(bytes.size());
    char head[cache::kMaxHeadBytes];
    const std::uint32_t crc = crc32c(entry.value.data(), entry.value.size(), seed);
    bytes.append(head, cache::write_head(head, entry.kind, entry.stage, entry.key, entry.value.size(), crc, entry.cost, entry.stored_at, seed));
    bytes += entry.value;
    bytes.resize(cache::aligned(bytes.size()), '\0');
  }

  std::uint64_t start_of(std::size_t record) const { return starts[record]; }
  std::uint64_t end_of(std::size_t record) const { return record + 1 < starts.size() ? starts[record + 1] : bytes.size(); }

  std::uint32_t seed;
  std::string bytes;
  std::vector<std::uint64_t> starts;
};

}  // namespace prismem::testing
