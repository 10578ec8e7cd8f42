#include "cache/leases.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "cache/fork_guard.hpp"

namespace prismem::cache {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kNoticeEvery{100};
constexpr std::chrono::milliseconds kLongestPause{25};

std::uint64_t byte_of(std::uint64_t hash) { return hash >> 1; }

// Locks or unlocks a byte of the file; false: another process has it. Where the system has no such locks, or no more of
// them, the answer is true: the lease then holds within this process.
bool lock_byte(int file, std::uint64_t byte, short kind) {
#ifdef F_OFD_SETLK
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  while (::fcntl(file, F_OFD_SETLK, &lock) != 0) {
    if (errno == EINTR) continue;
    return errno != EAGAIN && errno != EACCES;
  }
#else
  (void)file, (void)byte, (void)kind;
#endif
  return true;
}

}  // namespace

// One call's waiting.
struct Leases::Wait {
  const std::function<void()>& on_wait;
  const bool allowed;
  bool waited = false;
  Clock::time_point notice = Clock::time_point::max();  // when on_wait is due

  void begin() {
    if (!waited) notice = Clock::now() + kNoticeEvery;
    waited = true;
  }
  void tell() {
    if (Clock::now() < notice) return;
    if (on_wait) on_wait();
    notice = Clock::now() + kNoticeEvery;
  }
};

Leases::Leases(Descriptor flights_file) : file_(std::make_unique<Descriptor>(std::move(flights_file))), generation_(fork_generation()) {
  if (*file_) close_in_children(file_->get());
}

Leases::~Leases() {
  for (const auto& lease : leases_) --*lease.second.count;  // their threads may wait elsewhere again
  if (generation_ != fork_generation()) {
    // This is a forked child: the descriptor was closed at the fork, and its number may be another file's by now.
    (void)file_.release();
  } else if (*file_) {
    forget_in_children(file_->get());
  }
}

const Leases::Count& Leases::own_count() {
  static thread_local Count count;
  static thread_local std::uint64_t generation = 0;
  // A forked child begins anew: the leases of its parent are none of its own.
  if (!count || generation != fork_generation()) {
    count = std::make_shared<std::atomic<std::uint64_t>>(0);
    generation = fork_generation();
  }
  return count;
}

std::vector<std::uint64_t> Leases::acquire(std::vector<std::uint64_t> hashes, const std::function<void()>& on_wait, bool* waited) {
  // Falling, because the system keeps the locks of an owner sorted and finds the place of a new first one at once.
  std::sort(hashes.begin(), hashes.end(), std::greater<std::uint64_t>());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  Wait wait{on_wait, own_count()->load() == 0};
  std::vector<std::uint64_t> held;
  held.reserve(hashes.size());
  try {
    for (const std::uint64_t hash : hashes) {
      const std::uint64_t byte = byte_of(hash);
      const bool same_byte = !held.empty() && byte_of(held.back()) == byte;
      if (same_byte || (take_here(byte, wait) && take_file(byte, wait))) held.push_back(hash);
    }
  } catch (...) {
    release(held);
    throw;
  }
  std::reverse(held.begin(), held.end());
  if (waited != nullptr) *waited = wait.waited;
  return held;
}

void Leases::release(const std::vector<std::uint64_t>& held) {
  for (std::size_t i = 0; i < held.size(); ++i) {
    const std::uint64_t byte = byte_of(held[i]);
    if (i > 0 && byte_of(held[i - 1]) == byte) continue;
    if (*file_) lock_byte(file_->get(), byte, F_UNLCK);
    std::lock_guard lock(mutex_);
    pass_on(byte);
  }
}

// The first step: among the threads of this process.
bool Leases::take_here(std::uint64_t byte, Wait& wait) {
  std::unique_lock lock(mutex_);
  const auto [lease, is_new] = leases_.try_emplace(byte);
  std::deque<Waiter*>& waiters = lease->second.waiters;  // stays where it is while somebody waits
  if (is_new) {
    lease->second.count = own_count();
    ++*own_count();
    return true;
  }
  if (!wait.allowed) return false;
  Waiter waiter;
  waiter.count = own_count();
  waiters.push_back(&waiter);
  wait.begin();
  try {
    while (!waiter.has) {
      if (waiter.granted.wait_until(lock, wait.notice, [&] { return waiter.has; })) break;
      lock.unlock();
      wait.tell();
      lock.lock();
    }
  } catch (...) {
    lock.lock();
    if (waiter.has) {
      pass_on(byte);
    } else {
      waiters.erase(std::find(waiters.begin(), waiters.end(), &waiter));
    }
    throw;
  }
  return true;
}

// The second step: among processes. Gives the first one back where it fails.
bool Leases::take_file(std::uint64_t byte, Wait& wait) {
  if (!*file_) return true;
  std::chrono::milliseconds pause{1};
  try {
    while (!lock_byte(file_->get(), byte, F_WRLCK)) {
      if (!wait.allowed) {
        std::lock_guard lock(mutex_);
        pass_on(byte);
        return false;
      }
      wait.begin();
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
      wait.tell();
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    pass_on(byte);
    throw;
  }
  return true;
}

void Leases::pass_on(std::uint64_t byte) {
  const auto lease = leases_.find(byte);
  if (lease == leases_.end()) return;
  --*lease->second.count;
  if (lease->second.waiters.empty()) {
    leases_.erase(lease);
    return;
  }
  Waiter& next = *lease->second.waiters.front();
  lease->second.waiters.pop_front();
  lease->second.count = next.count;
  ++*next.count;
  next.has = true;
  next.granted.notify_one();
}

}  // namespace prismem::cache
