// The memory tier: the values used last, within a budget of bytes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cache/key.hpp"
#include "cache/stages.hpp"

namespace prismem::cache {

using Value = std::shared_ptr<const std::string>;

class MemoryTier {
 public:
  // What an entry costs beside its value: list node, hash node, control block.
  static constexpr std::uint64_t kEntryBytes = 192;

  MemoryTier(std::uint64_t budget_bytes, StageTable& stages) : budget_bytes_(budget_bytes), stages_(stages) {}

  // The value, which becomes the one used last; null when absent.
  Value get(const EntryId& id);
  // Keeps the value and drops the ones unused for longest until the budget holds. A value that alone is larger
  // than the budget is not kept (and no older one under its name either).
  void put(const EntryId& id, Value value);

  std::uint64_t used_bytes() const;

 private:
  struct Entry {
    EntryId id;
    Value value;
  };
  static std::uint64_t charge(const Entry& entry) { return entry.value->size() + kEntryBytes; }
  void remove(std::list<Entry>::iterator entry);

  const std::uint64_t budget_bytes_;
  StageTable& stages_;
  mutable std::mutex mutex_;
  std::uint64_t used_bytes_ = 0;
  std::list<Entry> entries_;  // used last first
  std::unordered_map<EntryId, std::list<Entry>::iterator, EntryHash> index_;
};

}  // namespace prismem::cache
