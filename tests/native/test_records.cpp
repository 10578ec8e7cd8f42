#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "cache/segment.hpp"
#include "cache/stages.hpp"
#include "sample_segment.hpp"
#include "testing.hpp"

namespace prismem::cache {
namespace {

using testing::SampleEntry;
using testing::sample_entries;
using testing::sample_key;
using testing::SampleSegment;

constexpr std::uint32_t kSeed = 0xC0FFEE11u;

SampleSegment sample(std::uint32_t seed = kSeed) {
  SampleSegment segment(seed);
  for (const SampleEntry& entry : sample_entries()) segment.add(entry);
  return segment;
}

struct Found {
  Scan scan;
  std::map<std::uint64_t, RecordHeader> heads;
  std::map<std::uint64_t, bool> sound;
};

Found find(std::string_view file, std::uint32_t seed, std::uint64_t from = Segment::kHeaderBytes) {
  Found found;
  found.scan = scan_records(file, seed, from, [&](std::uint64_t offset, const RecordHeader& header) {
    found.heads[offset] = header;
    found.sound[offset] = sound_value(file.data() + offset + header.value_offset(), header, seed);
  });
  return found;
}

std::string text_of(const Key& key) { return std::string(reinterpret_cast<const char*>(key.data()), key.size()); }

}  // namespace

PRISMEM_TEST(a_head_says_what_was_written) {
  for (std::size_t stage_bytes = 1; stage_bytes <= kMaxStageBytes; ++stage_bytes) {
    std::string stage;
    for (std::size_t i = 0; i < stage_bytes; ++i) stage += static_cast<char>(0x20 + (i * 17 + stage_bytes) % 0x5F);
    const std::uint64_t value_bytes = stage_bytes == 64 ? kMaxValueBytes : stage_bytes * 0x1234567ull;
    std::vector<char> head(kMaxHeadBytes, '\x55');
    head.resize(write_head(head.data(), kValueRecord, stage, sample_key(3), value_bytes, 0xABCDEF01u, 2.25f, 0xF0000001u, kSeed));
    head.shrink_to_fit();
    PRISMEM_EQUAL(head.size(), aligned(kFixedHeadBytes + stage_bytes));
    RecordHeader header;
    PRISMEM_CHECK(parse_head(head.data(), head.size(), kSeed, header) == Parse::ok);
    PRISMEM_EQUAL(static_cast<int>(header.kind), static_cast<int>(kValueRecord));
    PRISMEM_EQUAL(header.stage, stage);
    PRISMEM_CHECK(header.key == sample_key(3));
    PRISMEM_EQUAL(header.value_bytes, value_bytes);
    PRISMEM_EQUAL(header.value_crc, 0xABCDEF01u);
    PRISMEM_EQUAL(header.cost, 2.25f);
    PRISMEM_EQUAL(header.stored_at, 0xF0000001u);
    PRISMEM_EQUAL(header.value_offset(), head.size());
    PRISMEM_EQUAL(header.record_bytes(), head.size() + aligned(value_bytes));
    for (std::size_t available = 0; available < head.size(); ++available) {
      const std::vector<char> part(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(available));
      PRISMEM_CHECK(parse_head(part.data(), available, kSeed, header) == Parse::cut);
    }
    PRISMEM_CHECK(parse_head(head.data(), head.size(), kSeed + 1, header) == Parse::damaged);
    for (std::size_t bit = 0; bit < 8 * head.size(); ++bit) {
      std::vector<char> damaged = head;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      PRISMEM_CHECK(parse_head(damaged.data(), damaged.size(), kSeed, header) != Parse::ok);
    }
  }
}

PRISMEM_TEST(a_head_has_the_layout_of_the_format) {
  char head[kMaxHeadBytes];
  const std::size_t size =
      write_head(head, kTombstoneRecord, "plan", sample_key(9), 0x0000123456789ABCull, 0x11223344u, 1.0f, 0x55667788u, kSeed);
  PRISMEM_EQUAL(size, std::size_t{64});
  const std::string numbers("\x03\x04\x34\x12\xBC\x9A\x78\x56\x44\x33\x22\x11\x00\x00\x80\x3F\x88\x77\x66\x55", 20);
  const std::string expected = numbers + text_of(sample_key(9)) + "plan" + std::string(4, '\0');
  PRISMEM_CHECK(std::string(head + 4, 60) == expected);
  const std::uint32_t crc = crc32c_portable(head + 4, 56, kSeed);
  const std::string crc_bytes = {static_cast<char>(crc), static_cast<char>(crc >> 8), static_cast<char>(crc >> 16), static_cast<char>(crc >> 24)};
  PRISMEM_CHECK(std::string(head, 4) == crc_bytes);
}

PRISMEM_TEST(a_cost_that_is_no_cost_reads_as_none) {
  for (const float cost : {-1.0f, std::numeric_limits<float>::infinity(), std::nanf(""), -0.0f}) {
    char head[kMaxHeadBytes];
    const std::size_t size = write_head(head, kValueRecord, "s", sample_key(1), 1, 2, cost, 3, kSeed);
    RecordHeader header;
    PRISMEM_CHECK(parse_head(head, size, kSeed, header) == Parse::ok);
    PRISMEM_CHECK(header.cost == 0.0f && !std::signbit(header.cost));
  }
}

PRISMEM_TEST(a_stage_that_no_stage_may_have_is_damage_even_under_a_sound_checksum) {
  const std::vector<std::string> stages = {"a\x1F", "\x7F", "\x80stage", std::string("ab\0cd", 5), "stage\xFF\xFF", "12345678\n"};
  for (const std::string& stage : stages) {
    char head[kMaxHeadBytes];
    const std::size_t size = write_head(head, kValueRecord, stage, sample_key(1), 1, 2, 0.0f, 3, kSeed);
    RecordHeader header;
    PRISMEM_CHECK(parse_head(head, size, kSeed, header) == Parse::damaged);
  }
  for (int symbol = 1; symbol < 256; ++symbol) {
    for (std::size_t place = 0; place < 9; ++place) {
      std::string stage(9, 'x');
      stage[place] = static_cast<char>(symbol);
      char head[kMaxHeadBytes];
      const std::size_t size = write_head(head, kValueRecord, stage, sample_key(1), 1, 2, 0.0f, 3, kSeed);
      RecordHeader header;
      PRISMEM_EQUAL(parse_head(head, size, kSeed, header) == Parse::ok, is_stage_name(stage));
    }
  }
}

PRISMEM_TEST(a_scan_finds_every_record) {
  const SampleSegment segment = sample();
  const Found found = find(segment.bytes, kSeed);
  const std::vector<SampleEntry> entries = sample_entries();
  PRISMEM_EQUAL(found.heads.size(), entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const RecordHeader& header = found.heads.at(segment.start_of(i));
    PRISMEM_EQUAL(header.stage, entries[i].stage);
    PRISMEM_CHECK(header.key == entries[i].key);
    PRISMEM_EQUAL(segment.bytes.substr(segment.start_of(i) + header.value_offset(), header.value_bytes), entries[i].value);
    PRISMEM_EQUAL(header.cost, entries[i].cost);
    PRISMEM_CHECK(found.sound.at(segment.start_of(i)));
  }
  PRISMEM_EQUAL(found.scan.end, segment.bytes.size());
  PRISMEM_EQUAL(found.scan.damaged, std::uint64_t{0});
  PRISMEM_CHECK(!found.scan.torn);
  const Found rest = find(segment.bytes, kSeed, segment.start_of(4));
  PRISMEM_EQUAL(rest.heads.size(), entries.size() - 4);
  const Found none = find(segment.bytes, kSeed, segment.bytes.size());
  PRISMEM_EQUAL(none.scan.end, segment.bytes.size());
  PRISMEM_CHECK(none.heads.empty() && !none.scan.torn);
}

PRISMEM_TEST(a_changed_byte_costs_exactly_its_record_and_is_counted) {
  const SampleSegment segment = sample();
  for (std::size_t record = 0; record < segment.starts.size(); ++record) {
    RecordHeader header;
    parse_head(segment.bytes.data() + segment.start_of(record), kMaxHeadBytes, kSeed, header);
    const std::uint64_t value = segment.start_of(record) + header.value_offset();
    for (std::uint64_t at = segment.start_of(record); at < segment.end_of(record); ++at) {
      for (const unsigned char change : {0x01, 0x80, 0xFF}) {
        std::string bytes = segment.bytes;
        bytes[at] = static_cast<char>(bytes[at] ^ change);
        const Found found = find(bytes, kSeed);
        const bool in_head = at < value;
        PRISMEM_EQUAL(found.heads.size(), segment.starts.size() - (in_head ? 1 : 0));
        for (std::size_t other = 0; other < segment.starts.size(); ++other) {
          const std::uint64_t start = segment.start_of(other);
          if (other != record) PRISMEM_CHECK(found.sound.at(start));
        }
        if (in_head) {
          PRISMEM_CHECK(found.scan.damaged == 1 || (found.scan.torn && record + 1 == segment.starts.size()));
        } else {
          PRISMEM_CHECK(!found.sound.at(segment.start_of(record)));
          PRISMEM_EQUAL(found.scan.damaged, std::uint64_t{0});
        }
      }
    }
  }
}

PRISMEM_TEST(neighbouring_damage_counts_once_and_separate_damage_twice) {
  const SampleSegment segment = sample();
  std::string bytes = segment.bytes;
  for (const std::size_t record : {1, 2, 4}) bytes[segment.start_of(record) + 30] ^= 1;
  const Found found = find(bytes, kSeed);
  PRISMEM_EQUAL(found.scan.damaged, std::uint64_t{2});
  PRISMEM_EQUAL(found.heads.size(), segment.starts.size() - 3);
  PRISMEM_EQUAL(found.scan.end, bytes.size());
}

PRISMEM_TEST(a_segment_cut_anywhere_keeps_the_records_before_the_cut) {
  const SampleSegment segment = sample();
  for (std::size_t size = Segment::kHeaderBytes; size <= segment.bytes.size(); ++size) {
    const std::vector<char> bytes(segment.bytes.begin(), segment.bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const Found found = find({bytes.data(), bytes.size()}, kSeed);
    std::uint64_t end = Segment::kHeaderBytes;
    std::size_t whole = 0;
    while (whole < segment.starts.size() && segment.end_of(whole) <= size) end = segment.end_of(whole++);
    PRISMEM_EQUAL(found.heads.size(), whole);
    PRISMEM_EQUAL(found.scan.end, end);
    PRISMEM_EQUAL(found.scan.damaged, std::uint64_t{0});
    PRISMEM_EQUAL(found.scan.torn, end < size);
  }
}

PRISMEM_TEST(zeros_at_the_end_are_damage_behind_the_last_record) {
  const SampleSegment segment = sample();
  const Found found = find(segment.bytes + std::string(4096, '\0'), kSeed);
  PRISMEM_EQUAL(found.heads.size(), segment.starts.size());
  PRISMEM_EQUAL(found.scan.end, segment.bytes.size());
  PRISMEM_EQUAL(found.scan.damaged, std::uint64_t{1});
  PRISMEM_CHECK(found.scan.torn);
}

PRISMEM_TEST(a_record_inside_a_value_does_not_pass) {
  SampleEntry inner = sample_entries()[5];
  for (const std::uint32_t guessed : {0u, kSeed + 1, ~kSeed}) {
    SampleSegment forged(guessed, 0);
    forged.add(inner);
    SampleSegment segment(kSeed);
    segment.add(sample_entries()[0]);
    SampleEntry outer;
    outer.value = forged.bytes;
    segment.add(outer);
    segment.add(sample_entries()[2]);
    segment.bytes[segment.start_of(1) + 20] ^= 4;
    const Found found = find(segment.bytes, kSeed);
    PRISMEM_EQUAL(found.heads.size(), std::size_t{2});
    PRISMEM_CHECK(found.sound.at(segment.start_of(0)) && found.sound.at(segment.start_of(2)));
  }
}

PRISMEM_TEST(unknown_kinds_are_stepped_over) {
  SampleSegment segment(kSeed);
  for (const int kind : {1, 2, 200, 3, 0, 1}) {
    SampleEntry entry = sample_entries()[static_cast<std::size_t>(kind % 7)];
    entry.kind = static_cast<std::uint8_t>(kind);
    segment.add(entry);
  }
  const Found found = find(segment.bytes, kSeed);
  std::vector<int> kinds;
  for (const auto& [offset, header] : found.heads) kinds.push_back(header.kind);
  PRISMEM_CHECK((kinds == std::vector<int>{1, 2, 200, 3, 0, 1}));
  PRISMEM_EQUAL(found.scan.damaged, std::uint64_t{0});
}

PRISMEM_TEST(a_length_beyond_all_files_is_a_torn_record) {
  SampleSegment segment = sample();
  char head[kMaxHeadBytes];
  segment.bytes.append(head, write_head(head, kValueRecord, "s", sample_key(1), kMaxValueBytes, 0, 0.0f, 0, kSeed));
  const Found found = find(segment.bytes, kSeed);
  PRISMEM_EQUAL(found.heads.size(), segment.starts.size());
  PRISMEM_CHECK(found.scan.torn);
}

}  // namespace prismem::cache
