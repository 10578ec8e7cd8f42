#include "cache/execution_cache.hpp"

#include <utility>

#include "cache/fork_guard.hpp"
#include "support/error.hpp"

namespace prismem::cache {

ExecutionCache::State::State(const Options& options, DiskTier::Notice tell) : memory(options.memory_bytes, stages) {
  if (options.directory) {
    disk.emplace(*options.directory, options.read_only, options.segment_bytes, stages, std::move(tell));
  }
}

ExecutionCache::ExecutionCache(const Options& options) : generation_(fork_generation()) {
  std::string early;  // the tier may have something to say before there is a state to keep it in
  state_ = std::make_unique<State>(options, [this, &early](std::string text) {
    if (!state_) {
      early = std::move(text);
    } else {
      std::lock_guard lock(state_->notice_mutex);
      state_->notice = std::move(text);
    }
    has_notice_.store(true, std::memory_order_release);
  });
  if (!early.empty()) state_->notice = std::move(early);
}

ExecutionCache::~ExecutionCache() {
  // In a forked child the mutexes may be held by threads that do not exist here; the copy is left alone.
  if (generation_ != fork_generation()) state_.release();
}

void ExecutionCache::check_not_forked() const {
  if (generation_ != fork_generation()) {
    throw CacheError("this execution cache was opened before a fork and cannot be used in the child process: "
                     "open a new one there (read_only=True while the parent writes)");
  }
}

void ExecutionCache::check_usable() const {
  check_not_forked();
  if (closed_.load(std::memory_order_acquire)) {
    throw CacheError("this execution cache is closed: open a new one");
  }
}

std::mutex& ExecutionCache::mutex_of(const EntryId& id) {
  return state_->entry_mutexes[(EntryHash{}(id) >> 7) % state_->entry_mutexes.size()];
}

Value ExecutionCache::find(const EntryId& id) {
  if (Value value = state_->memory.get(id)) return value;
  if (!state_->disk) return nullptr;
  std::lock_guard lock(mutex_of(id));
  if (Value value = state_->memory.get(id)) return value;
  std::string bytes;
  if (!state_->disk->read(id, bytes)) return nullptr;
  Value value = std::make_shared<const std::string>(std::move(bytes));
  state_->memory.put(id, value);
  return value;
}

void ExecutionCache::store(const EntryId& id, const Value& value) {
  {
    std::lock_guard lock(mutex_of(id));
    if (state_->disk) state_->disk->write(id, *value);
    state_->memory.put(id, value);
  }
  state_->stages.at(id.stage).stores.fetch_add(1, std::memory_order_relaxed);
}

Value ExecutionCache::get(std::string_view stage_name, const Key& key) {
  check_usable();
  Stage& stage = state_->stages.intern(stage_name);
  Value value = find({key, stage.id});
  (value ? stage.hits : stage.misses).fetch_add(1, std::memory_order_relaxed);
  return value;
}

std::vector<Value> ExecutionCache::get_many(std::string_view stage_name, const std::vector<Key>& keys) {
  std::vector<Value> values;
  values.reserve(keys.size());
  for (const Key& key : keys) values.push_back(get(stage_name, key));
  return values;
}

void ExecutionCache::put(std::string_view stage_name, const Key& key, std::string value) {
  check_usable();
  const EntryId id{key, state_->stages.intern(stage_name).id};
  store(id, std::make_shared<const std::string>(std::move(value)));
}

Value ExecutionCache::get_or_compute(std::string_view stage_name, const Key& key,
                                     const std::function<std::string()>& compute,
                                     const std::function<void()>& on_wait) {
  check_usable();
  Stage& stage = state_->stages.intern(stage_name);
  const EntryId id{key, stage.id};
  if (Value value = find(id)) {
    stage.hits.fetch_add(1, std::memory_order_relaxed);
    return value;
  }
  const SingleFlight::Ticket ticket = state_->flights.join(id);
  if (!ticket.leads) {
    stage.waits.fetch_add(1, std::memory_order_relaxed);
    return state_->flights.wait(ticket, on_wait);
  }
  try {
    // Another leader may have landed between the look above and this flight.
    Value value = find(id);
    if (value) {
      stage.hits.fetch_add(1, std::memory_order_relaxed);
    } else {
      stage.misses.fetch_add(1, std::memory_order_relaxed);
      value = std::make_shared<const std::string>(compute());
      check_usable();
      store(id, value);
    }
    state_->flights.land(id, ticket, value, nullptr);
    return value;
  } catch (...) {
    state_->flights.land(id, ticket, nullptr, std::current_exception());
    throw;
  }
}

std::map<std::string, Counters> ExecutionCache::counters() const {
  check_not_forked();
  std::map<std::string, Counters> result;
  for (const Stage* stage : state_->stages.all()) {
    const Counters counters{stage->hits, stage->misses, stage->stores, stage->evictions, stage->waits, stage->damaged};
    const std::uint64_t lookups = counters.hits + counters.misses + counters.waits;
    if (lookups + counters.stores + counters.evictions + counters.damaged > 0) result.emplace(stage->name, counters);
  }
  return result;
}

std::uint64_t ExecutionCache::damaged() const {
  check_not_forked();
  std::uint64_t total = state_->disk ? state_->disk->damaged() : 0;
  for (const Stage* stage : state_->stages.all()) total += stage->damaged.load(std::memory_order_relaxed);
  return total;
}

std::optional<std::string> ExecutionCache::take_notice() {
  check_not_forked();
  if (!has_notice_.load(std::memory_order_acquire)) return std::nullopt;
  if (!has_notice_.exchange(false, std::memory_order_acquire)) return std::nullopt;
  std::lock_guard lock(state_->notice_mutex);
  return std::exchange(state_->notice, std::string());
}

void ExecutionCache::flush() {
  check_usable();
  if (state_->disk) state_->disk->flush();
}

void ExecutionCache::close() {
  if (generation_ != fork_generation() || closed_.exchange(true, std::memory_order_acq_rel)) return;
  if (state_->disk) state_->disk->close();
}

}  // namespace prismem::cache
