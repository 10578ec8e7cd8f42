// Batches: appended with one write where possible, then published in the index, then in the state.
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/disk_tier.hpp"
#include "cache/worth.hpp"
#include "support/crc32c.hpp"
#include "support/error.hpp"

namespace prismem::cache {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr int kRoomAttempts = 3;
constexpr std::size_t kAhead = 8;  // entries whose index slots are asked for early

std::uint64_t record_bytes_of(std::size_t stage_bytes, std::size_t value_bytes) {
  return aligned(kFixedHeadBytes + stage_bytes) + aligned(value_bytes);
}

bool has_repeats(std::vector<std::uint64_t> hashes) {
  std::sort(hashes.begin(), hashes.end());
  return std::adjacent_find(hashes.begin(), hashes.end()) != hashes.end();
}

}  // namespace

bool DiskTier::write(const std::vector<Entry>& entries) {
  if (!writable()) return false;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> hashes;
  hashes.reserve(entries.size());
  for (const Entry& entry : entries) {
    bytes += record_bytes_of(entry.stage->name.size(), entry.value.size());
    hashes.push_back(entry_hash(entry.key, entry.stage->seed));
  }
  // An entry that is named twice must see its first value published before the second is compared with what is there.
  const bool repeats = has_repeats(hashes);
  try {
    std::uint64_t batch = 0;
    bool crowded = false;
    for (int attempt = 0; batch == 0; ++attempt) {
      {
        const Directory::Turn turn(*directory_);
        settle();
        const Room room = this->room();
        if (bytes > room.low || attempt == kRoomAttempts) {
          forget_all(entries);
          return false;  // larger than the disk's share, or others fill it as fast as it is cleaned
        }
        if (state_.log_bytes + bytes <= room.budget) {
          const auto index = this->index();
          for (std::size_t i = 0; i < entries.size(); ++i) {
            if (i + kAhead < entries.size()) index->prefetch(hashes[i + kAhead]);
            if (holds_same(entries[i], hashes[i])) continue;
            append(entries[i], hashes[i], kValueRecord);
            if (repeats) write_out();
          }
          write_out();
          crowded = wants_cleaning(room);
          std::lock_guard lock(dirty_mutex_);
          batch = ++batches_;
        }
      }
      if (batch == 0) run_cycle(false);
    }
    if (crowded) wake_compactor();
    if (durable_) sync_through(batch);
    return true;
  } catch (const SystemFailure& failure) {
    stop_writing(failure);
  }
  const Directory::Turn turn(*directory_);
  buffered_ = 0;
  pending_.clear();
  forget_all(entries);
  return false;
}

// So that no older value comes back where the disk has not taken the new one.
void DiskTier::forget_all(const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) forget(entry.stage->name, entry.key, entry_hash(entry.key, entry.stage->seed), nullptr);
}

// Locates, opening the segment where that is needed; `lock`, of the view, is held afterwards.
DiskTier::Look DiskTier::locate_opened(std::string_view stage, const Key& key, std::uint64_t hash, Hit& hit,
                                       std::shared_lock<ViewLock>& lock) {
  lock.lock();
  Look look = locate(stage, key, hash, hit);
  if (look != Look::unopened) return look;
  lock.unlock();
  open_segment(hit.location.segment);
  lock.lock();
  return locate(stage, key, hash, hit);
}

// Whether the entry is there with this value, which then counts as used.
bool DiskTier::holds_same(const Entry& entry, std::uint64_t hash) {
  Hit hit;
  std::shared_lock lock(view_mutex_, std::defer_lock);
  if (locate_opened(entry.stage->name, entry.key, hash, hit, lock) != Look::found) return false;
  if (hit.record.value != entry.value || !hit.segment->sound(hit.record)) return false;
  touch(hit, unix_seconds());
  return true;
}

void DiskTier::append(const Entry& entry, std::uint64_t hash, std::uint8_t kind) {
  const std::string_view stage = entry.stage->name, value = entry.value;
  const std::uint64_t head_bytes = aligned(kFixedHeadBytes + stage.size());
  const std::uint64_t record_bytes = record_bytes_of(stage.size(), value.size());
  const std::uint64_t end = state_.tail_bytes + buffered_;
  if (!tail_ || (end > Segment::kHeaderBytes && end + record_bytes > segment_bytes_)) {
    write_out();
    roll();
  }
  const std::uint32_t seed = tail_->seed();
  const std::uint32_t stored_at = entry.stored_at != 0 ? entry.stored_at : unix_seconds();
  const Pending pending{stage, entry.key, hash, state_.tail_bytes + buffered_, record_bytes, entry.cost, entry.kept};
  if (record_bytes <= kBufferBytes) {
    if (!buffer_) buffer_.reset(new char[2 * kBufferBytes]);
    char* record = buffer_.get() + buffered_;
    const std::uint32_t value_crc = copy_crc32c(record + head_bytes, value.data(), value.size(), seed);
    std::memset(record + head_bytes + value.size(), 0, aligned(value.size()) - value.size());
    write_head(record, kind, stage, entry.key, value.size(), value_crc, entry.cost, stored_at, seed);
    buffered_ += record_bytes;
    if (kind == kValueRecord) pending_.push_back(pending);
    if (buffered_ >= kBufferBytes) write_out();
    return;
  }
  // A large value goes from where it lies.
  write_out();
  char head[kMaxHeadBytes];
  const std::uint32_t value_crc = crc32c(value.data(), value.size(), seed);
  write_head(head, kind, stage, entry.key, value.size(), value_crc, entry.cost, stored_at, seed);
  static char zeros[kRecordAlignment] = {};
  struct iovec pieces[3] = {{head, head_bytes},
                            {const_cast<char*>(value.data()), value.size()},
                            {zeros, static_cast<std::size_t>(aligned(value.size()) - value.size())}};
  tail_->append(pieces, 3, state_.tail_bytes);
  mark_dirty();
  state_.tail_bytes += record_bytes;
  state_.log_bytes += record_bytes;
  publish(pending);
  save_state();
}

void DiskTier::write_out() {
  if (buffered_ == 0) return;
  struct iovec piece{buffer_.get(), buffered_};
  tail_->append(&piece, 1, state_.tail_bytes);
  mark_dirty();
  state_.tail_bytes += buffered_;
  state_.log_bytes += buffered_;
  buffered_ = 0;
  for (const Pending& pending : pending_) publish(pending);
  pending_.clear();
  save_state();
}

void DiskTier::mark_dirty() {
  std::lock_guard lock(dirty_mutex_);
  if (dirty_.empty() || dirty_.back() != tail_) dirty_.push_back(tail_);
}

void DiskTier::publish(const Pending& pending) {
  const Location location = location_at(state_.tail_segment, pending.offset);
  const auto cost = static_cast<double>(pending.cost);
  if (pending.kept == nullptr) state_.inflation += kCreep * worth(cost, pending.record_bytes);
  const Detail detail = pending.kept != nullptr ? *pending.kept
                                                : Detail{priority(state_.inflation, cost, pending.record_bytes),
                                                         record_units(pending.record_bytes), unix_seconds()};
  for (int attempt = 0; attempt < 3; ++attempt) {
    Hit hit;
    std::shared_lock lock(view_mutex_, std::defer_lock);
    if (locate_opened(pending.stage, pending.key, pending.hash, hit, lock) == Look::found) {
      if (hit.location.segment != location.segment || hit.location.unit != location.unit) {
        state_.live_bytes -= hit.record.header.record_bytes();
      } else {
        ++state_.entries;  // published by a writer that was killed before it had saved its state
      }
      index_->replace(hit.slot, pending.hash, location, detail);
      state_.live_bytes += pending.record_bytes;
      return;
    }
    if (index_->insert(pending.hash, location, detail)) {
      ++state_.entries;
      state_.live_bytes += pending.record_bytes;
      return;
    }
    lock.unlock();
    grow_index();
  }
  throw SystemFailure(EIO, "the index of the execution cache takes no further entry");
}

void DiskTier::grow_index() {
  SegmentTable segments;
  {
    std::shared_lock lock(view_mutex_);
    segments = segments_;
  }
  replace_index(std::max<std::uint64_t>(state_.entries * 2, kFirstSlots), index().get(), std::move(segments));
}

void DiskTier::roll() {
  if (tail_) tail_->seal();
  tail_ = Segment::create(directory_->fd(), state_.next_segment, segment_bytes_);
  state_.tail_segment = state_.next_segment++;
  state_.tail_bytes = Segment::kHeaderBytes;
  state_.log_bytes += Segment::kHeaderBytes;
  save_state();
  {
    std::lock_guard lock(dirty_mutex_);
    directory_dirty_ = true;
    dirty_.push_back(tail_);
  }
  std::unique_lock lock(view_mutex_);
  segments_.add(tail_);
}

// Takes the entry, or only this place of it, out of the index.
bool DiskTier::forget(std::string_view stage, const Key& key, std::uint64_t hash, const Location* only) {
  std::shared_lock lock(view_mutex_, std::defer_lock);
  if (only != nullptr) {
    lock.lock();
    MappedIndex::Probe probe = index_->probe(hash);
    Location location;
    while (index_->next(probe, location)) {
      if (location.segment != only->segment || location.unit != only->unit) continue;
      state_.live_bytes -= std::min<std::uint64_t>(state_.live_bytes, std::uint64_t{index_->detail(probe.slot).units} * kRecordAlignment);
      index_->erase(probe.slot);
      --state_.entries;
      index_->set_state(state_);
      return true;
    }
    return false;
  }
  Hit hit;
  if (locate_opened(stage, key, hash, hit, lock) != Look::found) return false;
  state_.live_bytes -= hit.record.header.record_bytes();
  --state_.entries;
  index_->erase(hit.slot);
  index_->set_state(state_);  // not save_state(): the lock is not recursive
  return true;
}

std::uint64_t DiskTier::remove(Stage& stage, const std::vector<Key>& keys) {
  if (!writable()) return 0;
  std::uint64_t removed = 0;
  try {
    const Directory::Turn turn(*directory_);
    settle();
    for (const Key& key : keys) {
      const std::uint64_t hash = entry_hash(key, stage.seed);
      if (!forget(stage.name, key, hash, nullptr)) continue;
      ++removed;
      append({&stage, key, {}, 0.0f, 0}, hash, kTombstoneRecord);
    }
    write_out();
    std::lock_guard lock(dirty_mutex_);
    ++batches_;
  } catch (const SystemFailure& failure) {
    buffered_ = 0;
    pending_.clear();
    stop_writing(failure);
  }
  return removed;
}

void DiskTier::clear() {
  if (!writable()) throw CacheError("the execution cache '" + path_ + "' cannot be cleared: it is not open for writing");
  try {
    const GuardedDescriptor cleaning = lock_cleaning();
    const Directory::Turn turn(*directory_);
    settle();
    const std::vector<std::uint64_t> numbers = directory_->segments();
    tail_.reset();
    LogState empty{};
    empty.next_segment = state_.next_segment;
    state_ = empty;
    replace_index(kFirstSlots, nullptr, SegmentTable());
    for (const std::uint64_t number : numbers) directory_->remove_segment(number);
    std::lock_guard lock(dirty_mutex_);
    dirty_.clear();
  } catch (const SystemFailure& failure) {
    throw CacheError("cannot clear the execution cache '" + path_ + "': " + failure.what());
  }
}

void DiskTier::stop_writing(const SystemFailure& failure) {
  if (!writable_.exchange(false) && directory_) return;
  notice_("the execution cache '" + path_ + "' cannot be written (" + failure.what() +
          "): from now on new values are kept in memory only and end with this process; free space or choose a "
          "writable directory, then open the cache again");
}

// Brings every batch up to this one to the disk. Of threads that come at the same time one syncs for all.
void DiskTier::sync_through(std::uint64_t batch) {
  std::lock_guard sync_lock(sync_mutex_);
  if (synced_batches_ >= batch) return;
  std::vector<std::shared_ptr<Segment>> segments;
  std::uint64_t through;
  bool names;
  {
    std::lock_guard lock(dirty_mutex_);
    segments.swap(dirty_);
    names = std::exchange(directory_dirty_, false);
    through = batches_;
  }
  try {
    for (const auto& segment : segments) segment->sync();
    if (names) sync(directory_->fd());
  } catch (const SystemFailure&) {
    std::lock_guard lock(dirty_mutex_);
    dirty_.insert(dirty_.begin(), segments.begin(), segments.end());
    directory_dirty_ = directory_dirty_ || names;
    throw;
  }
  synced_batches_ = through;
}

}  // namespace prismem::cache
