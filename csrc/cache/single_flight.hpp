// Single flight: of all threads that miss the same entry one computes, the others wait for its outcome.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "cache/key.hpp"
#include "cache/memory_tier.hpp"

namespace prismem::cache {

class SingleFlight {
 public:
  class Flight {
    friend class SingleFlight;
    std::thread::id leader;
    std::condition_variable landed;
    bool done = false;
    Value value;               // set when the leader succeeded
    std::exception_ptr error;  // set when it failed
  };
  struct Ticket {
    std::shared_ptr<Flight> flight;
    bool leads;
  };

  // Joins the flight of `id`, leading it when there is none. CacheError when waiting could never end: the calling
  // thread leads this flight itself, or its leader waits (through others, perhaps) for the calling thread.
  Ticket join(const EntryId& id);
  // For followers: blocks until the flight has landed, then returns its value or rethrows its error. `on_wait` runs
  // about ten times a second without any lock held; what it throws ends the wait.
  Value wait(const Ticket& ticket, const std::function<void()>& on_wait);
  // For the leader, exactly once: gives every follower the outcome.
  void land(const EntryId& id, const Ticket& ticket, Value value, std::exception_ptr error);

 private:
  std::mutex mutex_;
  std::unordered_map<EntryId, std::shared_ptr<Flight>, EntryHash> flights_;
  std::unordered_map<std::thread::id, std::shared_ptr<Flight>> waiting_;  // what each blocked thread waits for
};

}  // namespace prismem::cache
