// The memory tier: the values worth most, within a budget of bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/key.hpp"
#include "cache/stages.hpp"

namespace prismem::cache {

using Value = std::shared_ptr<const std::string>;

// GreedyDual-Size (worth.hpp) over up to 16 shards, each with its own mutex. An entry's shard follows from its hash; the
// budget is one for all: bytes are reserved in a common counter before an entry goes in, so that it holds at every moment
// and a value as large as the whole budget still finds room. Where it does not fit, the lowest entry of the own shard or of
// one other (each in turn), whichever is lower, goes; ties go to the own shard, within a shard to the one unused for
// longest. The inflation is common too, so priorities of all shards can be compared.
//
// A shard's heap is lazy. An item holds the priority its entry had when the heap last looked; a hit raises the entry's own
// alone, in constant time. The first item of the heap is moved down until it is true; then no other can be lower.
class MemoryTier {
 public:
  // What an entry costs beside its value: hash node, bucket, heap item, control block and string.
  static constexpr std::uint64_t kEntryBytes = 256;
  static constexpr std::size_t kMaxShards = 16;
  // A smaller budget has fewer shards, down to one: a choice among few entries is a poor one.
  static constexpr std::uint64_t kMinShardBytes = 1 << 20;

  MemoryTier(std::uint64_t budget_bytes, StageTable& stages);
  MemoryTier(const MemoryTier&) = delete;
  MemoryTier& operator=(const MemoryTier&) = delete;

  // The value, with its priority renewed, and its cost; null when absent.
  Value get(const EntryId& id, double* cost = nullptr);
  // Keeps the value and drops the lowest until the budget holds. A value that alone is larger than the budget is not kept
  // (and no older one under its name either). An older one under its name is there until the new one is.
  void put(const EntryId& id, Value value, double cost = 0);
  bool erase(const EntryId& id);
  void clear();

  std::uint64_t budget_bytes() const { return budget_bytes_; }
  std::uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t entries() const;

  struct Kept {
    EntryId id;
    Value value;
    double cost;
    double priority;
  };
  // Every entry, in no order; no lock is held while `visit` runs.
  void for_each(const std::function<void(const Kept&)>& visit) const;

  std::size_t shards() const { return shards_.size(); }
  std::size_t shard_of(const EntryId& id) const { return shard_of_hash(EntryHash()(id)); }

 private:
  // Order of leaving: priority, then the time of the last use.
  struct Rank {
    double priority;
    std::uint64_t use;
    bool operator<(const Rank& other) const { return priority != other.priority ? priority < other.priority : use < other.use; }
  };
  struct Entry {
    Value value;
    double cost = 0;
    Rank rank{};
    std::size_t position = 0;  // in the heap
  };
  using Entries = std::unordered_map<EntryId, Entry, EntryHash>;
  struct Item {
    Rank rank;  // of the entry, or lower
    Entries::value_type* entry;
  };
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    std::uint64_t uses = 0;
    std::size_t turn = 0;  // which other shard was asked last
    Entries entries;
    std::vector<Item> heap;

    // Sees to it that the next push() needs no memory.
    void make_room();
    void push(Entries::value_type& entry);
    void take(std::size_t position);
    void sift(std::size_t position, Item item);
    void place(std::size_t position, Item item);
    // Makes the rank of the first item true; null when there is none.
    const Item* first();
    // Gives memory back after most entries have gone.
    void trim();
  };

  static std::uint64_t charge(const Value& value) { return value->size() + kEntryBytes; }
  std::size_t shard_of_hash(std::size_t hash) const { return (hash >> 60) & (shards_.size() - 1); }
  Rank rank(Shard& shard, double cost, std::uint64_t bytes) const;
  // Reserves bytes of the budget, evicting as needed; false when nothing that can be evicted is within reach just now.
  bool reserve(std::uint64_t bytes, Shard& own, std::vector<Value>& gone);
  bool evict(Shard& own, std::vector<Value>& gone);
  void evict_first(Shard& shard, std::vector<Value>& gone);

  const std::uint64_t budget_bytes_;
  StageTable& stages_;
  std::vector<Shard> shards_;
  std::atomic<std::uint64_t> used_bytes_{0};
  std::atomic<double> inflation_{0.0};
};

}  // namespace prismem::cache
