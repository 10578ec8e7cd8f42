// The disk tier: append-only segments, an index mapped by every process, and the turn to write.
//
// Reading takes the view's lock, shared, and nothing else; other processes change the mapped index meanwhile (mapped_index.hpp says why that is
// safe). A change takes the turn (directory.hpp), brings the view up to date (settle), appends, publishes the places in the index, then the new
// state. Order of locks: turn, then view. A thread that holds the view's lock waits for nothing.
//
// Code by file: disk_tier.cpp opening and reading, disk_rows.cpp rows of a matrix, disk_writing.cpp batches, recovery.cpp what a kill or damage
// leaves, compaction.cpp eviction and room, verification.cpp all of it checked.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cache/directory.hpp"
#include "cache/key.hpp"
#include "cache/stages.hpp"
#include "cache/view.hpp"

namespace prismem::cache {

class DiskTier {
 public:
  using Notice = std::function<void(std::string)>;

  // Opens the directory. A place that cannot be written is read if possible and told to `notice`; CacheError as in Directory.
  DiskTier(const Options& options, StageTable& stages, Notice notice);
  ~DiskTier();

  // An entry as look-ups name it.
  struct Name {
    Stage& stage;
    const Key& key;
    std::uint64_t hash;
  };

  // Hands the value to `sink` and its cost to `cost`; false when there is none or it is damaged (then counted and forgotten).
  bool read(const Name& name, ValueSink& sink, double& cost);
  bool contains(const Name& name);
  // See ExecutionCache::get_rows. Cells of `found` that are set already are left alone; returns the sum of costs of the rows found.
  double read_rows(Stage& stage, const Key* keys, std::size_t count, std::size_t dimension, float* out, unsigned char* found, bool verify);

  struct Entry {
    const Stage* stage;
    Key key;
    std::string_view value;
    float cost = 0.0f;
    std::uint32_t stored_at = 0;     // 0: now
    const Detail* kept = nullptr;    // of a record that is moved
  };
  // Appends the entries unless the same values are there. False when the disk does not take them: after a failure the tier writes no more,
  // tells `notice` once, and forgets the entries so that older values of them never come back.
  bool write(const std::vector<Entry>& entries);
  std::uint64_t remove(Stage& stage, const std::vector<Key>& keys);
  void clear();
  std::uint64_t compact();
  VerifyReport verify();
  void flush();
  // Flushes, marks the index clean when nobody else writes, and ends background work.
  void close();

  std::vector<EntryInfo> entries(const std::string_view* stage);
  void add_stats(CacheStats& stats);
  bool writable() const { return writable_.load(std::memory_order_relaxed); }
  // Damage of which the stage is not known: stretches of bytes that are no record, unreadable segments, the index.
  std::uint64_t damaged() const { return damaged_.load(std::memory_order_relaxed); }
  // Null: the place cannot even be read.
  Directory* directory() const { return directory_.get(); }

 private:
  static constexpr std::uint64_t kFirstSlots = 1024;  // of a new index

  enum class Look { found, absent, superseded, unopened, damaged_record, damaged_slot };
  struct Hit {
    Segment* segment = nullptr;
    Segment::Record record;
    Location location{};
    std::uint64_t slot = 0;
  };
  // With the view's lock. After `unopened` and `damaged_record`, hit.location says where.
  Look locate(std::string_view stage, const Key& key, std::uint64_t hash, Hit& hit) const;
  // After anything but `found`, without locks: whether another look is worth while.
  bool mend(const Name& name, Look look, const Hit& hit, int attempt);
  void touch(const Hit& hit, std::uint32_t now) const;
  template <class Take>
  bool find(const Name& name, Take take);
  bool open_segment(std::uint64_t number);
  // After the index in view was superseded.
  void reload();
  bool reload_live();
  void count_damage(Stage& stage, Location location);

  // recovery.cpp
  struct Scanned {
    std::unique_ptr<MappedIndex> index;
    LogState state{};
    std::map<std::uint64_t, std::uint64_t> ends;  // of each segment, where its last sound record ends
    SegmentTable segments;
    bool last_torn = false;
  };
  Scanned scan_all(bool own_turn);
  void scan_segment(Scanned& scanned, const Segment& segment, bool own_turn);
  // In a copy of the index in memory; for readers where the index on disk cannot be trusted.
  void go_private();
  bool refresh_private();
  // The next ones need the turn.
  void rebuild();
  void settle();
  void adopt_tail();
  void replace_index(std::uint64_t slots, const MappedIndex* source, SegmentTable segments);
  void install(std::shared_ptr<MappedIndex> index, SegmentTable segments);
  std::shared_ptr<MappedIndex> index() const;

  // disk_writing.cpp; all need the turn and a settled view
  struct Pending {
    std::string_view stage;
    Key key;
    std::uint64_t hash;
    std::uint64_t offset;  // in the tail segment
    std::uint64_t record_bytes;
    float cost;
    const Detail* kept = nullptr;  // of a record that is moved: not a use
  };
  Look locate_opened(std::string_view stage, const Key& key, std::uint64_t hash, Hit& hit, std::shared_lock<ViewLock>& lock);
  bool holds_same(const Entry& entry, std::uint64_t hash);
  void append(const Entry& entry, std::uint64_t hash, std::uint8_t kind);
  void write_out();
  void publish(const Pending& pending);
  void grow_index();
  void roll();
  bool forget(std::string_view stage, const Key& key, std::uint64_t hash, const Location* only);
  void forget_all(const std::vector<Entry>& entries);
  void mark_dirty();
  void stop_writing(const SystemFailure& failure);
  void sync_through(std::uint64_t batch);
  void save_state() { index()->set_state(state_); }

  VerifyReport verify_all();  // verification.cpp

  // compaction.cpp
  struct Room {
    std::uint64_t budget;  // what segments may hold
    std::uint64_t high;    // background compaction begins
    std::uint64_t low;     // and is content
  };
  Room room() const;
  bool wants_cleaning(const Room& room) const;
  std::uint64_t run_cycle(bool everything);
  void evict_to(std::uint64_t live_bytes);
  GuardedDescriptor lock_cleaning();
  struct Emptied {
    std::vector<std::uint64_t> numbers;
    std::uint64_t file_bytes = 0, moved_bytes = 0;
  };
  void empty_segment(std::uint64_t number, Emptied& emptied);
  void remove_emptied(Emptied& emptied);
  void wake_compactor();
  void stop_compactor();
  void compactor_loop();

  const std::string path_;
  const bool read_only_;
  const bool durable_;
  const std::uint64_t disk_bytes_;
  const std::uint64_t segment_bytes_;
  StageTable& stages_;
  const Notice notice_;
  std::unique_ptr<Directory> directory_;  // null: not even readable
  std::atomic<bool> writable_{false};
  std::atomic<std::uint64_t> damaged_{0};
  mutable std::atomic<double> inflation_{0.0};
  mutable std::atomic<std::uint32_t> inflation_read_at_{0};

  mutable ViewLock view_mutex_;  // guards the four below
  std::shared_ptr<MappedIndex> index_;  // of a writer it may change to another mapping of the same file at any time
  SegmentTable segments_;
  std::atomic<bool> private_{false};  // also looked at without the lock, as a hint
  std::map<std::uint64_t, std::uint64_t> scanned_ends_;

  std::mutex damage_mutex_;
  std::set<std::uint64_t> damaged_places_;  // counted once each

  // With the turn only.
  LogState state_{};
  std::shared_ptr<Segment> tail_;
  std::unique_ptr<char[]> buffer_;  // records to be appended
  std::size_t buffered_ = 0;
  std::vector<Pending> pending_;
  bool closed_ = false;

  std::mutex dirty_mutex_;
  std::vector<std::shared_ptr<Segment>> dirty_;  // appended to since the last sync
  bool directory_dirty_ = false;
  std::uint64_t batches_ = 0;  // with dirty_mutex_
  std::mutex sync_mutex_;
  std::uint64_t synced_batches_ = 0;  // with sync_mutex_

  std::mutex compactor_mutex_;
  std::condition_variable compactor_wakes_;
  bool compactor_wanted_ = false, compactor_stops_ = false;
  std::atomic<bool> stopping_{false};
  std::thread compactor_;
};

}  // namespace prismem::cache
