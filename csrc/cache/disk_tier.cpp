#include "cache/disk_tier.hpp"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "cache/worth.hpp"
#include "support/error.hpp"

namespace prismem::cache {
namespace {

constexpr int kAttempts = 8;
constexpr int kReloads = 50;
constexpr std::uint64_t kMaxSegmentBytes = 128ull << 20;
constexpr std::uint64_t kMinSegmentBytes = 64ull << 10;
constexpr std::uint64_t kMinDiskBytes = 1ull << 20;
constexpr std::uint32_t kTouchSeconds = 60;

std::uint64_t segment_room(const Options& options) {
  // A bound on the disk is kept in steps of a segment, so segments are a small part of it.
  const std::uint64_t part = std::max(options.disk_bytes / 16, kMinSegmentBytes);
  return std::max(std::min({options.segment_bytes, kMaxSegmentBytes, part}), std::uint64_t{1} << 12);
}

}  // namespace

std::uint32_t unix_seconds() {
  struct timespec now;
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return static_cast<std::uint32_t>(now.tv_sec);
}

DiskTier::DiskTier(const Options& options, StageTable& stages, Notice notice)
    : path_(*options.directory),
      read_only_(options.read_only),
      durable_(options.durable),
      disk_bytes_(options.disk_bytes),
      segment_bytes_(segment_room(options)),
      stages_(stages),
      notice_(std::move(notice)) {
  if (disk_bytes_ < kMinDiskBytes) {
    throw ArgumentError("disk_bytes must be at least " + std::to_string(kMinDiskBytes) + ", got " + std::to_string(disk_bytes_));
  }
  try {
    directory_ = std::make_unique<Directory>(path_, read_only_);
    writable_ = !read_only_;
  } catch (const SystemFailure& failure) {
    if (!is_unwritable(failure.code()) || read_only_) {
      throw CacheError("cannot open the execution cache '" + path_ + "': " + failure.what());
    }
    stop_writing(failure);
    try {
      directory_ = std::make_unique<Directory>(path_, true);
    } catch (const CacheError&) {
      return;  // nothing there to read either
    } catch (const SystemFailure&) {
      return;
    }
  }
  if (directory_->mended()) damaged_.fetch_add(1, std::memory_order_relaxed);
  if (writable()) {
    try {
      const Directory::Turn turn(*directory_);
      directory_->remove_unfinished();
      settle();
      return;
    } catch (const SystemFailure& failure) {
      stop_writing(failure);
    }
  }
  try {
    reload();
  } catch (const SystemFailure& failure) {
    throw CacheError("cannot read the execution cache '" + path_ + "': " + failure.what());
  }
}

DiskTier::~DiskTier() { stop_compactor(); }

void DiskTier::stop_compactor() {
  stopping_ = true;
  {
    std::lock_guard lock(compactor_mutex_);
    compactor_stops_ = true;
  }
  compactor_wakes_.notify_all();
  if (compactor_.joinable()) compactor_.join();
}

DiskTier::Look DiskTier::locate(std::string_view stage, const Key& key, std::uint64_t hash, Hit& hit) const {
  if (index_->superseded()) return Look::superseded;
  index_->prefetch(hash);
  MappedIndex::Probe probe = index_->probe(hash);
  while (index_->next(probe, hit.location)) {
    hit.segment = segments_.find(hit.location.segment);
    if (hit.segment == nullptr) return Look::unopened;
    if (!hit.segment->record(offset_of(hit.location), hit.record)) return Look::damaged_record;
    const RecordHeader& header = hit.record.header;
    if (header.kind != kValueRecord || header.key != key || header.stage != stage) continue;
    hit.slot = probe.slot;
    return Look::found;
  }
  return probe.damaged ? Look::damaged_slot : Look::absent;
}

bool DiskTier::mend(const Name& name, Look look, const Hit& hit, int attempt) {
  if (stopping_) return false;
  switch (look) {
    case Look::found:
      return false;
    case Look::absent:
      if (private_) return refresh_private();
      if (attempt > 0 || index()->bears_name(directory_->fd())) return false;
      reload();
      return true;
    case Look::superseded:
      reload();
      return true;
    case Look::unopened:
      // Compacted away since the index was looked at, or lost: the first gets another place, the second is damage.
      if (open_segment(hit.location.segment) || attempt < 2) return true;
      break;
    case Look::damaged_record:
      break;
    case Look::damaged_slot:
      damaged_.fetch_add(1, std::memory_order_relaxed);
      if (!writable()) {
        go_private();
        return true;
      }
      try {
        const Directory::Turn turn(*directory_);
        rebuild();
      } catch (const SystemFailure& failure) {
        stop_writing(failure);
        go_private();
      }
      return true;
  }
  count_damage(name.stage, hit.location);
  if (!writable()) return false;
  try {
    const Directory::Turn turn(*directory_);
    settle();
    forget(name.stage.name, name.key, name.hash, &hit.location);
  } catch (const SystemFailure& failure) {
    stop_writing(failure);
  }
  return false;
}

// Hands what is found to `take`, with the view's lock; false of it means that the record is damaged.
template <class Take>
bool DiskTier::find(const Name& name, Take take) {
  if (!directory_) return false;
  try {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      Hit hit;
      Look look;
      {
        std::shared_lock lock(view_mutex_);
        look = locate(name.stage.name, name.key, name.hash, hit);
        if (look == Look::found) {
          if (take(hit)) return true;
          look = Look::damaged_record;
        }
      }
      if (!mend(name, look, hit, attempt)) return false;
    }
  } catch (const SystemFailure& failure) {
    throw CacheError("cannot read the execution cache '" + path_ + "': " + failure.what());
  }
  return false;
}

bool DiskTier::read(const Name& name, ValueSink& sink, double& cost) {
  return find(name, [&](const Hit& hit) {
    if (!hit.segment->sound(hit.record)) return false;
    touch(hit, unix_seconds());
    cost = static_cast<double>(hit.record.header.cost);
    sink.take(hit.record.value);
    return true;
  });
}

bool DiskTier::contains(const Name& name) {
  return find(name, [](const Hit&) { return true; });
}

void DiskTier::touch(const Hit& hit, std::uint32_t now) const {
  const Detail before = index_->detail(hit.slot);
  const RecordHeader& header = hit.record.header;
  if (inflation_read_at_.load(std::memory_order_relaxed) != now) {
    inflation_read_at_.store(now, std::memory_order_relaxed);
    LogState state{};  // others may have put meanwhile
    if (index_->state(state)) inflation_.store(state.inflation, std::memory_order_relaxed);
  }
  const double renewed =
      priority(inflation_.load(std::memory_order_relaxed), static_cast<double>(header.cost), header.record_bytes());
  // Most uses come soon after another; they write nothing.
  if (renewed > before.priority || now - before.used_at >= kTouchSeconds) {
    index_->touch(hit.slot, std::max(renewed, before.priority), now);
  }
}

bool DiskTier::open_segment(std::uint64_t number) {
  std::shared_ptr<Segment> segment;
  try {
    segment = Segment::open(directory_->fd(), number, segment_bytes_, false);
  } catch (const SystemFailure&) {
    return false;
  }
  if (!segment) return false;
  std::unique_lock lock(view_mutex_);
  // Mappings of segments that were compacted away would keep their room on the disk taken.
  while (segments_.first() != 0 && !directory_->has_segment(segments_.first())) segments_.remove(segments_.first());
  if (segments_.find(number) == nullptr) segments_.add(std::move(segment));
  return true;
}

void DiskTier::reload() {
  if (reload_live()) return;
  if (!writable()) {
    go_private();
    return;
  }
  const Directory::Turn turn(*directory_);
  settle();
}

bool DiskTier::reload_live() {
  for (int attempt = 0; attempt < kReloads; ++attempt) {
    std::unique_ptr<MappedIndex> index = MappedIndex::open(directory_->fd(), writable());
    LogState state{};
    if (!index || !index->trusted() || !index->state(state)) break;
    if (!index->superseded()) {
      std::unique_lock lock(view_mutex_);
      if (index_ && !private_ && !index_->superseded() && index_->bears_name(directory_->fd())) return true;  // another thread was faster
      if (index->superseded()) continue;
      index_ = std::move(index);
      segments_.clear();
      private_ = false;
      scanned_ends_.clear();
      inflation_ = state.inflation;
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the new one is about to get the name
  }
  return false;
}

std::shared_ptr<MappedIndex> DiskTier::index() const {
  std::shared_lock lock(view_mutex_);
  return index_;
}

void DiskTier::install(std::shared_ptr<MappedIndex> index, SegmentTable segments) {
  std::unique_lock lock(view_mutex_);
  index_ = std::move(index);
  segments_ = std::move(segments);
  private_ = false;
  scanned_ends_.clear();
}

void DiskTier::count_damage(Stage& stage, Location location) {
  const std::uint64_t place = (static_cast<std::uint64_t>(location.segment) << 32) | location.unit;
  std::lock_guard lock(damage_mutex_);
  if (damaged_places_.insert(place).second) stage.damaged.fetch_add(1, std::memory_order_relaxed);
}

std::vector<EntryInfo> DiskTier::entries(const std::string_view* stage) {
  std::vector<EntryInfo> result;
  if (!directory_) return result;
  std::set<std::uint64_t> unopened;
  for (int attempt = 0; attempt < 3; ++attempt) {
    result.clear();
    bool superseded;
    {
      std::shared_lock lock(view_mutex_);
      superseded = index_->superseded();
      bool damaged = false;
      index_->for_each(
          [&](std::uint64_t, std::uint64_t, Location location, const Detail& detail) {
            const Segment* segment = segments_.find(location.segment);
            Segment::Record record;
            if (segment == nullptr) {
              unopened.insert(location.segment);
            } else if (segment->record(offset_of(location), record) && record.header.kind == kValueRecord) {
              const RecordHeader& header = record.header;
              if (stage != nullptr && header.stage != *stage) return;
              result.push_back({std::string(header.stage), header.key, header.value_bytes, static_cast<double>(header.cost),
                                header.stored_at, detail.used_at});
            }
          },
          &damaged);
    }
    if (superseded) reload();
    if (!superseded && unopened.empty()) break;
    for (const std::uint64_t number : unopened) open_segment(number);
    unopened.clear();
  }
  std::sort(result.begin(), result.end(), [](const EntryInfo& a, const EntryInfo& b) {
    return a.stage != b.stage ? a.stage < b.stage : a.key < b.key;
  });
  return result;
}

void DiskTier::add_stats(CacheStats& stats) {
  if (!directory_) return;
  if (index()->superseded()) reload();
  std::shared_lock lock(view_mutex_);
  LogState state{};
  if (index_->state(state)) {
    stats.entries = state.entries;
    stats.live_bytes = state.live_bytes;
    stats.disk_bytes = state.log_bytes;
  }
  stats.index_bytes = private_ ? 0 : index_->bytes();
  stats.segments = directory_->segments().size();
}

void DiskTier::flush() {
  std::uint64_t batch;
  {
    std::lock_guard lock(dirty_mutex_);
    batch = batches_;
  }
  try {
    sync_through(batch);
  } catch (const SystemFailure& failure) {
    throw CacheError("cannot flush the execution cache '" + path_ + "': " + failure.what());
  }
}

void DiskTier::close() {
  stop_compactor();
  if (!directory_) return;
  const bool was_writable = writable_.exchange(false);
  try {
    flush();
    if (was_writable) {
      const Directory::Turn turn(*directory_);
      closed_ = true;
      tail_.reset();
      const auto index = this->index();
      if (directory_->alone() && !index->superseded()) index->mark_clean();
    }
  } catch (...) {
    directory_->leave();
    throw;
  }
  directory_->leave();
  std::unique_lock lock(view_mutex_);
  index_ = MappedIndex::in_memory(4);
  segments_.clear();
}

}  // namespace prismem::cache
