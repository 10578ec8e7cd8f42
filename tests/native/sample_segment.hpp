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
