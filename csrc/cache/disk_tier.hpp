// The disk tier: append-only segments in a directory, and in memory the place of every record.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/directory.hpp"
#include "cache/key.hpp"
#include "cache/segment.hpp"
#include "cache/stages.hpp"

namespace prismem::cache {

// Several threads may call any method; calls about one entry come one at a time (ExecutionCache sees to it).
class DiskTier {
 public:
  using Notice = std::function<void(std::string)>;

  // Opens the directory and indexes its segments. A place that cannot be written is read if possible and told to
  // `notice`; CacheError as in Directory.
  DiskTier(std::string path, bool read_only, std::uint64_t segment_bytes, StageTable& stages, Notice notice);

  // The value of an entry; false when there is none or it is damaged (then counted and forgotten).
  bool read(const EntryId& id, std::string& value);
  // Appends the entry unless the same value is there. After the first failure the tier writes no more, tells `notice`
  // once, and forgets the entry so that an older value of it never comes back.
  void write(const EntryId& id, std::string_view value);
  void flush();
  // Flushes and gives the directory back to other writers.
  void close();

  bool writable() const { return writable_.load(std::memory_order_relaxed); }
  // Damage of which the stage is not known: stretches of bytes that are no record, unreadable segments.
  std::uint64_t damaged() const { return damaged_.load(std::memory_order_relaxed); }
  std::size_t entries() const;

 private:
  struct Location {
    std::uint32_t segment;  // position in segments_
    Place place;
  };

  void open_all();
  Segment::Scan load(std::uint64_t number, bool for_appending);
  Segment::Scan scan_last();
  std::uint64_t last_number() const;
  bool find(const EntryId& id, Location& location, std::shared_ptr<Segment>& segment);
  // For readers: indexes what the writer has added; whether there was anything.
  bool refresh();
  bool scan_grown();
  bool append(const EntryId& id, const Stage& stage, std::string_view value);
  Segment& segment_for(std::uint64_t record_bytes);
  void sync_all();
  void stop_writing(const SystemFailure& failure);

  const std::string path_;
  const std::uint64_t segment_bytes_;
  StageTable& stages_;
  const Notice notice_;
  std::unique_ptr<Directory> directory_;  // null: not even readable
  std::atomic<bool> writable_{false};
  std::atomic<std::uint64_t> damaged_{0};

  std::mutex file_mutex_;  // one append, scan or flush at a time; taken before index_mutex_
  bool closed_ = false;
  std::vector<std::shared_ptr<Segment>> unsynced_;
  std::set<std::uint64_t> unreadable_;  // numbers of segments whose header is damaged

  mutable std::mutex index_mutex_;  // guards the two below
  std::vector<std::shared_ptr<Segment>> segments_;
  std::unordered_map<EntryId, Location, EntryHash> index_;
};

}  // namespace prismem::cache
