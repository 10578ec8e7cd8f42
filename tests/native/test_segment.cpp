#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cache/segment.hpp"
#include "sample_segment.hpp"
#include "support/crc32c.hpp"
#include "support/error.hpp"
#include "temporary_directory.hpp"
#include "testing.hpp"

namespace prismem::cache {
namespace {

using testing::sample_entries;
using testing::sample_key;
using testing::SampleEntry;
using testing::SampleSegment;
using testing::TemporaryDirectory;

constexpr std::uint64_t kAll = ~std::uint64_t{0};

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
    const auto expect_next = [&](std::uint64_t offset, const RecordHeader&) { PRISMEM_EQUAL(offset, offsets[seen++]); };
    const Scan scan = again->scan(Segment::kHeaderBytes, kAll, expect_next);
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
  PRISMEM_EQUAL(message,
                "segment-00000001.log has format 3 and this version of prismem-core reads format 2: use another directory or the "
                "version that wrote it");
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
    entry.key = sample_key(i);
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
    entry.key = sample_key(number);
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
