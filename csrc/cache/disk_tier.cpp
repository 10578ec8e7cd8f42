#include "cache/disk_tier.hpp"

#include <algorithm>
#include <utility>

#include "support/error.hpp"

namespace prismem::cache {

DiskTier::DiskTier(std::string path, bool read_only, std::uint64_t segment_bytes, StageTable& stages, Notice notice)
    : path_(std::move(path)), segment_bytes_(segment_bytes), stages_(stages), notice_(std::move(notice)) {
  try {
    directory_ = std::make_unique<Directory>(path_, read_only);
    writable_ = !read_only;
  } catch (const SystemFailure& failure) {
    if (!is_unwritable(failure.code()) || read_only) {
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
  try {
    open_all();
  } catch (const SystemFailure& failure) {
    throw CacheError("cannot read the execution cache '" + path_ + "': " + failure.what());
  }
}

void DiskTier::open_all() {
  if (directory_->mended()) damaged_.fetch_add(1, std::memory_order_relaxed);
  if (writable()) directory_->remove_unfinished();
  const std::vector<std::uint64_t> numbers = directory_->segments();
  for (const std::uint64_t number : numbers) {
    const bool last = number == numbers.back();
    if (!load(number, last && writable()).torn || !last || !writable()) continue;
    try {
      segments_.back()->cut_tail();
    } catch (const SystemFailure& failure) {
      stop_writing(failure);
    }
  }
}

Segment::Scan DiskTier::load(std::uint64_t number, bool for_appending) {
  auto segment = Segment::open(directory_->fd(), number, for_appending);
  if (!segment) {
    unreadable_.insert(number);
    damaged_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  {
    std::lock_guard lock(index_mutex_);
    segments_.push_back(std::move(segment));
  }
  return scan_last();
}

Segment::Scan DiskTier::scan_last() {
  const auto position = static_cast<std::uint32_t>(segments_.size() - 1);
  const Segment::Scan result = segments_.back()->scan([&](const RecordHeader& header, const Place& place) {
    if (header.kind != kValueRecord) return;
    const EntryId id{header.key, stages_.intern(header.stage).id};
    std::lock_guard lock(index_mutex_);
    index_[id] = Location{position, place};
  });
  damaged_.fetch_add(result.damaged, std::memory_order_relaxed);
  return result;
}

std::uint64_t DiskTier::last_number() const {
  const std::uint64_t readable = segments_.empty() ? 0 : segments_.back()->number();
  return unreadable_.empty() ? readable : std::max(readable, *unreadable_.rbegin());
}

bool DiskTier::find(const EntryId& id, Location& location, std::shared_ptr<Segment>& segment) {
  std::lock_guard lock(index_mutex_);
  const auto found = index_.find(id);
  if (found == index_.end()) return false;
  location = found->second;
  segment = segments_[location.segment];
  return true;
}

bool DiskTier::read(const EntryId& id, std::string& value) {
  if (!directory_) return false;
  Location location;
  std::shared_ptr<Segment> segment;
  if (!find(id, location, segment) && !(refresh() && find(id, location, segment))) return false;
  Stage& stage = stages_.at(id.stage);
  if (segment->read(location.place, stage.name, id.key, value)) return true;
  stage.damaged.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(index_mutex_);
  index_.erase(id);
  return false;
}

bool DiskTier::refresh() {
  if (writable()) return false;  // the only writer knows all there is
  std::lock_guard lock(file_mutex_);
  bool changed = scan_grown();
  try {
    const std::uint64_t last = last_number();
    if (!directory_->has_segment(last + 1)) return changed;
    // The last segment may have grown between the look above and the making of the one behind it.
    changed = scan_grown() || changed;
    for (const std::uint64_t number : directory_->segments()) {
      if (number <= last) continue;
      load(number, false);
      changed = true;
    }
  } catch (const SystemFailure&) {
    return changed;  // what cannot be seen now is a miss, not an error
  }
  return changed;
}

bool DiskTier::scan_grown() {
  try {
    if (segments_.empty() || !segments_.back()->grown()) return false;
    scan_last();
    return true;
  } catch (const SystemFailure&) {
    return false;
  }
}

void DiskTier::write(const EntryId& id, std::string_view value) {
  Location location;
  std::shared_ptr<Segment> segment;
  const bool known = find(id, location, segment);
  const Stage& stage = stages_.at(id.stage);
  if (known && location.place.value_bytes == value.size()) {
    std::string stored;
    if (segment->read(location.place, stage.name, id.key, stored) && stored == value) return;
  }
  if (append(id, stage, value)) return;
  std::lock_guard lock(index_mutex_);
  index_.erase(id);
}

bool DiskTier::append(const EntryId& id, const Stage& stage, std::string_view value) {
  std::lock_guard lock(file_mutex_);
  if (closed_) throw CacheError("the execution cache '" + path_ + "' was closed while a value was put");
  if (!writable()) return false;
  try {
    Segment& segment = segment_for(aligned(kRecordHeaderBytes + stage.name.size()) + aligned(value.size()));
    const Place place = segment.append(stage.name, id.key, value);
    std::lock_guard index_lock(index_mutex_);
    index_[id] = Location{static_cast<std::uint32_t>(segments_.size() - 1), place};
    return true;
  } catch (const SystemFailure& failure) {
    stop_writing(failure);
    return false;
  }
}

Segment& DiskTier::segment_for(std::uint64_t record_bytes) {
  const std::uint64_t last = last_number();
  const bool appendable = !segments_.empty() && segments_.back()->number() == last;
  const std::uint64_t end = appendable ? segments_.back()->end() : 0;
  // A record larger than a segment gets one of its own.
  if (!appendable || (end > Segment::kHeaderBytes && end + record_bytes > segment_bytes_)) {
    auto segment = Segment::create(directory_->fd(), last + 1);
    std::lock_guard lock(index_mutex_);
    segments_.push_back(std::move(segment));
  }
  if (unsynced_.empty() || unsynced_.back() != segments_.back()) unsynced_.push_back(segments_.back());
  return *segments_.back();
}

void DiskTier::stop_writing(const SystemFailure& failure) {
  writable_ = false;
  notice_("the execution cache '" + path_ + "' cannot be written (" + failure.what() +
          "): from now on new values are kept in memory only and end with this process; free space or choose a "
          "writable directory, then open the cache again");
}

void DiskTier::flush() {
  std::lock_guard lock(file_mutex_);
  sync_all();
}

void DiskTier::sync_all() {
  try {
    if (unsynced_.empty()) return;
    sync(directory_->fd());
    for (; !unsynced_.empty(); unsynced_.pop_back()) unsynced_.back()->sync();
  } catch (const SystemFailure& failure) {
    throw CacheError("cannot flush the execution cache '" + path_ + "': " + failure.what());
  }
}

void DiskTier::close() {
  std::lock_guard lock(file_mutex_);
  closed_ = true;
  try {
    sync_all();
  } catch (...) {
    if (directory_) directory_->unlock();
    throw;
  }
  if (directory_) directory_->unlock();
}

std::size_t DiskTier::entries() const {
  std::lock_guard lock(index_mutex_);
  return index_.size();
}

}  // namespace prismem::cache
