// The bytes of one record (docs/formats.md, "Execution cache on disk").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cache/key.hpp"
#include "support/little_endian.hpp"

namespace prismem::cache {

constexpr std::size_t kRecordHeaderBytes = 64;
constexpr std::size_t kRecordAlignment = 8;
constexpr std::uint8_t kValueRecord = 1;
// No metadata is written today; a reader steps over up to this much of it.
constexpr std::uint32_t kMaxMetaBytes = 1u << 20;

// The next multiple of the alignment; records, and the values in them, start at one.
constexpr std::uint64_t aligned(std::uint64_t size) {
  return (size + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

struct RecordHeader {
  std::uint8_t kind = kValueRecord;
  std::uint32_t meta_bytes = 0;
  std::uint64_t value_bytes = 0;
  std::uint32_t body_crc = 0;
  Key key{};
  std::string_view stage;  // points into the parsed bytes

  // Where the value starts, counted from the start of the record.
  std::uint64_t value_offset() const { return aligned(kRecordHeaderBytes + stage.size() + meta_bytes); }
  std::uint64_t record_bytes() const { return aligned(value_offset() + value_bytes); }
};

// Header, stage and padding of a value record, everything up to the value's first byte. `seed` is the segment's.
std::string encode_head(std::string_view stage, const Key& key, std::string_view value, std::uint32_t seed);

enum class Parse { ok, cut, damaged };

// Reads the header and stage at `data`. `cut`: sound as far as it goes, but more than `available` bytes are needed.
Parse parse_head(const char* data, std::size_t available, std::uint32_t seed, RecordHeader& header);

// The checksum over metadata and value.
std::uint32_t body_crc(std::string_view meta, std::string_view value, std::uint32_t seed);

// "PMR1" as the first four bytes of a record.
constexpr char kRecordMagic[4] = {'P', 'M', 'R', '1'};

}  // namespace prismem::cache
