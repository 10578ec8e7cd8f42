// What a kill, a loss of power or damage leaves, and how it is brought in order: the segments are the truth, the index is made from them.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/disk_tier.hpp"
#include "cache/worth.hpp"
#include "support/error.hpp"

namespace prismem::cache {
void DiskTier::scan_segment(Scanned& scanned, const Segment& segment, bool own_turn) {
  const auto take = [&](std::uint64_t offset, const RecordHeader& header) {
    if (header.kind != kValueRecord && header.kind != kTombstoneRecord) return;
    const std::uint64_t hash = entry_hash(header.key, stage_seed(header.stage));
    const Location location = location_at(segment.number(), offset);
    const Detail detail{priority(scanned.state.inflation, static_cast<double>(header.cost), header.record_bytes()),
                        record_units(header.record_bytes()), header.stored_at};
    LogState& state = scanned.state;
    MappedIndex::Probe probe = scanned.index->probe(hash);
    Location older;
    while (scanned.index->next(probe, older)) {
      const Segment* place = older.segment == segment.number() ? &segment : scanned.segments.find(older.segment);
      Segment::Record record;
      if (place == nullptr || !place->record(offset_of(older), record)) continue;
      if (record.header.key != header.key || record.header.stage != header.stage) continue;
      state.live_bytes -= record.header.record_bytes();
      if (header.kind == kTombstoneRecord) {
        scanned.index->erase(probe.slot);
        --state.entries;
      } else {
        scanned.index->replace(probe.slot, hash, location, detail);
        state.live_bytes += header.record_bytes();
      }
      return;
    }
    if (header.kind == kTombstoneRecord) return;
    while (!scanned.index->insert(hash, location, detail)) {
      auto larger = MappedIndex::in_memory(scanned.index->slots() * 2);
      scanned.index->copy_into(*larger);
      scanned.index = std::move(larger);
    }
    ++state.entries;
    state.live_bytes += header.record_bytes();
  };
  const std::uint64_t size = segment.file_bytes();
  Scan scan;
  if (own_turn) {
    scan = segment.scan(Segment::kHeaderBytes, size, take);
  } else {
    // A writer may cut the end of the file at this moment; a copy does not mind.
    std::string copy(size, '\0');
    const Descriptor file(::openat(directory_->fd(), segment_name(segment.number()).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) throw SystemFailure(errno, "cannot open " + segment_name(segment.number()));
    copy.resize(read_at(file.get(), copy.data(), copy.size(), 0));
    scan = scan_records(copy, segment.seed(), Segment::kHeaderBytes, take);
  }
  damaged_.fetch_add(scan.damaged, std::memory_order_relaxed);
  scanned.ends[segment.number()] = scan.end;
  scanned.last_torn = scan.torn;
}

DiskTier::Scanned DiskTier::scan_all(bool own_turn) {
  Scanned scanned;
  scanned.index = MappedIndex::in_memory(kFirstSlots);
  scanned.state.inflation = inflation_;
  for (const std::uint64_t number : directory_->segments()) {
    scanned.state.next_segment = number + 1;
    scanned.last_torn = true;  // so that nothing is appended to an unreadable one
    scanned.ends[number] = 0;
    try {
      std::shared_ptr<Segment> segment = Segment::open(directory_->fd(), number, segment_bytes_, false);
      if (!segment) {
        damaged_.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
      scan_segment(scanned, *segment, own_turn);
      scanned.state.log_bytes += segment->file_bytes();
      scanned.segments.add(std::move(segment));
    } catch (const SystemFailure& failure) {
      if (failure.code() != ENOENT) throw;  // else compacted away meanwhile
    }
  }
  if (scanned.state.next_segment == 0) scanned.state.next_segment = 1;
  return scanned;
}

void DiskTier::go_private() {
  Scanned scanned = scan_all(false);
  scanned.index->set_state(scanned.state);
  std::unique_lock lock(view_mutex_);
  index_ = std::move(scanned.index);
  segments_ = std::move(scanned.segments);
  scanned_ends_ = std::move(scanned.ends);
  private_ = true;
}

bool DiskTier::refresh_private() {
  try {
    auto index = MappedIndex::open(directory_->fd(), false);
    LogState state{};
    if (index && index->trusted() && index->state(state) && !index->superseded() && state.next_segment > 0) {
      inflation_ = state.inflation;
      install(std::move(index), SegmentTable());
      return true;
    }
    bool grown = false;
    {
      std::shared_lock lock(view_mutex_);
      const std::uint64_t last = scanned_ends_.empty() ? 0 : scanned_ends_.rbegin()->first;
      const Segment* segment = segments_.find(last);
      grown = (segment != nullptr && segment->file_bytes() > scanned_ends_.at(last)) || directory_->has_segment(last + 1);
    }
    if (!grown) return false;
    const std::uint64_t before = damaged();
    go_private();
    damaged_.store(before, std::memory_order_relaxed);  // what was damaged is known already
    return true;
  } catch (const SystemFailure&) {
    return false;  // what cannot be seen now is a miss, not an error
  }
}

void DiskTier::rebuild() {
  Scanned scanned = scan_all(true);
  LogState& state = scanned.state;
  const std::uint64_t last = scanned.ends.empty() ? 0 : scanned.ends.rbegin()->first;
  const std::uint64_t end = scanned.ends.empty() ? 0 : scanned.ends.rbegin()->second;
  tail_.reset();
  if (last != 0 && end >= Segment::kHeaderBytes) {
    tail_ = Segment::open(directory_->fd(), last, segment_bytes_, true);
    if (scanned.last_torn && tail_) {
      state.log_bytes -= tail_->file_bytes() - end;
      tail_->cut(end);
    }
  }
  state.tail_segment = tail_ ? last : 0;
  state.tail_bytes = tail_ ? end : 0;
  state_ = state;
  if (tail_) scanned.segments.add(tail_);
  replace_index(std::max(kFirstSlots, state.entries * 2), scanned.index.get(), std::move(scanned.segments));
}

// A larger index, or one made anew, with the entries of `source` (null: none).
void DiskTier::replace_index(std::uint64_t slots, const MappedIndex* source, SegmentTable segments) {
  // Marked as superseded is what bears the name: other processes may be looking at it, whatever this one does.
  const std::unique_ptr<MappedIndex> old = MappedIndex::open(directory_->fd(), true);
  auto fresh_index = MappedIndex::create(
      directory_->fd(), slots,
      [&](MappedIndex& fresh) {
        if (source != nullptr) source->copy_into(fresh);
        fresh.set_state(state_);
      },
      old.get());
  fresh_index->begin_writing();
  install(std::move(fresh_index), std::move(segments));
}

void DiskTier::settle() {
  if (closed_) throw CacheError("the execution cache '" + path_ + "' was closed while it was being written");
  std::shared_ptr<MappedIndex> index;
  {
    std::shared_lock lock(view_mutex_);
    if (!private_) index = index_;
  }
  if (!index || index->superseded() || !index->bears_name(directory_->fd())) {
    index = MappedIndex::open(directory_->fd(), true);
    if (!index || !index->trusted()) {
      rebuild();
      return;
    }
    index->begin_writing();
    install(index, SegmentTable());
  }
  if (!index->state(state_)) {
    damaged_.fetch_add(1, std::memory_order_relaxed);
    rebuild();
    return;
  }
  inflation_ = state_.inflation;
  index->begin_writing();
  if (state_.tail_segment == 0) {
    tail_.reset();
    return;
  }
  if (!tail_ || tail_->number() != state_.tail_segment) {
    tail_.reset();
    try {
      tail_ = Segment::open(directory_->fd(), state_.tail_segment, segment_bytes_, true);
    } catch (const SystemFailure& failure) {
      if (failure.code() != ENOENT) throw;
    }
    if (!tail_) {
      rebuild();
      return;
    }
    std::unique_lock lock(view_mutex_);
    segments_.add(tail_);
  }
  const std::uint64_t size = tail_->file_bytes();
  if (size > state_.tail_bytes) {
    adopt_tail();
  } else if (size < state_.tail_bytes) {
    damaged_.fetch_add(1, std::memory_order_relaxed);
    rebuild();
  }
}

// Behind the tail lies what a writer appended that was killed before it had published it: whole records are kept, a torn one is cut.
void DiskTier::adopt_tail() {
  const std::uint64_t size = tail_->file_bytes();
  std::vector<std::pair<std::uint64_t, RecordHeader>> records;
  const Segment::Scan scan = tail_->scan(state_.tail_bytes, size, [&](std::uint64_t offset, const RecordHeader& header) {
    Segment::Record record;
    if (tail_->record(offset, record) && tail_->sound(record)) records.emplace_back(offset, header);
  });
  if (scan.end < size) tail_->cut(scan.end);
  state_.log_bytes += scan.end - state_.tail_bytes;
  state_.tail_bytes = scan.end;
  for (const auto& [offset, header] : records) {
    const std::uint64_t hash = entry_hash(header.key, stage_seed(header.stage));
    if (header.kind == kTombstoneRecord) {
      forget(header.stage, header.key, hash, nullptr);
    } else if (header.kind == kValueRecord) {
      publish({header.stage, header.key, hash, offset, header.record_bytes(), header.cost});
    }
  }
  save_state();
}

}  // namespace prismem::cache
