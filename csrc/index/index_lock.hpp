// The lock of an index: many readers or one writer.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>

namespace prismem::index {

// Neither side starves: who waits to write keeps later readers behind it. A forked child finds the lock free, or, where another
// thread was writing at that moment, broken for good: lock() and lock_shared() then throw VectorIndexError. Made for
// std::unique_lock and std::shared_lock.
class IndexLock {
 public:
  IndexLock();
  ~IndexLock();
  IndexLock(const IndexLock&) = delete;
  IndexLock& operator=(const IndexLock&) = delete;

  void lock();
  void unlock();
  void lock_shared();
  void unlock_shared();

  // For the handler that runs in a forked child before anything else.
  void start_anew();

 private:
  struct Mutexes {
    std::mutex gate;  // held while one waits for `data`, so that all come in order
    std::shared_mutex data;
  };

  void refuse_broken() const;

  std::optional<Mutexes> mutexes_;
  std::atomic<bool> writing_{false};
  bool broken_ = false;
};

}  // namespace prismem::index
