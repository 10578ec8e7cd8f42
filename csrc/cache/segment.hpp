// One append-only file of records.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "cache/record.hpp"
#include "support/file.hpp"

namespace prismem::cache {

constexpr std::uint32_t kFormatVersion = 1;

// "segment-00000007.log"; parse returns 0 for any other name (numbers start at 1).
std::string segment_name(std::uint64_t number);
std::uint64_t parse_segment_name(std::string_view name);

// Where a record lies in its segment.
struct Place {
  std::uint64_t offset = 0;
  std::uint64_t value_bytes = 0;
  std::uint32_t head_bytes = 0;  // up to the value
};

class Segment {
 public:
  static constexpr std::size_t kHeaderBytes = 64;

  // A new segment file; appears under its name only once its header is whole. Throws SystemFailure.
  static std::shared_ptr<Segment> create(int directory, std::uint64_t number);
  // An existing one; null when its header is damaged. Throws SystemFailure, and CacheError for a newer format.
  static std::shared_ptr<Segment> open(int directory, std::uint64_t number, bool writable);

  struct Scan {
    std::uint64_t damaged = 0;  // stretches of bytes that are no record
    bool torn = false;          // ends in a record that was cut, or in damage, from end() on
  };
  // Walks the records from end() to the end of the file, tells `record` of each sound header, moves end() behind the
  // last one. Values are not read. After damage it goes on with the next sound header.
  Scan scan(const std::function<void(const RecordHeader&, const Place&)>& record);
  // Throws away what lies behind end().
  void cut_tail();

  // One write of one record at end(); on failure nothing of it stays and SystemFailure is thrown.
  Place append(std::string_view stage, const Key& key, std::string_view value);
  // The value of a record; false when it is damaged or belongs to another name.
  bool read(const Place& place, std::string_view stage, const Key& key, std::string& value) const;

  std::uint64_t number() const { return number_; }
  std::uint64_t end() const { return end_; }
  bool grown() const { return file_size(file_.get()) != seen_bytes_; }
  void sync() const { prismem::sync(file_.get()); }

 private:
  Segment(Descriptor file, std::uint64_t number, std::uint32_t seed)
      : file_(std::move(file)), number_(number), seed_(seed) {}

  Descriptor file_;
  const std::uint64_t number_;
  const std::uint32_t seed_;  // starts every checksum, so that bytes inside a value never pass for a record
  std::uint64_t end_ = kHeaderBytes;
  std::uint64_t seen_bytes_ = 0;  // the size of the file when it was last scanned
  std::uint64_t damage_counted_at_ = 0;
};

}  // namespace prismem::cache
