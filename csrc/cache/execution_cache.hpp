// The execution cache: stage outputs under content keys, in memory and on disk, each computed once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/disk_tier.hpp"
#include "cache/key.hpp"
#include "cache/memory_tier.hpp"
#include "cache/single_flight.hpp"
#include "cache/stages.hpp"

namespace prismem::cache {

struct Counters {
  std::uint64_t hits, misses, stores, evictions, waits, damaged;
};

struct Options {
  std::optional<std::string> directory;  // none: memory only
  std::uint64_t memory_bytes = 256ull << 20;
  std::uint64_t segment_bytes = 64ull << 20;
  bool read_only = false;
};

// Thread-safe. After a fork the child gets CacheError from every method but the destructor.
class ExecutionCache {
 public:
  explicit ExecutionCache(const Options& options);
  ~ExecutionCache();
  ExecutionCache(const ExecutionCache&) = delete;
  ExecutionCache& operator=(const ExecutionCache&) = delete;

  // The value, or null. Counts a hit or a miss.
  Value get(std::string_view stage, const Key& key);
  std::vector<Value> get_many(std::string_view stage, const std::vector<Key>& keys);
  // When it returns, the record has been handed to the system (unless the tier does not write: take_notice()).
  void put(std::string_view stage, const Key& key, std::string value);
  // The stored value, or what `compute` returns, stored. One thread computes, which counts a miss; the others wait,
  // which counts a wait for each, and get the same value or the same exception. Nothing is stored on an exception.
  Value get_or_compute(std::string_view stage, const Key& key, const std::function<std::string()>& compute,
                       const std::function<void()>& on_wait = nullptr);

  // Stages that have counted anything.
  std::map<std::string, Counters> counters() const;
  // All damage met so far, of known and unknown stages.
  std::uint64_t damaged() const;
  // A message for the user, each handed out once: the disk tier has stopped writing.
  std::optional<std::string> take_notice();

  // Brings all puts to the disk itself, so that they outlive a loss of power.
  void flush();
  // flush() and the end of the lock; every later call but close() gives CacheError.
  void close();

 private:
  struct State {
    State(const Options& options, DiskTier::Notice notice);
    StageTable stages;
    MemoryTier memory;
    std::optional<DiskTier> disk;
    SingleFlight flights;
    // Orders all work on one entry, so that a value read from disk never replaces a newer one in memory.
    std::array<std::mutex, 64> entry_mutexes;
    std::mutex notice_mutex;
    std::string notice;
  };

  void check_not_forked() const;
  void check_usable() const;
  std::mutex& mutex_of(const EntryId& id);
  Value find(const EntryId& id);
  void store(const EntryId& id, const Value& value);

  const std::uint64_t generation_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> has_notice_{false};
  std::unique_ptr<State> state_;
};

}  // namespace prismem::cache
