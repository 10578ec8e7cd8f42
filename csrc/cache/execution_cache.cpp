#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "cache/disk_tier.hpp"
#include "cache/fork_guard.hpp"
#include "cache/leases.hpp"
#include "cache/memory_tier.hpp"
#include "cache/rows.hpp"
#include "cache/single_flight.hpp"
#include "cache/stages.hpp"
#include "prismem/cache.hpp"
#include "support/error.hpp"

namespace prismem::cache {

struct ExecutionCache::State {
  explicit State(const Options& options)
      : memory(options.memory_bytes, stages),
        disk(open_disk(options)),
        leases(open_flights(options)) {}

  std::unique_ptr<DiskTier> open_disk(const Options& options) {
    if (!options.directory) return nullptr;
    return std::make_unique<DiskTier>(options, stages, [this](std::string text) {
      std::lock_guard lock(notice_mutex);
      notice = std::move(text);
      has_notice.store(true, std::memory_order_release);
    });
  }

  // Leases reach other processes through a file of the directory; where it cannot be had they hold in this process alone.
  Descriptor open_flights(const Options& options) const {
    if (!disk || disk->directory() == nullptr) return Descriptor();
    try {
      if (!options.read_only && disk->writable()) return disk->directory()->open_lock("flights");
    } catch (const SystemFailure&) {
      return Descriptor();
    }
    return Descriptor(::openat(disk->directory()->fd(), "flights", O_RDWR | O_CLOEXEC));
  }

  bool read(Stage& stage, const Key& key, ValueSink& sink, double& cost) {
    if (!disk || memory.used_bytes() > 0) {
      if (const Value value = memory.get({key, stage.id}, &cost)) {
        sink.take(*value);
        return true;
      }
    }
    return disk && disk->read({stage, key, entry_hash(key, stage.seed)}, sink, cost);
  }

  Value find(Stage& stage, const Key& key, double& cost);

  void store(Stage& stage, const Item* items, std::size_t count) {
    bool on_disk = false;
    if (disk) {
      std::vector<DiskTier::Entry> entries;
      entries.reserve(count);
      for (std::size_t i = 0; i < count; ++i) {
        entries.push_back({&stage, items[i].key, items[i].value, static_cast<float>(items[i].cost), 0});
      }
      on_disk = disk->write(entries);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const EntryId id{items[i].key, stage.id};
      if (!on_disk) {
        memory.put(id, std::make_shared<const std::string>(items[i].value), items[i].cost);
      } else if (memory.used_bytes() > 0) {
        memory.erase(id);
      }
    }
    stage.stores.fetch_add(count, std::memory_order_relaxed);
  }

  std::mutex notice_mutex;
  std::string notice;
  std::atomic<bool> has_notice{false};
  std::atomic<bool> closed{false};
  StageTable stages;
  MemoryTier memory;
  std::unique_ptr<DiskTier> disk;
  Leases leases;
  SingleFlight flights;
};

namespace {

class CopySink : public ValueSink {
 public:
  void take(std::string_view value) override { copy = std::make_shared<const std::string>(value); }
  Value copy;
};

void count_lookup(Stage& stage, bool found, double cost) {
  (found ? stage.hits : stage.misses).fetch_add(1, std::memory_order_relaxed);
  if (found && cost > 0.0) stage.add_saved(cost);
}

void check_cost(double cost) {
  if (!(cost >= 0.0) || cost > 1e30) {
    throw ArgumentError("cost must be a finite number, 0 or more, got " + std::to_string(cost));
  }
}

}  // namespace

Value ExecutionCache::State::find(Stage& stage, const Key& key, double& cost) {
  CopySink sink;
  return read(stage, key, sink, cost) ? sink.copy : nullptr;
}

ExecutionCache::ExecutionCache(const Options& options)
    : generation_(fork_generation()), state_(std::make_unique<State>(options)) {}

ExecutionCache::~ExecutionCache() {
  // In a forked child the locks may be held by threads that do not exist here; the copy is left alone.
  if (generation_ != fork_generation()) state_.release();
}

void ExecutionCache::check_not_forked() const {
  if (generation_ != fork_generation()) {
    throw CacheError("this execution cache was opened before a fork and cannot be used in the child process: open a new one there");
  }
}

void ExecutionCache::check_usable() const {
  check_not_forked();
  if (state_->closed.load(std::memory_order_acquire)) {
    throw CacheError("this execution cache is closed: open a new one");
  }
}

bool ExecutionCache::get(std::string_view stage_name, const Key& key, ValueSink& sink) {
  check_usable();
  Stage& stage = state_->stages.intern(stage_name);
  double cost = 0.0;
  const bool found = state_->read(stage, key, sink, cost);
  count_lookup(stage, found, cost);
  return found;
}

Value ExecutionCache::get(std::string_view stage, const Key& key) {
  CopySink sink;
  return get(stage, key, sink) ? sink.copy : nullptr;
}

std::vector<Value> ExecutionCache::get_many(std::string_view stage, const std::vector<Key>& keys) {
  std::vector<Value> values;
  values.reserve(keys.size());
  for (const Key& key : keys) values.push_back(get(stage, key));
  return values;
}

void ExecutionCache::put(std::string_view stage, const Key& key, std::string_view value, double cost) {
  check_usable();
  check_cost(cost);
  const Item item{key, value, cost};
  state_->store(state_->stages.intern(stage), &item, 1);
}

void ExecutionCache::put_many(std::string_view stage, const std::vector<Item>& items) {
  check_usable();
  for (const Item& item : items) check_cost(item.cost);
  state_->store(state_->stages.intern(stage), items.data(), items.size());
}

Value ExecutionCache::get_or_compute(std::string_view stage_name, const Key& key, const std::function<std::string()>& compute,
                                     double cost, const std::function<void()>& on_wait) {
  check_usable();
  Stage& stage = state_->stages.intern(stage_name);
  double saved = 0.0;
  if (Value value = state_->find(stage, key, saved)) {
    count_lookup(stage, true, saved);
    return value;
  }
  const EntryId id{key, stage.id};
  const SingleFlight::Ticket ticket = state_->flights.join(id);
  if (!ticket.leads) {
    stage.waits.fetch_add(1, std::memory_order_relaxed);
    return state_->flights.wait(ticket, on_wait);
  }
  try {
    Value value;
    {
      const Lease lease = this->lease(stage_name, {key}, on_wait);
      // Another thread or process may have stored it between the look above and this lease.
      if ((value = state_->find(stage, key, saved))) {
        if (lease.waited()) {
          stage.waits.fetch_add(1, std::memory_order_relaxed);
          stage.add_saved(saved);
        } else {
          count_lookup(stage, true, saved);
        }
      } else {
        count_lookup(stage, false, 0.0);
        const auto start = std::chrono::steady_clock::now();
        value = std::make_shared<const std::string>(compute());
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        check_usable();
        const Item item{key, *value, cost >= 0.0 ? cost : seconds.count()};
        state_->store(stage, &item, 1);
      }
    }
    state_->flights.land(id, ticket, value, nullptr);
    return value;
  } catch (...) {
    state_->flights.land(id, ticket, nullptr, std::current_exception());
    throw;
  }
}

bool ExecutionCache::contains(std::string_view stage_name, const Key& key) {
  check_usable();
  Stage& stage = state_->stages.intern(stage_name);
  if (state_->memory.used_bytes() > 0 && state_->memory.get({key, stage.id}, nullptr)) return true;
  return state_->disk && state_->disk->contains({stage, key, entry_hash(key, stage.seed)});
}

std::uint64_t ExecutionCache::remove(std::string_view stage_name, const std::vector<Key>& keys) {
  check_usable();
  Stage& stage = state_->stages.intern(stage_name);
  std::uint64_t removed = state_->disk ? state_->disk->remove(stage, keys) : 0;
  for (const Key& key : keys) {
    if (state_->memory.erase({key, stage.id})) ++removed;
  }
  return removed;
}

std::vector<EntryInfo> ExecutionCache::entries(std::optional<std::string_view> stage) const {
  check_usable();
  std::vector<EntryInfo> result;
  if (state_->disk) result = state_->disk->entries(stage ? &*stage : nullptr);
  state_->memory.for_each([&](const MemoryTier::Kept& kept) {
    const Stage& owner = state_->stages.at(kept.id.stage);
    if (!stage || owner.name == *stage) result.push_back({owner.name, kept.id.key, kept.value->size(), kept.cost, 0, 0});
  });
  return result;
}

ExecutionCache::Lease::Lease(Lease&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      hashes_(std::move(other.hashes_)),
      positions_(std::move(other.positions_)),
      waited_(other.waited_) {}

void ExecutionCache::Lease::release() {
  ExecutionCache* cache = std::exchange(cache_, nullptr);
  // A forked child holds none of its parent's leases.
  if (cache != nullptr && cache->generation_ == fork_generation()) cache->state_->leases.release(hashes_);
}

ExecutionCache::Lease ExecutionCache::lease(std::string_view stage_name, const std::vector<Key>& keys,
                                            const std::function<void()>& on_wait) {
  check_usable();
  const Stage& stage = state_->stages.intern(stage_name);
  std::vector<std::uint64_t> wanted;
  wanted.reserve(keys.size());
  for (const Key& key : keys) wanted.push_back(entry_hash(key, stage.seed));
  std::vector<std::uint64_t> distinct = wanted;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  Lease lease;
  lease.hashes_ = state_->leases.acquire(std::move(distinct), on_wait, &lease.waited_);
  lease.cache_ = this;
  std::sort(lease.hashes_.begin(), lease.hashes_.end());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (std::binary_search(lease.hashes_.begin(), lease.hashes_.end(), wanted[i])) lease.positions_.push_back(i);
  }
  return lease;
}

std::map<std::string, Counters> ExecutionCache::counters() const {
  check_not_forked();
  std::map<std::string, Counters> result;
  for (const Stage* stage : state_->stages.all()) {
    const Counters counters{stage->hits,  stage->misses,  stage->stores,    stage->evictions,
                            stage->waits, stage->damaged, stage->saved_cost};
    const std::uint64_t lookups = counters.hits + counters.misses + counters.waits;
    if (lookups + counters.stores + counters.evictions + counters.damaged > 0) result.emplace(stage->name, counters);
  }
  return result;
}

CacheStats ExecutionCache::stats() const {
  check_usable();
  CacheStats stats{};
  if (state_->disk) state_->disk->add_stats(stats);
  stats.memory_entries = state_->memory.entries();
  stats.memory_bytes = state_->memory.used_bytes();
  return stats;
}

std::uint64_t ExecutionCache::damaged() const {
  check_not_forked();
  std::uint64_t total = state_->disk ? state_->disk->damaged() : 0;
  for (const Stage* stage : state_->stages.all()) total += stage->damaged.load(std::memory_order_relaxed);
  return total;
}

std::optional<std::string> ExecutionCache::take_notice() {
  check_not_forked();
  if (!state_->has_notice.load(std::memory_order_acquire)) return std::nullopt;
  if (!state_->has_notice.exchange(false, std::memory_order_acquire)) return std::nullopt;
  std::lock_guard lock(state_->notice_mutex);
  return std::exchange(state_->notice, std::string());
}

VerifyReport ExecutionCache::verify() {
  check_usable();
  return state_->disk ? state_->disk->verify() : VerifyReport{};
}

std::uint64_t ExecutionCache::compact() {
  check_usable();
  return state_->disk ? state_->disk->compact() : 0;
}

void ExecutionCache::clear() {
  check_usable();
  if (state_->disk) state_->disk->clear();
  state_->memory.clear();
}

void ExecutionCache::flush() {
  check_usable();
  if (state_->disk) state_->disk->flush();
}

void ExecutionCache::close() {
  if (generation_ != fork_generation() || state_->closed.exchange(true, std::memory_order_acq_rel)) return;
  if (state_->disk) state_->disk->close();
}

void ExecutionCache::get_rows(std::string_view stage_name, const Key* keys, std::size_t count, std::size_t dimension, float* out,
                              unsigned char* found, bool verify) {
  check_usable();
  Stage& stage = state_->stages.intern(stage_name);
  std::memset(found, 0, count);
  double saved = 0.0;
  if (!state_->disk || state_->memory.used_bytes() > 0) {
    for (std::size_t i = 0; i < count; ++i) {
      double cost = 0.0;
      const Value value = state_->memory.get({keys[i], stage.id}, &cost);
      if (!value) continue;
      copy_row(*value, stage.name, keys[i], dimension, out + i * dimension);
      found[i] = 1;
      saved += cost;
    }
  }
  if (state_->disk) saved += state_->disk->read_rows(stage, keys, count, dimension, out, found, verify);
  std::size_t hits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    hits += found[i];
    if (found[i] == 0) std::memset(out + i * dimension, 0, dimension * sizeof(float));
  }
  stage.hits.fetch_add(hits, std::memory_order_relaxed);
  stage.misses.fetch_add(count - hits, std::memory_order_relaxed);
  if (saved > 0.0) stage.add_saved(saved);
}

void ExecutionCache::put_rows(std::string_view stage_name, const Key* keys, std::size_t count, std::size_t dimension, const float* rows,
                              const double* costs) {
  check_usable();
  const std::size_t bytes = kRowHeadBytes + dimension * sizeof(float);
  const RowHead head = row_head(dimension);
  // In parts, so that the copies of a large matrix do not take as much memory again.
  const std::size_t part = std::max<std::size_t>(1, (std::size_t{8} << 20) / bytes);
  Stage& stage = state_->stages.intern(stage_name);
  std::string values;
  std::vector<Item> items;
  for (std::size_t start = 0; start < count; start += part) {
    const std::size_t here = std::min(part, count - start);
    values.resize(here * bytes);
    items.clear();
    for (std::size_t i = 0; i < here; ++i) {
      char* value = values.data() + i * bytes;
      std::memcpy(value, head.data(), kRowHeadBytes);
      std::memcpy(value + kRowHeadBytes, rows + (start + i) * dimension, dimension * sizeof(float));
      const double cost = costs == nullptr ? 0.0 : costs[start + i];
      check_cost(cost);
      items.push_back({keys[start + i], std::string_view(value, bytes), cost});
    }
    state_->store(stage, items.data(), items.size());
  }
}

}  // namespace prismem::cache
