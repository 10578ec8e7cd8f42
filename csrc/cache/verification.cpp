// Everything in a directory read and checked.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/disk_tier.hpp"
#include "support/error.hpp"

namespace prismem::cache {

VerifyReport DiskTier::verify() {
  if (!directory_) return {};
  try {
    const GuardedDescriptor cleaning = lock_cleaning();
    return verify_all();
  } catch (const SystemFailure& failure) {
    throw CacheError("cannot verify the execution cache '" + path_ + "': " + failure.what());
  }
}

VerifyReport DiskTier::verify_all() {
  VerifyReport report{};
  if (writable()) {
    const Directory::Turn turn(*directory_);
    settle();
    evict_to(UINT64_MAX);  // counts anew: a kill between an entry and the state leaves the sums a little off
  } else if (index()->superseded()) {
    reload();
  }
  struct Listed {
    Location location;
    std::uint64_t hash;
  };
  std::vector<Listed> listed;
  LogState state{};
  bool damaged_slots = false;
  {
    std::shared_lock lock(view_mutex_);
    index_->for_each(
        [&](std::uint64_t, std::uint64_t hash, Location location, const Detail&) { listed.push_back({location, hash}); },
        &damaged_slots);
    if (!index_->state(state)) damaged_slots = true;
  }
  if (damaged_slots) ++report.damaged_index;
  std::sort(listed.begin(), listed.end(), [](const Listed& a, const Listed& b) {
    return std::pair(a.location.segment, a.location.unit) < std::pair(b.location.segment, b.location.unit);
  });
  auto next = listed.begin();
  for (const std::uint64_t number : directory_->segments()) {
    std::shared_ptr<Segment> segment;
    try {
      segment = Segment::open(directory_->fd(), number, segment_bytes_, false);
    } catch (const SystemFailure& failure) {
      if (failure.code() == ENOENT) continue;  // cleared meanwhile
      throw;
    }
    for (; next != listed.end() && next->location.segment < number; ++next) ++report.damaged;  // of a segment that is gone
    if (!segment) ++report.damaged;  // unreadable: once for the segment, once for every entry in it
    // Bytes behind the published end may be cut off by another writer at any moment.
    const std::uint64_t end = number == state.tail_segment ? state.tail_bytes : segment ? segment->file_bytes() : 0;
    std::vector<std::uint64_t> damaged_at;
    for (; next != listed.end() && next->location.segment == number; ++next) {
      Segment::Record record;
      if (!segment) {
        ++report.damaged;
      } else if (!segment->record(offset_of(next->location), record) || !segment->sound(record)) {
        ++report.damaged;
        damaged_at.push_back(offset_of(next->location));
      } else if (entry_hash(record.header.key, stage_seed(record.header.stage)) != next->hash) {
        ++report.damaged_index;
      } else {
        ++report.entries;
        report.bytes += record.value.size();
      }
    }
    if (!segment) continue;
    // Stretches that are no record count where no entry has been counted for them.
    std::uint64_t behind = Segment::kHeaderBytes;
    const auto stretch = [&](std::uint64_t from, std::uint64_t to) {
      if (from == to) return;
      const auto entry = std::lower_bound(damaged_at.begin(), damaged_at.end(), from);
      if (entry == damaged_at.end() || *entry >= to) ++report.damaged;
    };
    segment->scan(Segment::kHeaderBytes, end, [&](std::uint64_t offset, const RecordHeader& header) {
      stretch(behind, offset);
      behind = offset + header.record_bytes();
    });
    stretch(behind, std::max(behind, end));
  }
  report.damaged += static_cast<std::uint64_t>(listed.end() - next);
  if (report.damaged_index > 0 && writable()) {
    try {
      const Directory::Turn turn(*directory_);
      rebuild();
    } catch (const SystemFailure& failure) {
      stop_writing(failure);
    }
  }
  return report;
}

}  // namespace prismem::cache
