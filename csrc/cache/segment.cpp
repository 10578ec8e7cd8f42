#include "cache/segment.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "cache/stages.hpp"
#include "support/crc32c.hpp"
#include "support/error.hpp"

namespace prismem::cache {
namespace {

constexpr char kSegmentMagic[8] = {'P', 'M', 'S', 'E', 'G', 'M', 'N', 'T'};
constexpr std::size_t kHalfBytes = Segment::kHeaderBytes / 2;  // the header is written twice
constexpr std::size_t kVersion = 8, kSalt = 16, kCrc = 28;
constexpr std::size_t kWindowBytes = 64 * 1024;

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
  return std::memcmp(half, kSegmentMagic, sizeof kSegmentMagic) == 0 &&
         load_le32(half + kCrc) == crc32c(half, kCrc);
}

std::uint32_t seed_of(const char* half) { return crc32c(half + kSalt, 8); }

// A view of a file that moves forward in steps; `at` returns the bytes from `offset` on, at least `needed` of them
// unless the file ends before.
class Window {
 public:
  Window(int fd, std::uint64_t size) : fd_(fd), size_(size), bytes_(kWindowBytes) {}

  std::string_view at(std::uint64_t offset, std::size_t needed) {
    if (offset < start_ || offset + needed > start_ + length_) {
      if (offset >= size_) return {};
      start_ = offset;
      const std::uint64_t wanted = std::min<std::uint64_t>(kWindowBytes, size_ - offset);
      length_ = read_at(fd_, bytes_.data(), static_cast<std::size_t>(wanted), offset);
    }
    const std::size_t skip = static_cast<std::size_t>(offset - start_);
    return skip < length_ ? std::string_view(bytes_.data() + skip, length_ - skip) : std::string_view{};
  }

 private:
  int fd_;
  std::uint64_t size_;
  std::vector<char> bytes_;
  std::uint64_t start_ = 0;
  std::size_t length_ = 0;
};

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

std::shared_ptr<Segment> Segment::create(int directory, std::uint64_t number) {
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
  return std::shared_ptr<Segment>(new Segment(std::move(file), number, seed_of(header.data())));
}

std::shared_ptr<Segment> Segment::open(int directory, std::uint64_t number, bool writable) {
  const std::string name = segment_name(number);
  const int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC;
  Descriptor file(::openat(directory, name.c_str(), flags));
  if (!file) throw SystemFailure(errno, "cannot open " + name);
  char header[kHeaderBytes] = {};
  read_at(file.get(), header, sizeof header, 0);
  const char* half = sound_half(header) ? header : header + kHalfBytes;
  if (!sound_half(half)) return nullptr;
  if (const std::uint32_t version = load_le32(half + kVersion); version != kFormatVersion) {
    throw CacheError(name + " has format " + std::to_string(version) +
                     " and this version of prismem-core reads format " + std::to_string(kFormatVersion) +
                     ": use another directory or the version that wrote it");
  }
  return std::shared_ptr<Segment>(new Segment(std::move(file), number, seed_of(half)));
}

Segment::Scan Segment::scan(const std::function<void(const RecordHeader&, const Place&)>& record) {
  const std::uint64_t size = file_size(file_.get());
  Window window(file_.get(), size);
  Scan result;
  std::uint64_t offset = end_;
  while (offset < size) {
    RecordHeader header;
    const std::string_view bytes = window.at(offset, kRecordHeaderBytes + kMaxStageBytes);
    if (bytes.empty()) break;  // cut by another process since its size was read
    const Parse parsed = parse_head(bytes.data(), bytes.size(), seed_, header);
    const bool whole = parsed == Parse::ok && offset + header.record_bytes() <= size;
    if (whole) {
      if (offset != end_ && damage_counted_at_ != end_) ++result.damaged;
      record(header, {offset, header.value_bytes, static_cast<std::uint32_t>(header.value_offset())});
      end_ = offset += header.record_bytes();
      continue;
    }
    // The last record of a killed or still busy writer. It ends the search only where it is expected: behind damage
    // these bytes could be anything.
    if (parsed != Parse::damaged && offset == end_) break;
    offset += kRecordAlignment;
  }
  seen_bytes_ = size;
  result.torn = end_ < size;
  if (offset != end_ && damage_counted_at_ != end_) {
    ++result.damaged;
    damage_counted_at_ = end_;
  }
  return result;
}

void Segment::cut_tail() {
  if (::ftruncate(file_.get(), static_cast<off_t>(end_)) != 0) throw SystemFailure(errno, "cannot cut a torn record");
  seen_bytes_ = end_;
}

Place Segment::append(std::string_view stage, const Key& key, std::string_view value) {
  static char padding[kRecordAlignment] = {};
  std::string head = encode_head(stage, key, value, seed_);
  const std::uint64_t padded = aligned(value.size());
  const Place place{end_, value.size(), static_cast<std::uint32_t>(head.size())};
  struct iovec pieces[3] = {{head.data(), head.size()},
                            {const_cast<char*>(value.data()), value.size()},
                            {padding, static_cast<std::size_t>(padded - value.size())}};
  try {
    write_at(file_.get(), pieces, 3, end_);
  } catch (const SystemFailure&) {
    // If even this fails, the next one to open the directory finds a torn tail and cuts it.
    if (::ftruncate(file_.get(), static_cast<off_t>(end_)) != 0) errno = 0;
    throw;
  }
  end_ += head.size() + padded;
  return place;
}

bool Segment::read(const Place& place, std::string_view stage, const Key& key, std::string& value) const {
  std::string head(place.head_bytes, '\0');
  value.resize(place.value_bytes);
  struct iovec pieces[2] = {{head.data(), head.size()}, {value.data(), value.size()}};
  const std::size_t wanted = head.size() + value.size();
  RecordHeader header;
  try {
    if (read_at(file_.get(), pieces, 2, place.offset) != wanted) return false;
  } catch (const SystemFailure&) {
    return false;
  }
  if (parse_head(head.data(), head.size(), seed_, header) != Parse::ok) return false;
  if (header.kind != kValueRecord || header.key != key || header.stage != stage) return false;
  if (header.value_bytes != place.value_bytes || header.value_offset() != place.head_bytes) return false;
  const std::string_view meta(head.data() + kRecordHeaderBytes + stage.size(), header.meta_bytes);
  return body_crc(meta, value, seed_) == header.body_crc;
}

}  // namespace prismem::cache
