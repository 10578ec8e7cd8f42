#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cache/segment.hpp"
#include "cache/stages.hpp"
#include "sample_segment.hpp"
#include "support/error.hpp"
#include "temporary_directory.hpp"
#include "testing.hpp"

namespace prismem::cache {
namespace {

using testing::SampleEntry;
using testing::SampleSegment;
using testing::TemporaryDirectory;

constexpr std::uint32_t kSeed = 0xC0FFEE11u;
constexpr std::uint64_t kAll = ~std::uint64_t{0};

Key key_of(unsigned number) {
  Key key{};
  for (std::size_t byte = 0; byte < key.size(); ++byte) key[byte] = static_cast<unsigned char>(number * 31 + byte * 7);
  return key;
}

// Heads and values of awkward lengths.
std::vector<SampleEntry> sample_entries() {
  std::vector<SampleEntry> entries;
  const std::vector<std::size_t> value_bytes = {0, 1, 7, 8, 9, 31, 300};
  const std::vector<std::size_t> stage_bytes = {1, 8, 64, 5, 7, 9, 16};
  for (unsigned i = 0; i < value_bytes.size(); ++i) {
    SampleEntry entry;
    entry.stage = std::string(stage_bytes[i], static_cast<char>('a' + i));
    entry.key = key_of(i);
    for (std::size_t byte = 0; byte < value_bytes[i]; ++byte) entry.value += static_cast<char>(byte * 13 + i);
    entry.cost = 0.5f * static_cast<float>(i);
    entry.stored_at = 1700000000u + i;
    entries.push_back(entry);
  }
  return entries;
}

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

// Appends one record and returns where the next one goes.
std::uint64_t append(Segment& segment, std::uint64_t offset, const SampleEntry& entry) {
  SampleSegment made(segment.seed(), 0);
  made.add(entry);
  struct iovec piece{made.bytes.data(), made.bytes.size()};
  segment.append(&piece, 1, offset);
  return offset + made.bytes.size();
}

void expect_entry(const Segment& segment, std::uint64_t offset, const SampleEntry& entry) {
  Segment::Record record;
  PRISMEM_CHECK(segment.record(offset, record));
  PRISMEM_CHECK(segment.sound(record));
  PRISMEM_EQUAL(record.header.stage, entry.stage);
  PRISMEM_CHECK(record.header.key == entry.key);
  PRISMEM_EQUAL(record.value, entry.value);
}

int open_directory(const TemporaryDirectory& directory) {
  return ::open(directory.inside(".").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void change_byte(const std::string& path, std::uint64_t offset, unsigned char by) {
  const Descriptor file(::open(path.c_str(), O_RDWR));
  char byte = 0;
  read_at(file.get(), &byte, 1, offset);
  byte = static_cast<char>(byte ^ by);
  struct iovec piece{&byte, 1};
  write_at(file.get(), &piece, 1, offset);
}

// Sets a limit of this process for as long as it lives.
class Limited {
 public:
  Limited(int resource, rlim_t most) : resource_(resource) {
    getrlimit(resource_, &before_);
    const struct rlimit limit{most, before_.rlim_max};
    setrlimit(resource_, &limit);
  }
  ~Limited() { setrlimit(resource_, &before_); }

 private:
  int resource_;
  struct rlimit before_;
};

}  // namespace

PRISMEM_TEST(a_head_says_what_was_written) {
  for (std::size_t stage_bytes = 1; stage_bytes <= kMaxStageBytes; ++stage_bytes) {
    std::string stage;
    for (std::size_t i = 0; i < stage_bytes; ++i) stage += static_cast<char>(0x20 + (i * 17 + stage_bytes) % 0x5F);
    const std::uint64_t value_bytes = stage_bytes == 64 ? kMaxValueBytes : stage_bytes * 0x1234567ull;
    std::vector<char> head(kMaxHeadBytes, '\x55');
    head.resize(write_head(head.data(), kValueRecord, stage, key_of(3), value_bytes, 0xABCDEF01u, 2.25f, 0xF0000001u, kSeed));
    head.shrink_to_fit();
    PRISMEM_EQUAL(head.size(), aligned(kFixedHeadBytes + stage_bytes));
    RecordHeader header;
    PRISMEM_CHECK(parse_head(head.data(), head.size(), kSeed, header) == Parse::ok);
    PRISMEM_EQUAL(static_cast<int>(header.kind), static_cast<int>(kValueRecord));
    PRISMEM_EQUAL(header.stage, stage);
    PRISMEM_CHECK(header.key == key_of(3));
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
  PRISMEM_EQUAL(write_head(head, kTombstoneRecord, "plan", key_of(9), 0x0000123456789ABCull, 0x11223344u, 1.0f, 0x55667788u, kSeed), std::size_t{64});
  const std::string expected = std::string("\x03\x04\x34\x12\xBC\x9A\x78\x56\x44\x33\x22\x11\x00\x00\x80\x3F\x88\x77\x66\x55", 20) + text_of(key_of(9)) + "plan" + std::string(4, '\0');
  PRISMEM_CHECK(std::string(head + 4, 60) == expected);
  const std::uint32_t crc = crc32c_portable(head + 4, 56, kSeed);
  const std::string crc_bytes = {static_cast<char>(crc), static_cast<char>(crc >> 8), static_cast<char>(crc >> 16), static_cast<char>(crc >> 24)};
  PRISMEM_CHECK(std::string(head, 4) == crc_bytes);
}

PRISMEM_TEST(a_cost_that_is_no_cost_reads_as_none) {
  for (const float cost : {-1.0f, std::numeric_limits<float>::infinity(), std::nanf(""), -0.0f}) {
    char head[kMaxHeadBytes];
    const std::size_t size = write_head(head, kValueRecord, "s", key_of(1), 1, 2, cost, 3, kSeed);
    RecordHeader header;
    PRISMEM_CHECK(parse_head(head, size, kSeed, header) == Parse::ok);
    PRISMEM_CHECK(header.cost == 0.0f && !std::signbit(header.cost));
  }
}

PRISMEM_TEST(a_stage_that_no_stage_may_have_is_damage_even_under_a_sound_checksum) {
  for (const std::string& stage : {std::string("a\x1F"), std::string("\x7F"), std::string("\x80stage"), std::string("ab\0cd", 5), std::string("stage\xFF\xFF"), std::string("12345678\n")}) {
    char head[kMaxHeadBytes];
    const std::size_t size = write_head(head, kValueRecord, stage, key_of(1), 1, 2, 0.0f, 3, kSeed);
    RecordHeader header;
    PRISMEM_CHECK(parse_head(head, size, kSeed, header) == Parse::damaged);
  }
  for (int symbol = 1; symbol < 256; ++symbol) {
    for (std::size_t place = 0; place < 9; ++place) {
      std::string stage(9, 'x');
      stage[place] = static_cast<char>(symbol);
      char head[kMaxHeadBytes];
      const std::size_t size = write_head(head, kValueRecord, stage, key_of(1), 1, 2, 0.0f, 3, kSeed);
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
  segment.bytes.append(head, write_head(head, kValueRecord, "s", key_of(1), kMaxValueBytes, 0, 0.0f, 0, kSeed));
  const Found found = find(segment.bytes, kSeed);
  PRISMEM_EQUAL(found.heads.size(), segment.starts.size());
  PRISMEM_CHECK(found.scan.torn);
}

PRISMEM_TEST(segment_names_and_numbers_match) {
  PRISMEM_EQUAL(segment_name(7), "segment-00000007.log");
  for (const std::uint64_t number : {1ull, 99999999ull, 123456789ull}) PRISMEM_EQUAL(parse_segment_name(segment_name(number)), number);
  for (const char* name : {"segment-7.log", "segment-00000000.log", "segment-00000001.log.new", "segment-", "index", "segment-0000000a.log"}) {
    PRISMEM_EQUAL(parse_segment_name(name), std::uint64_t{0});
  }
}

PRISMEM_TEST(a_segment_keeps_records_for_those_who_open_it) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  const std::vector<SampleEntry> entries = sample_entries();
  std::vector<std::uint64_t> offsets;
  const auto writer = Segment::create(folder.get(), 3, 1 << 16);
  PRISMEM_EQUAL(writer->number(), std::uint64_t{3});
  std::uint64_t end = Segment::kHeaderBytes;
  PRISMEM_EQUAL(writer->file_bytes(), end);
  for (const SampleEntry& entry : entries) {
    offsets.push_back(end);
    end = append(*writer, end, entry);
  }
  PRISMEM_EQUAL(writer->file_bytes(), end);
  for (const bool writable : {true, false}) {
    const auto again = Segment::open(folder.get(), 3, 1 << 16, writable);
    PRISMEM_EQUAL(again->seed(), writer->seed());
    PRISMEM_EQUAL(again->file_bytes(), end);
    for (std::size_t i = 0; i < entries.size(); ++i) expect_entry(*again, offsets[i], entries[i]);
    Segment::Record record;
    for (const std::uint64_t offset : {end, end + 8, kAll, kAll - 7, offsets[6] + 8}) PRISMEM_CHECK(!again->record(offset, record));
    PRISMEM_CHECK(again->bytes(0, end + 1).empty() && again->bytes(kAll, 1).empty() && again->bytes(8, kAll).empty());
    PRISMEM_EQUAL(again->bytes(0, end).size(), end);
    std::size_t seen = 0;
    const Scan scan = again->scan(Segment::kHeaderBytes, kAll, [&](std::uint64_t offset, const RecordHeader&) { PRISMEM_EQUAL(offset, offsets[seen++]); });
    PRISMEM_EQUAL(seen, entries.size());
    PRISMEM_EQUAL(scan.end, end);
    PRISMEM_EQUAL(again->scan(Segment::kHeaderBytes, offsets[2] + 20, [](std::uint64_t, const RecordHeader&) {}).end, offsets[2]);
  }
  PRISMEM_CHECK(::access(directory.inside("segment-00000003.log.new").c_str(), F_OK) != 0);
}

PRISMEM_TEST(a_changed_byte_in_one_copy_of_the_header_costs_nothing) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  const std::uint32_t seed = Segment::create(folder.get(), 1, 4096)->seed();
  const std::string path = directory.inside(segment_name(1));
  for (std::size_t at = 0; at < Segment::kHeaderBytes; ++at) {
    change_byte(path, at, 0x10);
    const auto segment = Segment::open(folder.get(), 1, 4096, false);
    PRISMEM_CHECK(segment != nullptr);
    PRISMEM_EQUAL(segment->seed(), seed);
    const std::size_t other = (at + Segment::kHeaderBytes / 2) % Segment::kHeaderBytes;
    change_byte(path, other, 0x10);
    PRISMEM_CHECK(Segment::open(folder.get(), 1, 4096, false) == nullptr);
    change_byte(path, other, 0x10);
    change_byte(path, at, 0x10);
  }
  for (const int size : {63, 32, 31, 1, 0}) {
    PRISMEM_EQUAL(::truncate(path.c_str(), size), 0);
    PRISMEM_EQUAL(Segment::open(folder.get(), 1, 4096, false) == nullptr, size < 32);
  }
}

PRISMEM_TEST(a_segment_of_another_format_is_refused) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  Segment::create(folder.get(), 1, 4096);
  const Descriptor file(::open(directory.inside(segment_name(1)).c_str(), O_RDWR));
  char half[32];
  read_at(file.get(), half, sizeof half, 0);
  half[8] = 3;
  const std::uint32_t crc = crc32c(half, 28);
  for (int byte = 0; byte < 4; ++byte) half[28 + byte] = static_cast<char>(crc >> (8 * byte));
  struct iovec pieces[2] = {{half, sizeof half}, {half, sizeof half}};
  write_at(file.get(), pieces, 2, 0);
  const std::string message = PRISMEM_MESSAGE(CacheError, Segment::open(folder.get(), 1, 4096, false));
  PRISMEM_EQUAL(message, "segment-00000001.log has format 3 and this version of prismem-core reads format 2: use another directory or the version that wrote it");
}

PRISMEM_TEST(a_segment_that_is_not_there_says_so) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  const auto code_of = [](auto body) {
    try {
      body();
    } catch (const SystemFailure& failure) {
      return failure.code();
    }
    return 0;
  };
  PRISMEM_EQUAL(code_of([&] { Segment::open(folder.get(), 5, 4096, false); }), ENOENT);
  const auto segment = Segment::create(folder.get(), 5, 4096);
  const std::uint64_t end = append(*segment, Segment::kHeaderBytes, sample_entries()[6]);
  segment->seal();
  ::unlinkat(folder.get(), segment_name(5).c_str(), 0);
  expect_entry(*segment, Segment::kHeaderBytes, sample_entries()[6]);
  PRISMEM_EQUAL(code_of([&] { segment->file_bytes(); }), ENOENT);
  PRISMEM_CHECK(segment->bytes(end, 1).empty());
  Segment::Record record;
  PRISMEM_CHECK(!segment->record(end, record));
  segment->sync();
  // Another file of the same name is not taken for it.
  Segment::create(folder.get(), 5, 4096);
  PRISMEM_EQUAL(code_of([&] { segment->file_bytes(); }), ENOENT);
  PRISMEM_EQUAL(code_of([&] { append(*segment, end, sample_entries()[0]); }), ENOENT);
}

PRISMEM_TEST(readers_see_a_segment_grow_past_their_room) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  const auto writer = Segment::create(folder.get(), 1, 4096);
  const auto reader = Segment::open(folder.get(), 1, 4096, false);
  SampleEntry entry = sample_entries()[6];
  std::uint64_t end = append(*writer, Segment::kHeaderBytes, entry);
  Segment::Record first;
  PRISMEM_CHECK(reader->record(Segment::kHeaderBytes, first));
  for (unsigned i = 0; i < 100; ++i) {
    entry.key = key_of(i);
    entry.value = std::string(i * 97, static_cast<char>('a' + i % 26));
    const std::uint64_t start = end;
    end = append(*writer, start, entry);
    expect_entry(*reader, start, entry);
    expect_entry(*writer, start, entry);
  }
  PRISMEM_CHECK(reader->sound(first));
  PRISMEM_EQUAL(first.value, sample_entries()[6].value);
}

PRISMEM_TEST(a_record_that_comes_in_parts_is_seen_when_it_is_whole) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  const auto writer = Segment::create(folder.get(), 1, 4096);
  const auto reader = Segment::open(folder.get(), 1, 4096, false);
  SampleSegment made(writer->seed(), 0);
  made.add(sample_entries()[2]);
  Segment::Record record;
  for (std::size_t at = 0; at < made.bytes.size(); ++at) {
    PRISMEM_CHECK(!reader->record(Segment::kHeaderBytes, record));
    struct iovec piece{made.bytes.data() + at, 1};
    writer->append(&piece, 1, Segment::kHeaderBytes + at);
  }
  expect_entry(*reader, Segment::kHeaderBytes, sample_entries()[2]);
}

PRISMEM_TEST(an_append_of_many_pieces_is_one_append) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  const auto segment = Segment::create(folder.get(), 1, 4096);
  std::vector<std::string> parts;
  std::string all;
  for (int i = 0; i < 5000; ++i) {
    parts.push_back(std::string(static_cast<std::size_t>(i % 5), static_cast<char>('a' + i % 26)));
    all += parts.back();
  }
  std::vector<struct iovec> pieces;
  for (std::string& part : parts) pieces.push_back({part.data(), part.size()});
  segment->append(pieces.data(), static_cast<int>(pieces.size()), Segment::kHeaderBytes);
  PRISMEM_EQUAL(segment->bytes(Segment::kHeaderBytes, all.size()), all);
  PRISMEM_EQUAL(segment->file_bytes(), Segment::kHeaderBytes + all.size());
}

PRISMEM_TEST(an_append_that_fails_leaves_nothing) {
  signal(SIGXFSZ, SIG_IGN);
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  const auto segment = Segment::create(folder.get(), 1, 1 << 20);
  const std::uint64_t end = append(*segment, Segment::kHeaderBytes, sample_entries()[5]);
  const std::string large(3000, 'x');
  std::vector<struct iovec> pieces(40, {const_cast<char*>(large.data()), large.size()});
  {
    const Limited limit(RLIMIT_FSIZE, 50000);
    int code = 0;
    try {
      segment->append(pieces.data(), static_cast<int>(pieces.size()), end);
    } catch (const SystemFailure& failure) {
      code = failure.code();
    }
    PRISMEM_EQUAL(code, EFBIG);
    PRISMEM_CHECK(is_unwritable(code));
  }
  PRISMEM_EQUAL(segment->file_bytes(), end);
  PRISMEM_CHECK(segment->bytes(end, 1).empty());
  append(*segment, end, sample_entries()[6]);
  expect_entry(*segment, Segment::kHeaderBytes, sample_entries()[5]);
  expect_entry(*segment, end, sample_entries()[6]);
}

PRISMEM_TEST(a_torn_tail_is_cut_and_written_over) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  const auto segment = Segment::create(folder.get(), 1, 1 << 16);
  const std::uint64_t end = append(*segment, Segment::kHeaderBytes, sample_entries()[5]);
  SampleSegment torn(segment->seed(), 0);
  torn.add(sample_entries()[6]);
  struct iovec piece{torn.bytes.data(), torn.bytes.size() - 9};
  segment->append(&piece, 1, end);
  const auto ignore = [](std::uint64_t, const RecordHeader&) {};
  const auto next = Segment::open(folder.get(), 1, 1 << 16, true);
  const Scan scan = next->scan(Segment::kHeaderBytes, kAll, ignore);
  PRISMEM_CHECK(scan.torn);
  PRISMEM_EQUAL(scan.end, end);
  next->cut(scan.end);
  PRISMEM_EQUAL(next->file_bytes(), end);
  PRISMEM_CHECK(next->bytes(end, 1).empty());
  append(*next, end, sample_entries()[4]);
  expect_entry(*next, end, sample_entries()[4]);
  expect_entry(*segment, end, sample_entries()[4]);
}

PRISMEM_TEST(mapped_segments_need_no_descriptors) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  std::vector<std::uint64_t> ends;
  for (std::uint64_t number = 1; number <= 40; ++number) {
    ends.push_back(append(*Segment::create(folder.get(), number, 4096), Segment::kHeaderBytes, sample_entries()[number % 7]));
  }
  const Limited limit(RLIMIT_NOFILE, static_cast<rlim_t>(folder.get()) + 12);
  std::vector<std::shared_ptr<Segment>> segments;
  for (std::uint64_t number = 1; number <= 40; ++number) segments.push_back(Segment::open(folder.get(), number, 4096, false));
  for (std::size_t i = 0; i < segments.size(); ++i) {
    expect_entry(*segments[i], Segment::kHeaderBytes, sample_entries()[(i + 1) % 7]);
    PRISMEM_EQUAL(segments[i]->file_bytes(), ends[i]);
    segments[i]->sync();
    append(*segments[i], ends[i], sample_entries()[0]);
    segments[i]->seal();
    expect_entry(*segments[i], ends[i], sample_entries()[0]);
  }
}

PRISMEM_TEST(threads_read_a_segment_while_it_grows) {
  const TemporaryDirectory directory;
  const Descriptor folder(open_directory(directory));
  const auto writer = Segment::create(folder.get(), 1, 4096);
  const auto reader = Segment::open(folder.get(), 1, 4096, false);
  constexpr unsigned kRecords = 400;
  std::array<std::atomic<std::uint64_t>, kRecords> offsets{};
  std::atomic<unsigned> published{0};
  std::atomic<int> wrong{0};
  const auto entry_of = [](unsigned number) {
    SampleEntry entry;
    entry.key = key_of(number);
    entry.value = std::string(number % 200, static_cast<char>('a' + number % 26));
    return entry;
  };
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 3; ++worker) {
    threads.emplace_back([&, worker] {
      const Segment& segment = worker == 0 ? *writer : *reader;
      for (unsigned turn = 0; published.load() < kRecords; ++turn) {
        const unsigned known = published.load();
        if (known == 0) continue;
        const unsigned number = turn % 2 == 0 ? known - 1 : turn % known;
        Segment::Record record;
        if (!segment.record(offsets[number].load(), record) || !segment.sound(record) || record.value != entry_of(number).value) ++wrong;
        if (turn % 64 == 0) segment.file_bytes();
      }
    });
  }
  std::uint64_t end = Segment::kHeaderBytes;
  for (unsigned number = 0; number < kRecords; ++number) {
    offsets[number].store(end);
    end = append(*writer, end, entry_of(number));
    published.store(number + 1);
    if (number % 50 == 0) writer->seal();
    if (number % 20 == 0) writer->sync();
  }
  for (std::thread& thread : threads) thread.join();
  PRISMEM_EQUAL(wrong.load(), 0);
}

}  // namespace prismem::cache
