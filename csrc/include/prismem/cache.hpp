// ExecutionCache: stage outputs under content keys, in memory and on disk, each computed once. docs/cache.md is the guide, docs/formats.md
// describes the files.
//
// Any number of threads and processes may use one directory. Readers never wait for writers; writers queue. A put is handed to the system when
// it returns, so that the end of the process, however sudden, loses nothing; `durable` makes it outlive a loss of power as well. What cannot
// be written (read-only or full disk) is kept in memory, and take_notice() says so once. What is damaged is counted and is a miss.
//
// Errors: ArgumentError for bad arguments, CacheError for a directory that cannot be used, for use after close() or in a forked child.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prismem::cache {

// A content key: 32 bytes, SHA-256 of everything that decides the value, as a rule. It names an entry together with a stage, which is 1 to 64
// printable ASCII characters.
using Key = std::array<unsigned char, 32>;

// The key that 64 lowercase hex digits spell; ArgumentError for anything else.
Key parse_key(std::string_view hex);

using Value = std::shared_ptr<const std::string>;

struct Options {
  std::optional<std::string> directory;         // none: memory only
  std::uint64_t memory_bytes = 256ull << 20;    // of a cache without a directory, and of what the disk does not take
  std::uint64_t disk_bytes = 16ull << 30;       // of all files; entries of least worth go when they reach it
  std::uint64_t segment_bytes = 64ull << 20;    // at most 128 MiB; a file of this size is followed by a new one
  bool read_only = false;
  bool durable = false;  // a put returns when the disk itself has it (fsync); puts at the same time share one
};

// Look-ups of a stage are hits, misses, or waits for another thread or process that was computing the value.
struct Counters {
  std::uint64_t hits, misses, stores, evictions, waits, damaged;
  double saved_cost;  // costs of the values hit or waited for
};

struct EntryInfo {
  std::string stage;
  Key key;
  std::uint64_t value_bytes;
  double cost;
  std::uint32_t stored_at, used_at;  // Unix seconds; 0 where not known
};

struct CacheStats {
  std::uint64_t entries, live_bytes;               // on disk: entries that can be found, and their records
  std::uint64_t disk_bytes, index_bytes, segments;  // the files
  std::uint64_t memory_entries, memory_bytes;       // the memory tier
};

struct VerifyReport {
  std::uint64_t entries, bytes;   // whose checksums hold, and the size of their values
  std::uint64_t damaged;          // damaged entries, stretches of files that are no record, unreadable segments
  std::uint64_t damaged_index;    // places in the index that name no entry; the index is made anew from the segments
};

// Receives one value; the view is good until `take` returns.
class ValueSink {
 public:
  virtual ~ValueSink() = default;
  virtual void take(std::string_view value) = 0;
};

struct Item {
  Key key;
  std::string_view value;
  double cost = 0.0;  // of computing it again, in any unit, the same for all of a cache; 0: not known
};

class ExecutionCache {
 public:
  explicit ExecutionCache(const Options& options);
  ~ExecutionCache();
  ExecutionCache(const ExecutionCache&) = delete;
  ExecutionCache& operator=(const ExecutionCache&) = delete;

  // Whether there is a value, which `sink` is given. Counts a hit or a miss.
  bool get(std::string_view stage, const Key& key, ValueSink& sink);
  Value get(std::string_view stage, const Key& key);
  std::vector<Value> get_many(std::string_view stage, const std::vector<Key>& keys);

  // Copies the elements of float32 rows (docs/formats.md, "Values") of `dimension` elements into `out`, (count, dimension), and says in
  // `found` (count bytes) which there were; rows not found are zeros. ArgumentError for an entry that is no such row. Without `verify` the
  // checksums of the values are not looked at (those of the record heads are).
  void get_rows(std::string_view stage, const Key* keys, std::size_t count, std::size_t dimension, float* out, unsigned char* found,
                bool verify = true);
  // One group commit of `count` rows, each as the array of one dimension that get_rows reads.
  void put_rows(std::string_view stage, const Key* keys, std::size_t count, std::size_t dimension, const float* rows, const double* costs);

  void put(std::string_view stage, const Key& key, std::string_view value, double cost = 0.0);
  // All or, on a disk that cannot be written, in memory: one lock, one write and one publication for many values.
  void put_many(std::string_view stage, const std::vector<Item>& items);

  // The stored value, or what `compute` returns, stored. One thread of one process computes, which counts a miss; the others wait, which
  // counts a wait for each, and get the same value (and, in this process, the same exception). Nothing is stored on an exception. A negative
  // `cost` stands for the seconds that `compute` took.
  Value get_or_compute(std::string_view stage, const Key& key, const std::function<std::string()>& compute, double cost = -1.0,
                       const std::function<void()>& on_wait = nullptr);

  bool contains(std::string_view stage, const Key& key);
  // How many of them were there.
  std::uint64_t remove(std::string_view stage, const std::vector<Key>& keys);
  std::vector<EntryInfo> entries(std::optional<std::string_view> stage = std::nullopt) const;

  // Keeps other threads and processes that lease the same entries waiting until it is destroyed. Entries that could not be had without the
  // danger of waiting for ever (the thread holds another lease) are not in `held()`.
  class Lease {
   public:
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) = delete;
    ~Lease() { release(); }
    const std::vector<std::size_t>& held() const { return positions_; }
    bool waited() const { return waited_; }
    void release();

   private:
    friend class ExecutionCache;
    Lease() = default;
    ExecutionCache* cache_ = nullptr;
    std::vector<std::uint64_t> hashes_;
    std::vector<std::size_t> positions_;
    bool waited_ = false;
  };
  // The cache must outlive the lease. `on_wait` runs about every 100 ms of a wait; an exception of it ends the wait.
  Lease lease(std::string_view stage, const std::vector<Key>& keys, const std::function<void()>& on_wait = nullptr);

  std::map<std::string, Counters> counters() const;
  CacheStats stats() const;
  // All damage met so far, of known and unknown stages.
  std::uint64_t damaged() const;
  // A message for the user, each handed out once: the disk cannot be written.
  std::optional<std::string> take_notice();

  // Reads everything and checks every checksum; a damaged index is made anew.
  VerifyReport verify();
  // Rewrites what lives and gives the room of the rest back; returns the bytes freed.
  std::uint64_t compact();
  void clear();
  // Brings all puts to the disk itself, so that they outlive a loss of power.
  void flush();
  // flush() and the end of use; every later call but close() gives CacheError.
  void close();

 private:
  struct State;
  void check_usable() const;
  void check_not_forked() const;

  const std::uint64_t generation_;
  std::unique_ptr<State> state_;
};

}  // namespace prismem::cache
