#include "cache/memory_tier.hpp"

#include <iterator>
#include <utility>

namespace prismem::cache {

Value MemoryTier::get(const EntryId& id) {
  std::lock_guard lock(mutex_);
  const auto found = index_.find(id);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->value;
}

void MemoryTier::put(const EntryId& id, Value value) {
  std::lock_guard lock(mutex_);
  const auto found = index_.find(id);
  if (found != index_.end()) remove(found->second);
  Entry entry{id, std::move(value)};
  const std::uint64_t bytes = charge(entry);
  if (bytes > budget_bytes_) return;
  while (used_bytes_ + bytes > budget_bytes_) {
    const auto last = std::prev(entries_.end());
    stages_.at(last->id.stage).evictions.fetch_add(1, std::memory_order_relaxed);
    remove(last);
  }
  entries_.push_front(std::move(entry));
  index_.emplace(id, entries_.begin());
  used_bytes_ += bytes;
}

std::uint64_t MemoryTier::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

void MemoryTier::remove(std::list<Entry>::iterator entry) {
  used_bytes_ -= charge(*entry);
  index_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace prismem::cache
