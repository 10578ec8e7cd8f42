// A segment's file of any bytes: opening, scanning and reading it anywhere, before and after it was cut and grew.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "cache/segment.hpp"
#include "input_bytes.hpp"
#include "support/crc32c.hpp"
#include "support/error.hpp"
#include "temporary_directory.hpp"

namespace prismem::cache {
namespace {

using testing::InputBytes;

#define REQUIRE(condition) \
  if (!(condition)) std::abort()

void write_file(int folder, std::string_view bytes) {
  const Descriptor file(::openat(folder, segment_name(1).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
  REQUIRE(file);
  struct iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  write_at(file.get(), &piece, 1, 0);
}

// The header of the input, or a sound one with its salt in one of the two places or both.
void mend_header(std::string& bytes, unsigned how) {
  if (how % 4 == 3) return;
  bytes.resize(std::max(bytes.size(), Segment::kHeaderBytes), '\0');
  for (std::size_t half = 0; half < 64; half += 32) {
    if (half == 32 * (how % 4)) continue;
    bytes.replace(half, 16, std::string("PMSEGMNT\2\0\0\0\0\0\0\0", 16));
    const std::uint32_t crc = crc32c_portable(bytes.data() + half, 28);
    for (std::size_t i = 0; i < 4; ++i) bytes[half + 28 + i] = static_cast<char>(crc >> (8 * i));
  }
}

void read_at_any(const Segment& segment, std::uint64_t offset) {
  Segment::Record record;
  if (!segment.record(offset, record)) return;
  const std::string_view all = segment.bytes(offset, record.header.record_bytes());
  REQUIRE(all.size() == record.header.record_bytes());
  REQUIRE(record.value.data() == all.data() + record.header.value_offset() && record.value.size() == record.header.value_bytes);
  if (segment.sound(record)) REQUIRE(crc32c_portable(record.value.data(), record.value.size(), segment.seed()) == record.header.value_crc);
}

void read_all(const Segment& segment, InputBytes choices) {
  std::vector<std::uint64_t> starts;
  const auto note = [&](std::uint64_t offset, const RecordHeader&) { starts.push_back(offset); };
  const Scan scan = segment.scan(Segment::kHeaderBytes, ~std::uint64_t{0}, note);
  REQUIRE(scan.end >= Segment::kHeaderBytes);
  for (const std::uint64_t start : starts) {
    Segment::Record record;
    REQUIRE(segment.record(start, record));
    read_at_any(segment, start);
  }
  for (int i = 0; i < 8; ++i) read_at_any(segment, choices.number<std::uint16_t>());
  read_at_any(segment, choices.number<std::uint64_t>());
  REQUIRE(segment.bytes(choices.number<std::uint64_t>(), choices.number<std::uint64_t>()).size() <= segment.file_bytes());
}

void read(int folder, InputBytes input) {
  const auto how = input.number<std::uint8_t>();
  const InputBytes choices = input;
  std::string bytes(input.rest());
  mend_header(bytes, how);
  write_file(folder, bytes);
  std::shared_ptr<Segment> segment;
  try {
    segment = Segment::open(folder, 1, 64, (how & 4) != 0);
  } catch (const CacheError&) {
    return;  // another format
  }
  if (!segment) return;
  read_all(*segment, choices);
  // What is read above may be cut off and come again; nobody touches it in between.
  const std::uint64_t size = std::max<std::uint64_t>(bytes.size() / 2, 1);
  segment->cut(size);
  REQUIRE(segment->bytes(size, 1).empty());
  struct iovec piece{bytes.data(), bytes.size()};
  segment->append(&piece, 1, size);
  REQUIRE(segment->bytes(size, bytes.size()) == bytes);
  if ((how & 8) != 0) segment->seal();
  read_all(*segment, choices);
}

}  // namespace
}  // namespace prismem::cache

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const prismem::testing::TemporaryDirectory directory;
  static const prismem::Descriptor folder(::open(directory.inside(".").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  prismem::cache::read(folder.get(), prismem::testing::InputBytes(data, size));
  return 0;
}
