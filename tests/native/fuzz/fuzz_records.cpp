// What reads records, on bytes that nobody vouches for. The first byte of the input chooses how the others are used:
//   0  they are the file;
//   1  they are heads and values under sound checksums, so that what stands behind the checksums is reached;
//   2  they say which bytes of a sound segment are changed, which then loses exactly the records that were touched.
// Everything a scan finds is held against a second reading of it, written apart from the first.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/segment.hpp"
#include "cache/stages.hpp"
#include "input_bytes.hpp"
#include "sample_segment.hpp"
#include "support/crc32c.hpp"

namespace prismem::cache {
namespace {

using testing::InputBytes;
using testing::SampleEntry;
using testing::SampleSegment;

#define REQUIRE(condition) \
  if (!(condition)) std::abort()

unsigned byte_at(std::string_view file, std::uint64_t at) { return static_cast<unsigned char>(file[at]); }

std::uint64_t number_at(std::string_view file, std::uint64_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(byte_at(file, at + static_cast<std::uint64_t>(i))) << (8 * i);
  return value;
}

// Whether a whole record with a sound head starts at `offset`, by the words of the format; parse_head has to agree about the head.
bool is_record(std::string_view file, std::uint32_t seed, std::uint64_t offset) {
  const std::uint64_t available = file.size() - offset;
  const std::uint64_t stage_bytes = available > 5 ? byte_at(file, offset + 5) : 1;
  const std::uint64_t value_offset = (56 + stage_bytes + 7) / 8 * 8;
  Parse expected = Parse::ok;
  if (stage_bytes < 1 || stage_bytes > 64) {
    expected = Parse::damaged;
  } else if (available < value_offset) {
    expected = Parse::cut;
  } else {
    for (std::uint64_t i = 56; i < value_offset; ++i) {
      const unsigned byte = byte_at(file, offset + i);
      if (i < 56 + stage_bytes ? byte < 0x20 || byte > 0x7E : byte != 0) expected = Parse::damaged;
    }
    if (number_at(file, offset, 4) != crc32c_portable(file.data() + offset + 4, 52 + stage_bytes, seed)) expected = Parse::damaged;
  }
  RecordHeader header;
  REQUIRE(parse_head(file.data() + offset, available, seed, header) == expected);
  if (expected != Parse::ok) return false;
  const std::uint64_t value_bytes = number_at(file, offset + 6, 2) << 32 | number_at(file, offset + 8, 4);
  REQUIRE(header.stage == file.substr(offset + 56, stage_bytes) && header.value_bytes == value_bytes);
  REQUIRE(header.value_offset() == value_offset && header.record_bytes() == value_offset + (value_bytes + 7) / 8 * 8);
  return (value_bytes + 7) / 8 * 8 <= available - value_offset;
}

struct Found {
  Scan scan;
  std::map<std::uint64_t, std::string> values;  // of the records whose value is sound
  std::map<std::uint64_t, RecordHeader> heads;
};

// Scans, and checks what holds for any bytes.
Found scan_checked(std::string_view file, std::uint32_t seed, std::uint64_t from) {
  Found found;
  std::uint64_t behind = from;
  std::uint64_t gaps = 0;
  found.scan = scan_records(file, seed, from, [&](std::uint64_t offset, const RecordHeader& header) {
    REQUIRE(offset >= behind && (offset - from) % kRecordAlignment == 0 && is_record(file, seed, offset));
    for (std::uint64_t skipped = behind; skipped < offset; skipped += kRecordAlignment) REQUIRE(!is_record(file, seed, skipped));
    if (offset != behind) ++gaps;
    behind = offset + header.record_bytes();
    REQUIRE(is_stage_name(header.stage) && header.cost >= 0.0f && std::isfinite(header.cost));
    REQUIRE(std::memcmp(header.key.data(), file.data() + offset + 24, header.key.size()) == 0);
    REQUIRE(header.stored_at == number_at(file, offset + 20, 4) && header.kind == byte_at(file, offset + 4));
    const std::string_view value = file.substr(offset + header.value_offset(), header.value_bytes);
    REQUIRE(value.size() == header.value_bytes);
    const bool sound = sound_value(value.data(), header, seed);
    if (sound) REQUIRE(crc32c_portable(value.data(), value.size(), seed) == header.value_crc);
    std::string copy(value.size(), '\0');
    REQUIRE((copy_crc32c(copy.data(), value.data(), value.size(), seed) == header.value_crc) >= sound && copy == value);
    if (sound) found.values[offset] = std::move(copy);
    found.heads[offset] = header;
  });
  REQUIRE(found.scan.end == behind && found.scan.torn == (behind < file.size()));
  RecordHeader rest;
  if (found.scan.torn) {
    REQUIRE(!is_record(file, seed, behind));
    if (parse_head(file.data() + behind, file.size() - behind, seed, rest) == Parse::damaged) ++gaps;
  }
  REQUIRE(found.scan.damaged == gaps);
  return found;
}

// A copy in memory of exactly its size, so that the sanitizer sees a byte too many.
class Exact {
 public:
  explicit Exact(std::string_view bytes) : bytes_(new char[bytes.size()]), size_(bytes.size()) {
    if (size_ > 0) std::memcpy(bytes_.get(), bytes.data(), size_);
  }
  std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_;
};

void read_raw(InputBytes input) {
  const auto seed = input.number<std::uint32_t>();
  const std::size_t from = input.number<std::uint8_t>() % 9 * kRecordAlignment;
  const Exact file(input.rest());
  if (from <= file.view().size()) scan_checked(file.view(), seed, from);
  is_record(file.view(), seed, 0);
}

void read_under_sound_checksums(InputBytes input) {
  const auto seed = input.number<std::uint32_t>();
  const auto store = [](std::string& head, std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) head[at + i] = static_cast<char>(value >> (8 * i));
  };
  std::string file;
  while (!input.empty()) {
    const auto choices = input.number<std::uint8_t>();
    std::size_t stage_bytes = input.number<std::uint8_t>();
    if ((choices & 1) == 0) stage_bytes = 1 + stage_bytes % 64;
    const std::string_view value = input.bytes(input.number<std::uint8_t>());
    std::string head(kFixedHeadBytes + stage_bytes, 's');
    head[4] = static_cast<char>(input.number<std::uint8_t>());
    head[5] = static_cast<char>(stage_bytes);
    // The value's length, or a little more or less, or anything.
    std::uint64_t value_bytes = value.size();
    if ((choices & 2) != 0) value_bytes += static_cast<std::uint64_t>(static_cast<std::int8_t>(input.number<std::uint8_t>()));
    if ((choices & 4) != 0) value_bytes = input.number<std::uint64_t>();
    store(head, 8, static_cast<std::uint32_t>(value_bytes));
    head[6] = static_cast<char>(value_bytes >> 32);
    head[7] = static_cast<char>(value_bytes >> 40);
    store(head, 12, crc32c_portable(value.data(), value.size(), seed));
    store(head, 16, (choices & 8) != 0 ? input.number<std::uint32_t>() : 0x3F800000u);
    if ((choices & 16) != 0) {
      const std::string_view stage = input.bytes(stage_bytes);
      head.replace(kFixedHeadBytes, stage.size(), stage);
    }
    store(head, 0, crc32c_portable(head.data() + 4, head.size() - 4, seed));
    head.resize(aligned(head.size()), (choices & 32) != 0 ? '\1' : '\0');
    file += head;
    file += value;
    file.resize(aligned(file.size()), (choices & 64) != 0 ? '\1' : '\0');
    if ((choices & 128) != 0) file.resize(file.size() - file.size() % 256 % 77);
  }
  scan_checked(Exact(file).view(), seed, 0);
}

// Starts the checksums of a segment from its whole input, so that no search of compared numbers finds bytes that keep them.
std::uint32_t seed_of(std::string_view input) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const char byte : input) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3ull;
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

void read_changed(InputBytes input) {
  SampleSegment segment(seed_of(input.rest()), 0);
  const std::size_t records = 1 + input.number<std::uint8_t>() % 6;
  for (std::size_t i = 0; i < records; ++i) {
    SampleEntry entry;
    entry.kind = i % 5 == 4 ? kTombstoneRecord : kValueRecord;
    entry.stage = std::string(1 + input.number<std::uint8_t>() % 64, static_cast<char>('a' + i));
    entry.key[0] = static_cast<unsigned char>(i);
    if (entry.kind == kValueRecord) entry.value = std::string(input.bytes(input.number<std::uint8_t>()));
    entry.cost = static_cast<float>(i);
    segment.add(entry);
  }
  std::string bytes = segment.bytes;
  for (int changes = 0; changes < 8 && !input.empty(); ++changes) {
    const std::size_t at = input.number<std::uint16_t>() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ input.number<std::uint8_t>());
  }
  const std::size_t size = input.number<std::uint8_t>() == 0xC7 ? input.number<std::uint16_t>() % (bytes.size() + 1) : bytes.size();
  bytes.resize(size);

  const Exact file(bytes);
  const Found found = scan_checked(file.view(), segment.seed, 0);
  std::size_t sound = 0;
  for (std::size_t i = 0; i < records; ++i) {
    const std::uint64_t start = segment.start_of(i), end = segment.end_of(i);
    const bool untouched = end <= size && std::memcmp(bytes.data() + start, segment.bytes.data() + start, end - start) == 0;
    REQUIRE((found.values.count(start) == 1) == untouched);
    if (!untouched) continue;
    ++sound;
    const RecordHeader& header = found.heads.at(start);
    REQUIRE(header.key[0] == i && header.cost == static_cast<float>(i));
    REQUIRE(found.values.at(start) == segment.bytes.substr(start + header.value_offset(), header.value_bytes));
  }
  REQUIRE(found.values.size() == sound);
}

}  // namespace
}  // namespace prismem::cache

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const prismem::testing::InputBytes input(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0: prismem::cache::read_raw(input); break;
    case 1: prismem::cache::read_under_sound_checksums(input); break;
    default: prismem::cache::read_changed(input);
  }
  return 0;
}
