#include "cache/single_flight.hpp"

#include <chrono>
#include <utility>

#include "support/error.hpp"

namespace prismem::cache {

SingleFlight::Ticket SingleFlight::join(const EntryId& id) {
  const std::thread::id self = std::this_thread::get_id();
  std::lock_guard lock(mutex_);
  auto& flight = flights_[id];
  if (!flight) {
    flight = std::make_shared<Flight>();
    flight->leader = self;
    return {flight, true};
  }
  if (flight->leader == self) {
    throw CacheError("get_or_compute was called for an entry from inside its own compute function: the thread would "
                     "wait for itself; compute the inner value under another key");
  }
  for (std::thread::id leader = flight->leader;;) {
    const auto next = waiting_.find(leader);
    if (next == waiting_.end() || next->second->done) break;
    leader = next->second->leader;
    if (leader == self) {
      throw CacheError("two compute functions wait for each other's entries: the threads would wait for ever; "
                       "request the entries in the same order, or compute one outside of the other");
    }
  }
  waiting_[self] = flight;
  return {flight, false};
}

Value SingleFlight::wait(const Ticket& ticket, const std::function<void()>& on_wait) {
  const std::thread::id self = std::this_thread::get_id();
  Flight& flight = *ticket.flight;
  std::unique_lock lock(mutex_);
  while (!flight.done) {
    const bool landed = flight.landed.wait_for(lock, std::chrono::milliseconds(100), [&] { return flight.done; });
    if (landed || !on_wait) continue;
    lock.unlock();
    try {
      on_wait();
    } catch (...) {
      lock.lock();
      waiting_.erase(self);
      throw;
    }
    lock.lock();
  }
  waiting_.erase(self);
  lock.unlock();
  if (flight.error) std::rethrow_exception(flight.error);
  return flight.value;
}

void SingleFlight::land(const EntryId& id, const Ticket& ticket, Value value, std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  ticket.flight->value = std::move(value);
  ticket.flight->error = std::move(error);
  ticket.flight->done = true;
  flights_.erase(id);
  ticket.flight->landed.notify_all();
}

}  // namespace prismem::cache
