// The bytes of one record (docs/formats.md, "Execution cache on disk").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cache/key.hpp"

namespace prismem::cache {

constexpr std::size_t kRecordAlignment = 8;
constexpr std::uint8_t kValueRecord = 1;
constexpr std::uint8_t kTombstoneRecord = 3;
// A head is this many bytes and the stage, up to a multiple of the alignment.
constexpr std::size_t kFixedHeadBytes = 56;
constexpr std::size_t kMaxHeadBytes = 120;
constexpr std::uint64_t kMaxValueBytes = (std::uint64_t{1} << 48) - 1;

// The next multiple of the alignment; records, and the values in them, start at one.
constexpr std::uint64_t aligned(std::uint64_t size) { return (size + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment; }

struct RecordHeader {
  std::uint8_t kind = kValueRecord;
  std::string_view stage;  // points into the parsed bytes
  Key key{};
  std::uint64_t value_bytes = 0;
  std::uint32_t value_crc = 0;
  float cost = 0.0f;            // of computing the value anew; 0: not known
  std::uint32_t stored_at = 0;  // Unix seconds

  // Where the value starts, counted from the start of the record.
  std::uint64_t value_offset() const { return aligned(kFixedHeadBytes + stage.size()); }
  std::uint64_t record_bytes() const { return value_offset() + aligned(value_bytes); }
};

// Writes everything up to the value's first byte to `out`, which has room for kMaxHeadBytes, and returns its length. `stage` is
// a stage name, `value_bytes` at most kMaxValueBytes, `value_crc` the CRC of the value continued from `seed`, the segment's. A
// cost that is no positive finite number is stored as 0.
std::size_t write_head(char* out, std::uint8_t kind, std::string_view stage, const Key& key, std::uint64_t value_bytes,
                       std::uint32_t value_crc, float cost, std::uint32_t stored_at, std::uint32_t seed);

enum class Parse { ok, cut, damaged };

// Reads the head at `data`. `cut`: nothing wrong as far as it goes, but more than `available` bytes are needed.
Parse parse_head(const char* data, std::size_t available, std::uint32_t seed, RecordHeader& header);

// Whether the value at `value`, and the zeros behind it, are what was written. All record_bytes() of the record must be there.
bool sound_value(const char* value, const RecordHeader& header, std::uint32_t seed);

}  // namespace prismem::cache
