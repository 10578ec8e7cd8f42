// What look-ups work on: the index and the mapped segments, behind a lock that does not let readers starve a change.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cache/mapped_index.hpp"
#include "cache/segment.hpp"

namespace prismem::cache {

inline std::uint64_t offset_of(const Location& location) { return std::uint64_t{location.unit} * kRecordAlignment; }

inline Location location_at(std::uint64_t segment, std::uint64_t offset) {
  return {static_cast<std::uint32_t>(segment), static_cast<std::uint32_t>(offset / kRecordAlignment)};
}

// The length of a record as details hold it: in alignments, at most what fits.
inline std::uint32_t record_units(std::uint64_t record_bytes) {
  const std::uint64_t units = record_bytes / kRecordAlignment;
  return units > UINT32_MAX ? UINT32_MAX : static_cast<std::uint32_t>(units);
}

// Coarse: good to a few milliseconds.
std::uint32_t unix_seconds();

// Asks for the cache lines of some bytes before they are needed.
inline void fetch(const char* bytes, std::size_t size) {
  constexpr std::size_t kLine = 64;
  for (std::size_t line = 0; line < size; line += kLine) __builtin_prefetch(bytes + line);
}

// A reader-writer lock that a waiting writer gets next, with the names that std::shared_lock and std::unique_lock want. Not recursive.
class ViewLock {
 public:
  ViewLock() {
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    pthread_rwlock_init(&lock_, &attributes);
    pthread_rwlockattr_destroy(&attributes);
  }
  ~ViewLock() { pthread_rwlock_destroy(&lock_); }
  ViewLock(const ViewLock&) = delete;
  ViewLock& operator=(const ViewLock&) = delete;

  void lock() { pthread_rwlock_wrlock(&lock_); }
  void unlock() { pthread_rwlock_unlock(&lock_); }
  void lock_shared() { pthread_rwlock_rdlock(&lock_); }
  void unlock_shared() { pthread_rwlock_unlock(&lock_); }

 private:
  pthread_rwlock_t lock_;
};

// The open segments by number. Numbers only grow, and old ones go first, so a row of pointers does.
class SegmentTable {
 public:
  Segment* find(std::uint64_t number) const {
    const std::uint64_t place = number - first_;
    return place < segments_.size() ? segments_[place].get() : nullptr;
  }

  void add(std::shared_ptr<Segment> segment) {
    const std::uint64_t number = segment->number();
    if (segments_.empty()) first_ = number;
    if (number < first_) {
      segments_.insert(segments_.begin(), first_ - number, nullptr);
      first_ = number;
    }
    if (number - first_ >= segments_.size()) segments_.resize(number - first_ + 1);
    segments_[number - first_] = std::move(segment);
  }

  void remove(std::uint64_t number) {
    if (number - first_ < segments_.size()) segments_[number - first_].reset();
    std::size_t gone = 0;
    while (gone < segments_.size() && !segments_[gone]) ++gone;
    segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(gone));
    first_ += gone;
  }

  // The lowest number; 0 when there is none.
  std::uint64_t first() const { return segments_.empty() ? 0 : first_; }
  void clear() { segments_.clear(); }

 private:
  std::uint64_t first_ = 1;
  std::vector<std::shared_ptr<Segment>> segments_;
};

}  // namespace prismem::cache
