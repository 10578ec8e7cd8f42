#include "cache/memory_tier.hpp"

#include <new>
#include <thread>
#include <utility>

#include "cache/worth.hpp"

namespace prismem::cache {
namespace {

constexpr std::size_t kSpareItems = 16;

std::size_t shards_for(std::uint64_t budget_bytes) {
  std::size_t shards = MemoryTier::kMaxShards;
  while (shards > 1 && budget_bytes / shards < MemoryTier::kMinShardBytes) shards /= 2;
  return shards;
}

}  // namespace

void MemoryTier::Shard::place(std::size_t position, Item item) {
  heap[position] = item;
  item.entry->second.position = position;
}

// Puts the item where it belongs, starting at a position of which what it held is no longer needed.
void MemoryTier::Shard::sift(std::size_t position, Item item) {
  while (position > 0 && item.rank < heap[(position - 1) / 2].rank) {
    place(position, heap[(position - 1) / 2]);
    position = (position - 1) / 2;
  }
  for (;;) {
    std::size_t child = 2 * position + 1;
    if (child >= heap.size()) break;
    if (child + 1 < heap.size() && heap[child + 1].rank < heap[child].rank) ++child;
    if (!(heap[child].rank < item.rank)) break;
    place(position, heap[child]);
    position = child;
  }
  place(position, item);
}

void MemoryTier::Shard::make_room() {
  if (heap.size() == heap.capacity()) heap.reserve(2 * heap.size() + kSpareItems);
}

void MemoryTier::Shard::push(Entries::value_type& entry) {
  heap.push_back({entry.second.rank, &entry});
  sift(heap.size() - 1, heap.back());
}

void MemoryTier::Shard::take(std::size_t position) {
  const Item last = heap.back();
  heap.pop_back();
  if (position < heap.size()) sift(position, last);
}

const MemoryTier::Item* MemoryTier::Shard::first() {
  if (heap.empty()) return nullptr;
  while (heap.front().rank < heap.front().entry->second.rank) sift(0, {heap.front().entry->second.rank, heap.front().entry});
  return &heap.front();
}

void MemoryTier::Shard::trim() {
  try {
    if (heap.capacity() > 16 * kSpareItems && heap.size() < heap.capacity() / 4) {
      std::vector<Item> smaller;
      smaller.reserve(2 * heap.size() + kSpareItems);
      smaller.assign(heap.begin(), heap.end());
      heap.swap(smaller);
    }
    if (entries.bucket_count() > 16 * kSpareItems && entries.size() < entries.bucket_count() / 4) entries.rehash(2 * entries.size());
  } catch (const std::bad_alloc&) {
    // They stay as large as they are.
  }
}

MemoryTier::MemoryTier(std::uint64_t budget_bytes, StageTable& stages)
    : budget_bytes_(budget_bytes), stages_(stages), shards_(shards_for(budget_bytes)) {}

MemoryTier::Rank MemoryTier::rank(Shard& shard, double cost, std::uint64_t bytes) const {
  return {priority(inflation_.load(std::memory_order_relaxed), cost, bytes), ++shard.uses};
}

Value MemoryTier::get(const EntryId& id, double* cost) {
  Shard& shard = shards_[shard_of(id)];
  std::lock_guard lock(shard.mutex);
  const auto found = shard.entries.find(id);
  if (found == shard.entries.end()) return nullptr;
  Entry& entry = found->second;
  entry.rank = rank(shard, entry.cost, charge(entry.value));
  if (cost != nullptr) *cost = entry.cost;
  return entry.value;
}

void MemoryTier::put(const EntryId& id, Value value, double cost) {
  const std::uint64_t bytes = charge(value);
  if (bytes > budget_bytes_) {
    erase(id);
    return;
  }
  std::vector<Value> gone;  // freed after the lock
  Shard& shard = shards_[shard_of(id)];
  for (;; std::this_thread::yield()) {
    std::lock_guard lock(shard.mutex);
    shard.make_room();
    // An older value stays where readers find it, but not where eviction does.
    const auto found = shard.entries.find(id);
    const std::uint64_t had = found == shard.entries.end() ? 0 : charge(found->second.value);
    if (had != 0) shard.take(found->second.position);
    if (!reserve(bytes > had ? bytes - had : 0, shard, gone)) {
      // Other threads are at the shards that hold the rest, or wait for this one: let them.
      if (had != 0) shard.push(*found);
      continue;
    }
    if (had > bytes) used_bytes_.fetch_sub(had - bytes, std::memory_order_relaxed);
    auto entry = found;
    try {
      if (had == 0) entry = shard.entries.try_emplace(id).first;
    } catch (const std::bad_alloc&) {
      used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
      throw;
    }
    entry->second.value.swap(value);
    entry->second.cost = cost;
    entry->second.rank = rank(shard, cost, bytes);
    shard.push(*entry);
    return;
  }
}

bool MemoryTier::reserve(std::uint64_t bytes, Shard& own, std::vector<Value>& gone) {
  std::uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  for (;;) {
    if (used + bytes > budget_bytes_) {
      if (!evict(own, gone)) return false;
      used = used_bytes_.load(std::memory_order_relaxed);
    } else if (used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed)) {
      return true;
    }
  }
}

// The caller holds the mutex of `own`; the others are only tried, so that two callers never wait for each other.
bool MemoryTier::evict(Shard& own, std::vector<Value>& gone) {
  const Item* lowest = own.first();
  for (std::size_t tried = 0; tried < shards_.size(); ++tried) {
    Shard& other = shards_[++own.turn & (shards_.size() - 1)];
    if (&other == &own) continue;
    std::unique_lock lock(other.mutex, std::try_to_lock);
    const Item* candidate = lock ? other.first() : nullptr;
    if (candidate != nullptr && (lowest == nullptr || candidate->rank.priority < lowest->rank.priority)) {
      evict_first(other, gone);
      return true;
    }
    if (lowest != nullptr) break;
  }
  if (lowest == nullptr) return false;
  evict_first(own, gone);
  return true;
}

void MemoryTier::evict_first(Shard& shard, std::vector<Value>& gone) {
  const auto found = shard.entries.find(shard.heap.front().entry->first);
  gone.push_back(found->second.value);
  double inflation = inflation_.load(std::memory_order_relaxed);
  const double reached = found->second.rank.priority;
  while (inflation < reached && !inflation_.compare_exchange_weak(inflation, reached, std::memory_order_relaxed)) {
  }
  stages_.at(found->first.stage).evictions.fetch_add(1, std::memory_order_relaxed);
  used_bytes_.fetch_sub(charge(found->second.value), std::memory_order_relaxed);
  shard.take(0);
  shard.entries.erase(found);
  shard.trim();
}

bool MemoryTier::erase(const EntryId& id) {
  Value gone;
  Shard& shard = shards_[shard_of(id)];
  std::lock_guard lock(shard.mutex);
  const auto found = shard.entries.find(id);
  if (found == shard.entries.end()) return false;
  used_bytes_.fetch_sub(charge(found->second.value), std::memory_order_relaxed);
  gone = std::move(found->second.value);
  shard.take(found->second.position);
  shard.entries.erase(found);
  shard.trim();
  return true;
}

void MemoryTier::clear() {
  for (Shard& shard : shards_) {
    Entries gone;
    std::lock_guard lock(shard.mutex);
    std::uint64_t bytes = 0;
    for (const auto& entry : shard.entries) bytes += charge(entry.second.value);
    used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    shard.heap = {};
    shard.entries.swap(gone);
  }
}

std::uint64_t MemoryTier::entries() const {
  std::uint64_t count = 0;
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    count += shard.entries.size();
  }
  return count;
}

void MemoryTier::for_each(const std::function<void(const Kept&)>& visit) const {
  std::vector<Kept> kept;
  for (const Shard& shard : shards_) {
    kept.clear();
    {
      std::lock_guard lock(shard.mutex);
      kept.reserve(shard.entries.size());
      for (const auto& [id, entry] : shard.entries) kept.push_back({id, entry.value, entry.cost, entry.rank.priority});
    }
    for (const Kept& entry : kept) visit(entry);
  }
}

}  // namespace prismem::cache
