// Leases: who computes an entry. Among all threads and processes that ask for the same entry one holds its lease; the
// others wait, and then find the value.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "support/file.hpp"

namespace prismem::cache {

// A lease is taken in two steps: among the threads of this process, who queue for it in the order in which they came, then
// among processes, as a lock on one byte of a file (an open-file-description lock on byte hash >> 1). The system gives the
// byte back when its process ends, however it ends. Leases are by byte: two hashes that differ in the lowest bit share one.
//
// No two callers wait for each other. Who waits for a byte holds only higher ones of the same call, since bytes are taken in
// falling order and a thread that holds a lease from an earlier call, of any Leases object, never waits at all. So a chain
// of waiting threads falls, across processes too, and ends at one that is working.
class Leases {
 public:
  // Without a file, or on a system or file system without such locks, leases hold within this process.
  explicit Leases(Descriptor flights_file);
  ~Leases();
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  // Waits until the caller holds all of the hashes and returns those it holds, in ascending order. A thread that holds a
  // lease already does not wait: what it cannot have at once, or holds already, is left out. `on_wait` runs about ten times
  // a second while waiting, without any mutex held; what it throws ends the wait, and nothing of this call is held then.
  // `waited` (may be null) tells whether there was anything to wait for.
  std::vector<std::uint64_t> acquire(std::vector<std::uint64_t> hashes, const std::function<void()>& on_wait, bool* waited);
  // Gives back what acquire() returned; any thread may.
  void release(const std::vector<std::uint64_t>& held);

 private:
  using Count = std::shared_ptr<std::atomic<std::uint64_t>>;  // of the leases that a thread holds
  struct Waiter {
    Count count;
    bool has = false;
    std::condition_variable granted;
  };
  struct Lease {
    Count count;  // of its holder
    std::deque<Waiter*> waiters;
  };
  struct Wait;

  static const Count& own_count();
  bool take_here(std::uint64_t byte, Wait& wait);
  bool take_file(std::uint64_t byte, Wait& wait);
  // Gives the lease to the first thread that waits for it; needs the mutex.
  void pass_on(std::uint64_t byte);

  std::unique_ptr<Descriptor> file_;
  const std::uint64_t generation_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Lease> leases_;  // by byte
};

}  // namespace prismem::cache
