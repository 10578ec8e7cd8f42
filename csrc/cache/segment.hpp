// One append-only file of records, read where it is mapped.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cache/record.hpp"
#include "support/file.hpp"

namespace prismem::cache {

constexpr std::uint32_t kFormatVersion = 2;

// "segment-00000007.log"; parse returns 0 for any other name (numbers start at 1).
std::string segment_name(std::uint64_t number);
std::uint64_t parse_segment_name(std::string_view name);

struct Scan {
  std::uint64_t end = 0;      // behind the last sound record
  std::uint64_t damaged = 0;  // stretches of bytes that are no record
  bool torn = false;          // bytes follow `end`: a record that was cut, or damage
};
using RecordFunction = std::function<void(std::uint64_t offset, const RecordHeader& header)>;

// Walks the records of `file`, a segment's bytes from its start on, beginning at `from`, where one starts, and tells `record` of each
// that is whole and has a sound head, whatever its kind. Values are not read. After damage it goes on with the next sound head.
Scan scan_records(std::string_view file, std::uint32_t seed, std::uint64_t from, const RecordFunction& record);

// Threads may call any method at any time, except that appending and cutting are for one at a time, among all processes.
//
// Bytes behind what writers have published may be cut off by the next of them, and touching a mapping behind the end of its file kills
// the process. So they are read only while the writers' lock is held; published bytes stay as they are.
class Segment {
 public:
  static constexpr std::size_t kHeaderBytes = 64;
  using Scan = cache::Scan;

  // A new segment file; appears under its name only once its header is whole. `directory` stays open as long as the segment is used;
  // the mapping has room for `room_bytes`. Throws SystemFailure.
  static std::shared_ptr<Segment> create(int directory, std::uint64_t number, std::uint64_t room_bytes);
  // An existing one; null when its header is damaged. With `writable` its file stays open until seal(). Throws SystemFailure (ENOENT when
  // it was compacted away), and CacheError for another format.
  static std::shared_ptr<Segment> open(int directory, std::uint64_t number, std::uint64_t room_bytes, bool writable);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::uint64_t number() const { return number_; }
  std::uint32_t seed() const { return seed_; }
  // The size of the file now. Throws SystemFailure (ENOENT when it was compacted away).
  std::uint64_t file_bytes() const;

  // The bytes in the mapping, valid as long as the segment; empty when the file does not have all of them, or has become unreachable
  // before this process looked that far. Throws SystemFailure where the system cannot map a file that grew past its room.
  std::string_view bytes(std::uint64_t offset, std::uint64_t size) const {
    const std::uint64_t known = known_.load(std::memory_order_acquire);
    if (size > known || offset > known - size) return bytes_of_grown(offset, size);
    // Acquired as well: a mapping made by another thread may be seen before the size that it was made for.
    return {mapping_.load(std::memory_order_acquire) + offset, static_cast<std::size_t>(size)};
  }

  struct Record {
    RecordHeader header;
    std::string_view value;
  };
  // The record that starts at `offset`; false when there is none or its head is damaged. The value is not checked.
  bool record(std::uint64_t offset, Record& record) const;
  // Whether the value, and the zeros behind it, are what was written.
  bool sound(const Record& record) const;

  // scan_records over the file from `from` to `to`, or to its end when that comes first.
  Scan scan(std::uint64_t from, std::uint64_t to, const RecordFunction& record) const;

  // Writes all pieces at `offset`, the end of the file; on failure cuts the file off there again and throws SystemFailure.
  void append(struct iovec* pieces, int count, std::uint64_t offset);
  // Throws away what lies behind `offset`.
  void cut(std::uint64_t offset);
  // Brings the file to the disk; nothing to do when it was compacted away.
  void sync() const;
  // Gives the descriptor back when no more will be appended: what is mapped needs none. A later call that needs one opens the file anew.
  void seal() const;

 private:
  struct Mapping {
    const char* data;
    std::size_t bytes;
  };

  Segment(int directory, std::uint64_t number, std::uint32_t seed, std::uint64_t room_bytes, Descriptor file);
  std::string_view bytes_of_grown(std::uint64_t offset, std::uint64_t size) const;
  std::shared_ptr<Descriptor> file_to_write() const;
  Descriptor open_again(int flags) const;
  void map(int file, std::uint64_t bytes) const;

  const int directory_;
  const std::uint64_t number_;
  const std::uint32_t seed_;  // starts every checksum, so that bytes inside a value never pass for a record
  const std::uint64_t room_bytes_;
  dev_t device_ = 0;  // with inode_: which file the name stood for
  ino_t inode_ = 0;

  mutable std::mutex mutex_;                   // guards what changes below
  mutable std::shared_ptr<Descriptor> file_;   // null: none is open
  mutable std::vector<Mapping> mappings_;      // old ones stay: values point into them
  mutable std::atomic<const char*> mapping_{nullptr};  // the last one, published before known_ passes the one before
  mutable std::atomic<std::uint64_t> known_{0};        // bytes that the file and the last mapping are known to have
};

}  // namespace prismem::cache
