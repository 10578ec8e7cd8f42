// Eviction and room: entries of least worth leave the index, and the log is cleaned from its oldest segment on.
//
// Cleaning in the order of writing keeps it simple and safe: of an entry's records the newest goes last, so that an index made anew from what
// is left never finds an older value. A live record is appended again at the tail, then published; only when that is on the disk the old
// segment goes. Each step holds the turn for a moment only, and readers do not notice: those that look into the old segment keep its mapping.
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "cache/disk_tier.hpp"
#include "support/error.hpp"

namespace prismem::cache {
namespace {

constexpr std::uint64_t kStepBytes = 512 << 10;

}  // namespace

// The bound holds for segments and index together. Two segments are kept free for the records that cleaning moves.
DiskTier::Room DiskTier::room() const {
  const std::uint64_t taken = index()->bytes() + 2 * segment_bytes_;
  const std::uint64_t budget = disk_bytes_ > taken ? disk_bytes_ - taken : 0;
  return {budget, budget / 8 * 7, budget / 4 * 3};
}

bool DiskTier::wants_cleaning(const Room& room) const {
  const std::uint64_t dead = state_.log_bytes - std::min(state_.log_bytes, state_.live_bytes);
  return state_.log_bytes > room.high || dead > std::max(state_.live_bytes, 4 * segment_bytes_);
}

// While it is held no segment goes.
GuardedDescriptor DiskTier::lock_cleaning() {
  constexpr char kName[] = "cleaning";
  Descriptor file = writable() ? directory_->open_lock(kName) : Descriptor(::openat(directory_->fd(), kName, O_RDONLY | O_CLOEXEC));
  if (!file) return {};  // never cleaned
  GuardedDescriptor guarded(std::move(file));
  while (::flock(guarded.get(), LOCK_EX) != 0) {
    if (errno != EINTR) throw SystemFailure(errno, "cannot lock the cleaning");
  }
  return guarded;
}

// One cleaning of the log. With `everything` all that is in it now is written anew, else it ends when there is room enough.
std::uint64_t DiskTier::run_cycle(bool everything) {
  const GuardedDescriptor cleaning = lock_cleaning();
  std::uint64_t before, last;
  {
    const Directory::Turn turn(*directory_);
    settle();
    before = state_.log_bytes;
    last = state_.tail_segment;
    const Room room = this->room();
    if (!everything && !wants_cleaning(room)) return 0;  // another process was faster
    evict_to(room.low / 8 * 7);
  }
  Emptied emptied;
  for (const std::uint64_t number : directory_->segments()) {
    if (number > last || stopping_) break;
    empty_segment(number, emptied);
    // What was moved must be on the disk before its old place goes. A few segments share the wait for that.
    if (emptied.moved_bytes == 0 || emptied.moved_bytes >= segment_bytes_ / 2) remove_emptied(emptied);
    if (everything) continue;
    const Directory::Turn turn(*directory_);
    settle();
    const std::uint64_t dead = state_.log_bytes - std::min(state_.log_bytes, state_.live_bytes);
    const std::uint64_t goes = std::min(dead, emptied.file_bytes);
    if (state_.log_bytes - goes <= room().low && dead - goes <= std::max(state_.live_bytes / 2, 2 * segment_bytes_)) break;
  }
  remove_emptied(emptied);
  const Directory::Turn turn(*directory_);
  settle();
  return before - std::min(before, state_.log_bytes);
}

// Counts the entries anew, then drops those of least worth until what lives fits.
void DiskTier::evict_to(std::uint64_t live_bytes) {
  struct Candidate {
    double priority;
    std::uint64_t slot, hash;
    Location location;
    std::uint64_t bytes;
  };
  std::vector<Candidate> candidates;
  std::uint64_t live = 0;
  std::set<std::uint64_t> unopened;
  {
    std::shared_lock lock(view_mutex_);
    bool damaged = false;
    index_->for_each(
        [&](std::uint64_t slot, std::uint64_t hash, Location location, const Detail& detail) {
          const std::uint64_t bytes = std::uint64_t{detail.units} * kRecordAlignment;
          candidates.push_back({detail.priority, slot, hash, location, bytes});
          live += bytes;
          if (segments_.find(location.segment) == nullptr) unopened.insert(location.segment);
        },
        &damaged);
  }
  state_.entries = candidates.size();
  state_.live_bytes = live;
  if (live > live_bytes) {
    for (const std::uint64_t number : unopened) open_segment(number);
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.priority != b.priority ? a.priority < b.priority
                                      : std::pair(a.location.segment, a.location.unit) < std::pair(b.location.segment, b.location.unit);
    });
    std::shared_lock lock(view_mutex_);
    for (const Candidate& candidate : candidates) {
      if (state_.live_bytes <= live_bytes) break;
      index_->erase(candidate.slot);
      state_.live_bytes -= candidate.bytes;
      --state_.entries;
      state_.inflation = std::max(state_.inflation, candidate.priority);
      Segment::Record record;
      const Segment* segment = segments_.find(candidate.location.segment);
      if (segment != nullptr && segment->record(offset_of(candidate.location), record)) {
        stages_.intern(record.header.stage).evictions.fetch_add(1, std::memory_order_relaxed);
      }
    }
    inflation_ = state_.inflation;
  }
  save_state();
}

// Moves what lives in a segment to the tail.
void DiskTier::empty_segment(std::uint64_t number, Emptied& emptied) {
  std::shared_ptr<Segment> segment;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> records;  // offset, bytes
  {
    const Directory::Turn turn(*directory_);
    settle();
    if (number == state_.tail_segment) roll();  // from now on it only shrinks
  }
  try {
    segment = Segment::open(directory_->fd(), number, segment_bytes_, false);
  } catch (const SystemFailure& failure) {
    if (failure.code() == ENOENT) return;
    throw;
  }
  const std::uint64_t size = segment ? segment->file_bytes() : 0;
  if (segment) {
    segment->scan(Segment::kHeaderBytes, size, [&](std::uint64_t offset, const RecordHeader& header) {
      if (header.kind == kValueRecord) records.emplace_back(offset, header.record_bytes());
    });
  }
  for (std::size_t next = 0; next < records.size();) {
    if (stopping_) return;
    const Directory::Turn turn(*directory_);
    settle();
    std::deque<Detail> details;  // what moves keeps its priority; the addresses must last until it is published
    for (std::uint64_t bytes = 0; next < records.size() && bytes < kStepBytes; ++next) {
      Segment::Record record;
      if (!segment->record(records[next].first, record)) continue;
      const RecordHeader& header = record.header;
      Stage& stage = stages_.intern(header.stage);
      const std::uint64_t hash = entry_hash(header.key, stage.seed);
      const Location location = location_at(number, records[next].first);
      bool live = false;
      details.emplace_back();
      {
        std::shared_lock lock(view_mutex_);
        MappedIndex::Probe probe = index_->probe(hash);
        Location found;
        while (!live && index_->next(probe, found)) live = found.segment == location.segment && found.unit == location.unit;
        if (live) details.back() = index_->detail(probe.slot);
      }
      if (!live) continue;
      if (!segment->sound(record)) {
        count_damage(stage, location);
        forget(header.stage, header.key, hash, &location);
        continue;
      }
      append({&stage, header.key, record.value, header.cost, header.stored_at, &details.back()}, hash, kValueRecord);
      bytes += records[next].second;
      emptied.moved_bytes += records[next].second;
    }
    write_out();
  }
  emptied.numbers.push_back(number);
  emptied.file_bytes += size;
}

void DiskTier::remove_emptied(Emptied& emptied) {
  if (emptied.numbers.empty()) return;
  std::uint64_t batch;
  {
    std::lock_guard lock(dirty_mutex_);
    batch = ++batches_;
  }
  if (emptied.moved_bytes > 0) sync_through(batch);
  const Directory::Turn turn(*directory_);
  settle();
  for (const std::uint64_t number : emptied.numbers) directory_->remove_segment(number);
  state_.log_bytes -= std::min(state_.log_bytes, emptied.file_bytes);
  save_state();
  {
    std::lock_guard lock(dirty_mutex_);  // a mapping would keep the room taken
    dirty_.erase(std::remove_if(dirty_.begin(), dirty_.end(),
                                [&](const auto& segment) {
                                  return std::find(emptied.numbers.begin(), emptied.numbers.end(), segment->number()) !=
                                         emptied.numbers.end();
                                }),
                 dirty_.end());
  }
  std::unique_lock lock(view_mutex_);
  for (const std::uint64_t number : emptied.numbers) segments_.remove(number);
  emptied = Emptied();
}

std::uint64_t DiskTier::compact() {
  if (!writable()) throw CacheError("the execution cache '" + path_ + "' cannot be compacted: it is not open for writing");
  try {
    return run_cycle(true);
  } catch (const SystemFailure& failure) {
    throw CacheError("cannot compact the execution cache '" + path_ + "': " + failure.what());
  }
}

void DiskTier::wake_compactor() {
  std::lock_guard lock(compactor_mutex_);
  if (compactor_stops_) return;
  compactor_wanted_ = true;
  if (!compactor_.joinable()) compactor_ = std::thread([this] { compactor_loop(); });
  compactor_wakes_.notify_one();
}

void DiskTier::compactor_loop() {
  std::unique_lock lock(compactor_mutex_);
  while (true) {
    compactor_wakes_.wait(lock, [this] { return compactor_wanted_ || compactor_stops_; });
    if (compactor_stops_) return;
    compactor_wanted_ = false;
    lock.unlock();
    try {
      if (writable()) run_cycle(false);
    } catch (const SystemFailure& failure) {
      stop_writing(failure);
    } catch (const CacheError&) {
      // Closed meanwhile.
    }
    lock.lock();
  }
}

}  // namespace prismem::cache
