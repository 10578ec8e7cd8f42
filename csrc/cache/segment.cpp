#include "cache/segment.hpp"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "support/crc32c.hpp"
#include "support/error.hpp"
#include "support/little_endian.hpp"

namespace prismem::cache {
namespace {

constexpr char kSegmentMagic[8] = {'P', 'M', 'S', 'E', 'G', 'M', 'N', 'T'};
constexpr std::size_t kHalfBytes = Segment::kHeaderBytes / 2;  // the header is written twice
constexpr std::size_t kVersion = 8, kSalt = 16, kCrc = 28;
constexpr int kMaxPieces = 1024;  // of one system call (IOV_MAX)

std::string make_header() {
  char salt[8];
  for (std::size_t filled = 0; filled < sizeof salt;) {
    const ssize_t got = ::getrandom(salt + filled, sizeof salt - filled, 0);
    if (got < 0 && errno != EINTR) throw SystemFailure(errno, "cannot draw a random number");
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  std::string half(kHalfBytes, '\0');
  std::memcpy(half.data(), kSegmentMagic, sizeof kSegmentMagic);
  store_le32(half.data() + kVersion, kFormatVersion);
  std::memcpy(half.data() + kSalt, salt, sizeof salt);
  store_le32(half.data() + kCrc, crc32c(half.data(), kCrc));
  return half + half;
}

bool sound_half(const char* half) {
  return std::memcmp(half, kSegmentMagic, sizeof kSegmentMagic) == 0 && load_le32(half + kCrc) == crc32c(half, kCrc);
}

std::uint32_t seed_of(const char* half) { return crc32c(half + kSalt, 8); }

}  // namespace

std::string segment_name(std::uint64_t number) {
  char name[40];
  std::snprintf(name, sizeof name, "segment-%08llu.log", static_cast<unsigned long long>(number));
  return name;
}

std::uint64_t parse_segment_name(std::string_view name) {
  constexpr std::string_view kPrefix = "segment-";
  if (name.substr(0, kPrefix.size()) != kPrefix) return 0;
  std::uint64_t number = 0;
  for (const char symbol : name.substr(kPrefix.size(), 18)) {
    if (symbol < '0' || symbol > '9') break;
    number = number * 10 + static_cast<std::uint64_t>(symbol - '0');
  }
  return name == segment_name(number) ? number : 0;
}

Scan scan_records(std::string_view file, std::uint32_t seed, std::uint64_t from, const RecordFunction& record) {
  Scan scan;
  scan.end = from;
  std::uint64_t offset = from;
  while (offset < file.size()) {
    RecordHeader header;
    const std::size_t available = file.size() - static_cast<std::size_t>(offset);
    const Parse parsed = parse_head(file.data() + offset, available, seed, header);
    if (parsed == Parse::ok && header.record_bytes() <= available) {
      if (offset != scan.end) ++scan.damaged;
      record(offset, header);
      scan.end = offset += header.record_bytes();
      continue;
    }
    // The last record of a killed or still busy writer. It ends the search only where it is expected: behind damage
    // these bytes could be anything.
    if (parsed != Parse::damaged && offset == scan.end) break;
    offset += kRecordAlignment;
  }
  if (offset != scan.end) ++scan.damaged;
  scan.torn = scan.end < file.size();
  return scan;
}

std::shared_ptr<Segment> Segment::create(int directory, std::uint64_t number, std::uint64_t room_bytes) {
  const std::string name = segment_name(number);
  const std::string unfinished = name + ".new";
  Descriptor file(::openat(directory, unfinished.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) throw SystemFailure(errno, "cannot create " + name);
  std::string header = make_header();
  try {
    struct iovec piece{header.data(), header.size()};
    write_at(file.get(), &piece, 1, 0);
    if (::renameat(directory, unfinished.c_str(), directory, name.c_str()) != 0) {
      throw SystemFailure(errno, "cannot rename " + unfinished);
    }
  } catch (const SystemFailure&) {
    ::unlinkat(directory, unfinished.c_str(), 0);
    throw;
  }
  return std::shared_ptr<Segment>(new Segment(directory, number, seed_of(header.data()), room_bytes, std::move(file)));
}

std::shared_ptr<Segment> Segment::open(int directory, std::uint64_t number, std::uint64_t room_bytes, bool writable) {
  const std::string name = segment_name(number);
  Descriptor file(::openat(directory, name.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  if (!file) throw SystemFailure(errno, "cannot open " + name);
  char header[kHeaderBytes] = {};
  read_at(file.get(), header, sizeof header, 0);
  const char* half = sound_half(header) ? header : header + kHalfBytes;
  if (!sound_half(half)) return nullptr;
  if (const std::uint32_t version = load_le32(half + kVersion); version != kFormatVersion) {
    throw CacheError(name + " has format " + std::to_string(version) + " and this version of prismem-core reads format " +
                     std::to_string(kFormatVersion) + ": use another directory or the version that wrote it");
  }
  std::shared_ptr<Segment> segment(new Segment(directory, number, seed_of(half), room_bytes, std::move(file)));
  if (!writable) segment->seal();
  return segment;
}

Segment::Segment(int directory, std::uint64_t number, std::uint32_t seed, std::uint64_t room_bytes, Descriptor file)
    : directory_(directory), number_(number), seed_(seed), room_bytes_(room_bytes) {
  struct stat status;
  if (::fstat(file.get(), &status) != 0) throw SystemFailure(errno, "cannot read the size of " + segment_name(number));
  device_ = status.st_dev;
  inode_ = status.st_ino;
  const std::uint64_t size = static_cast<std::uint64_t>(status.st_size);
  map(file.get(), std::max(room_bytes, size));
  known_.store(size, std::memory_order_release);
  file_ = std::make_shared<Descriptor>(std::move(file));
}

Segment::~Segment() {
  for (const Mapping& mapping : mappings_) ::munmap(const_cast<char*>(mapping.data), mapping.bytes);
}

void Segment::map(int file, std::uint64_t bytes) const {
  // Pages behind the end of the file are never touched; as it grows they come to life where they are.
  mappings_.reserve(mappings_.size() + 1);
  void* data = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) throw SystemFailure(errno, "cannot map " + segment_name(number_));
  mappings_.push_back({static_cast<const char*>(data), static_cast<std::size_t>(bytes)});
  mapping_.store(mappings_.back().data, std::memory_order_release);
}

Descriptor Segment::open_again(int flags) const {
  const std::string name = segment_name(number_);
  Descriptor file(::openat(directory_, name.c_str(), flags | O_CLOEXEC));
  if (!file) throw SystemFailure(errno, "cannot open " + name);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) throw SystemFailure(errno, "cannot read the size of " + name);
  if (status.st_dev != device_ || status.st_ino != inode_) throw SystemFailure(ENOENT, name + " was replaced by another file");
  return file;
}

std::uint64_t Segment::file_bytes() const {
  std::lock_guard lock(mutex_);
  if (!file_) return file_size(open_again(O_RDONLY).get());
  // Asked before every batch, and cheaper than fstat; reads and writes name their own offsets.
  const off_t end = ::lseek(file_->get(), 0, SEEK_END);
  if (end < 0) throw SystemFailure(errno, "cannot find the end of " + segment_name(number_));
  return static_cast<std::uint64_t>(end);
}

std::string_view Segment::bytes_of_grown(std::uint64_t offset, std::uint64_t size) const {
  std::lock_guard lock(mutex_);
  Descriptor opened;
  try {
    if (!file_) opened = open_again(O_RDONLY);
  } catch (const SystemFailure& failure) {
    if (failure.code() == ENOENT) return {};
    throw;
  }
  const int file = file_ ? file_->get() : opened.get();
  const std::uint64_t now = file_size(file);
  if (now > mappings_.back().bytes) map(file, now + room_bytes_);
  known_.store(now, std::memory_order_release);
  if (size > now || offset > now - size) return {};
  return {mapping_.load(std::memory_order_relaxed) + offset, static_cast<std::size_t>(size)};
}

bool Segment::record(std::uint64_t offset, Record& record) const {
  std::uint64_t known = known_.load(std::memory_order_acquire);
  if (offset >= known && bytes(offset, 1).empty()) return false;
  for (int look = 0; look < 2; ++look) {
    known = known_.load(std::memory_order_acquire);
    if (offset >= known) return false;
    const char* at = mapping_.load(std::memory_order_acquire) + offset;
    const std::uint64_t available = known - offset;
    const Parse parsed = parse_head(at, static_cast<std::size_t>(available), seed_, record.header);
    if (parsed == Parse::damaged) return false;
    if (parsed == Parse::ok && record.header.record_bytes() <= available) {
      record.value = {at + record.header.value_offset(), static_cast<std::size_t>(record.header.value_bytes)};
      return true;
    }
    // The rest may have come since this process last looked.
    if (bytes(known, 1).empty()) return false;
  }
  return false;
}

bool Segment::sound(const Record& record) const { return sound_value(record.value.data(), record.header, seed_); }

Scan Segment::scan(std::uint64_t from, std::uint64_t to, const RecordFunction& record) const {
  return scan_records(bytes(0, std::min(to, file_bytes())), seed_, from, record);
}

std::shared_ptr<Descriptor> Segment::file_to_write() const {
  std::lock_guard lock(mutex_);
  if (!file_) file_ = std::make_shared<Descriptor>(open_again(O_RDWR));
  return file_;
}

void Segment::append(struct iovec* pieces, int count, std::uint64_t offset) {
  const std::shared_ptr<Descriptor> file = file_to_write();
  std::uint64_t end = offset;
  try {
    while (count > 0) {
      const int some = std::min(count, kMaxPieces);
      std::uint64_t bytes = 0;
      for (int i = 0; i < some; ++i) bytes += pieces[i].iov_len;
      write_at(file->get(), pieces, some, end);
      end += bytes;
      pieces += some;
      count -= some;
    }
  } catch (const SystemFailure&) {
    try {
      cut(offset);
    } catch (const SystemFailure&) {
      // The next one to open the directory finds a torn tail and cuts it.
    }
    throw;
  }
  std::lock_guard lock(mutex_);
  if (end > known_.load(std::memory_order_relaxed) && end <= mappings_.back().bytes) known_.store(end, std::memory_order_release);
}

void Segment::cut(std::uint64_t offset) {
  const std::shared_ptr<Descriptor> file = file_to_write();
  std::lock_guard lock(mutex_);
  if (known_.load(std::memory_order_relaxed) > offset) known_.store(offset, std::memory_order_release);
  if (::ftruncate(file->get(), static_cast<off_t>(offset)) != 0) throw SystemFailure(errno, "cannot cut a torn record");
}

void Segment::sync() const {
  std::shared_ptr<Descriptor> file;
  {
    std::lock_guard lock(mutex_);
    file = file_;
  }
  try {
    if (!file) file = std::make_shared<Descriptor>(open_again(O_RDONLY));
  } catch (const SystemFailure& failure) {
    if (failure.code() == ENOENT) return;
    throw;
  }
  prismem::sync(file->get());
}

void Segment::seal() const {
  std::lock_guard lock(mutex_);
  file_.reset();
}

}  // namespace prismem::cache
