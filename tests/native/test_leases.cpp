#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cache/fork_guard.hpp"
#include "cache/leases.hpp"
#include "temporary_directory.hpp"
#include "testing.hpp"

namespace prismem::cache {
namespace {

using testing::TemporaryDirectory;

using Hashes = std::vector<std::uint64_t>;

constexpr std::uint64_t kLargest = ~std::uint64_t{0};

Descriptor open_flights(const TemporaryDirectory& directory) {
  return Descriptor(::open(directory.inside("flights").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
}

void never_waits() { testing::fail(__FILE__, __LINE__, "there was something to wait for"); }

// A process that takes leases of its own, and tells its parent when it has them.
class Child {
 public:
  Child(const TemporaryDirectory& directory, const Hashes& hashes) {
    std::array<int, 2> pipe;
    PRISMEM_EQUAL(::pipe(pipe.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(pipe[0]);
      Leases leases(open_flights(directory));
      const char got = leases.acquire(hashes, {}, nullptr).size() == hashes.size() ? 'y' : 'n';
      if (::write(pipe[1], &got, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(pipe[1]);
    answer_ = Descriptor(pipe[0]);
  }
  ~Child() { end(); }
  bool has_them() const {
    char got = '?';
    while (::read(answer_.get(), &got, 1) < 0) {
    }
    return got == 'y';
  }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  Descriptor answer_;
};

// Runs `body` in a forked child; whether it returned true.
bool in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Another process holds none of the hashes, as an attempt from a process that may not wait shows.
bool free_for_others(const TemporaryDirectory& directory, const Hashes& hashes) {
  return in_child([&] {
    Leases leases(open_flights(directory));
    const Hashes own = leases.acquire({2}, {}, nullptr);  // who holds a lease does not wait
    return own.size() == 1 && leases.acquire(hashes, {}, nullptr).size() == hashes.size();
  });
}

}  // namespace

PRISMEM_TEST(leases_that_nobody_holds_are_had_at_once) {
  const TemporaryDirectory directory;
  for (const bool shared : {false, true}) {
    Leases leases(shared ? open_flights(directory) : Descriptor());
    bool waited = true;
    const Hashes held = leases.acquire({90, 40, 41, 90, kLargest, 1, kLargest - 1}, never_waits, &waited);
    PRISMEM_CHECK(held == (Hashes{1, 40, 41, 90, kLargest - 1, kLargest}));
    PRISMEM_CHECK(!waited);
    PRISMEM_CHECK(leases.acquire({}, never_waits, &waited).empty());
    if (shared) PRISMEM_CHECK(!free_for_others(directory, {90}) && !free_for_others(directory, {kLargest}) && free_for_others(directory, {92, 38}));
    leases.release(held);
    if (shared) PRISMEM_CHECK(free_for_others(directory, held));
    PRISMEM_CHECK(leases.acquire(held, never_waits, &waited) == held);
    leases.release(held);
  }
}

PRISMEM_TEST(a_thread_that_holds_a_lease_leaves_out_what_it_would_have_to_wait_for) {
  const TemporaryDirectory directory;
  Leases leases(open_flights(directory));
  Leases others({});
  const Hashes first = leases.acquire({10, 20}, never_waits, nullptr);
  std::thread([&] {
    const Hashes mine = leases.acquire({30, 50}, never_waits, nullptr);
    PRISMEM_CHECK(mine == (Hashes{30, 50}));
    const Hashes theirs = others.acquire({7}, never_waits, nullptr);
    bool waited = true;
    // 10 is the main thread's, 30 and 31 (its neighbour on the same byte) its own.
    PRISMEM_CHECK(leases.acquire({10, 30, 31, 40}, never_waits, &waited) == Hashes{40});
    PRISMEM_CHECK(!waited);
    leases.release({40});
    leases.release(mine);
    // The lease of another cache counts as well.
    PRISMEM_CHECK(leases.acquire({10, 40}, never_waits, nullptr) == Hashes{40});
    others.release(theirs);
    leases.release({40});
  }).join();
  Child child(directory, {60});
  PRISMEM_CHECK(child.has_them());
  PRISMEM_CHECK(leases.acquire({60, 70}, never_waits, nullptr) == Hashes{70});
  // What was left out is held by nobody here: once the other process is gone, it can be had.
  child.end();
  PRISMEM_CHECK(leases.acquire({60}, never_waits, nullptr) == Hashes{60});
  leases.release({60, 70});
  leases.release(first);
  // The threads of a Leases object that is no more hold nothing.
  auto gone = std::make_unique<Leases>(Descriptor());
  PRISMEM_CHECK(gone->acquire({1}, never_waits, nullptr).size() == 1);
  gone.reset();
  const auto stop = [] { throw std::runtime_error("it waits"); };
  Child other(directory, {10});
  PRISMEM_CHECK(other.has_them());
  PRISMEM_EQUAL(PRISMEM_MESSAGE(std::runtime_error, leases.acquire({10, 20, 30, 60}, stop, nullptr)), "it waits");
}

PRISMEM_TEST(a_lease_is_held_by_one_thread_at_a_time_and_each_comes_to_it) {
  const TemporaryDirectory directory;
  for (const bool shared : {false, true}) {
    Leases leases(shared ? open_flights(directory) : Descriptor());
    constexpr int kThreads = 6;
    constexpr std::uint64_t kHashes = 12;
    std::array<std::atomic<int>, kHashes> holders{};
    std::atomic<int> overlaps{0};
    std::atomic<int> short_of{0};
    std::array<int, kHashes> computed{};  // guarded by the leases alone
    std::vector<std::thread> threads;
    for (unsigned worker = 0; worker < kThreads; ++worker) {
      threads.emplace_back([&, worker] {
        std::mt19937_64 random(worker);
        for (int turn = 0; turn < 300; ++turn) {
          Hashes wanted;
          for (std::uint64_t i = 0; i < 1 + turn % 5u; ++i) wanted.push_back(2 * (random() % kHashes) + 100);
          const std::size_t distinct = std::set<std::uint64_t>(wanted.begin(), wanted.end()).size();
          const Hashes held = leases.acquire(wanted, {}, nullptr);
          short_of += held.size() != distinct;
          for (const std::uint64_t hash : held) {
            overlaps += holders[(hash - 100) / 2].fetch_add(1) != 0;
            ++computed[(hash - 100) / 2];
          }
          if (turn % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
          for (const std::uint64_t hash : held) holders[(hash - 100) / 2].fetch_sub(1);
          leases.release(held);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    PRISMEM_EQUAL(overlaps.load(), 0);
    PRISMEM_EQUAL(short_of.load(), 0);
    int total = 0;
    for (const int count : computed) total += count;
    PRISMEM_CHECK(total > kThreads * 300);
  }
}

PRISMEM_TEST(threads_that_wait_for_one_lease_get_it_in_the_order_in_which_they_came) {
  Leases leases({});
  const Hashes held = leases.acquire({5}, {}, nullptr);
  std::vector<int> order;
  std::vector<std::thread> threads;
  std::atomic<int> told{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      bool waited = false;
      const Hashes mine = leases.acquire({5}, [&] { told |= 1 << i; }, &waited);
      PRISMEM_CHECK(waited);
      order.push_back(i);
      leases.release(mine);
    });
    // It stands in the queue when it is told that it waits.
    while ((told.load() & 1 << i) == 0) std::this_thread::yield();
  }
  leases.release(held);
  for (std::thread& thread : threads) thread.join();
  PRISMEM_CHECK(order == (std::vector<int>{0, 1, 2, 3}));
}

PRISMEM_TEST(a_thread_that_stops_waiting_holds_nothing_and_loses_nothing) {
  const TemporaryDirectory directory;
  Leases leases(open_flights(directory));
  const auto stop = [] { throw std::runtime_error("enough"); };
  // Among threads.
  const Hashes held = leases.acquire({50}, {}, nullptr);
  std::thread([&] {
    PRISMEM_EQUAL(PRISMEM_MESSAGE(std::runtime_error, leases.acquire({10, 50, 90}, stop, nullptr)), "enough");
    PRISMEM_CHECK(leases.acquire({10, 90}, never_waits, nullptr).size() == 2);
    leases.release({10, 90});
  }).join();
  leases.release(held);
  PRISMEM_CHECK(free_for_others(directory, {10, 50, 90}));
  // Among processes.
  {
    Child child(directory, {50});
    PRISMEM_CHECK(child.has_them());
    PRISMEM_EQUAL(PRISMEM_MESSAGE(std::runtime_error, leases.acquire({10, 50, 90}, stop, nullptr)), "enough");
    PRISMEM_CHECK(free_for_others(directory, {10, 90}) && !free_for_others(directory, {50}));
  }
  bool waited = true;
  PRISMEM_CHECK(leases.acquire({10, 50, 90}, never_waits, &waited).size() == 3);
  PRISMEM_CHECK(!waited);
  leases.release({10, 50, 90});
  // A lease handed to a thread at the very moment at which it gives up goes to the next one.
  for (int round = 0; round < 20; ++round) {
    const Hashes mine = leases.acquire({7}, {}, nullptr);
    std::atomic<bool> waits{false};
    std::thread gives_up([&] {
      PRISMEM_EQUAL(PRISMEM_MESSAGE(std::runtime_error, leases.acquire({7},
                                                                       [&] {
                                                                         waits = true;
                                                                         std::this_thread::sleep_for(std::chrono::microseconds(50));
                                                                         throw std::runtime_error("enough");
                                                                       },
                                                                       nullptr)),
                    "enough");
    });
    while (!waits.load()) std::this_thread::yield();
    leases.release(mine);
    PRISMEM_CHECK(leases.acquire({7}, {}, nullptr) == Hashes{7});
    leases.release({7});
    gives_up.join();
  }
}

PRISMEM_TEST(a_killed_process_leaves_no_lease_behind) {
  const TemporaryDirectory directory;
  Leases leases(open_flights(directory));
  for (int round = 0; round < 5; ++round) {
    Child child(directory, {4, 8, kLargest});
    PRISMEM_CHECK(child.has_them());
    const pid_t pid = child.pid();
    int told = 0;
    bool waited = false;
    const Hashes held = leases.acquire({8, 6, kLargest},
                                       [&] {
                                         if (++told == 1) ::kill(pid, SIGKILL);
                                       },
                                       &waited);
    PRISMEM_CHECK(waited && told >= 1);
    PRISMEM_CHECK(held == (Hashes{6, 8, kLargest}));
    leases.release(held);
  }
}

PRISMEM_TEST(processes_exclude_each_other) {
  const TemporaryDirectory directory;
  const Descriptor counted(::open(directory.inside("counted").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  constexpr std::uint64_t kHashes = 5;
  constexpr int kProcesses = 3, kTurns = 60;
  std::vector<pid_t> children;
  for (unsigned process = 0; process < kProcesses; ++process) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    Leases leases(open_flights(directory));
    std::mt19937_64 random(process + 1);
    for (int turn = 0; turn < kTurns; ++turn) {
      const Hashes held = leases.acquire({2 * (random() % kHashes), 2 * (random() % kHashes)}, {}, nullptr);
      for (const std::uint64_t hash : held) {
        // Read, then write: another holder of the same lease in between would be overwritten.
        std::uint64_t count = 0;
        const off_t at = static_cast<off_t>(4 * hash);
        if (::pread(counted.get(), &count, sizeof count, at) < 0) ::_exit(1);
        if (turn % 4 == 0) std::this_thread::yield();
        ++count;
        if (::pwrite(counted.get(), &count, sizeof count, at) != sizeof count) ::_exit(2);
      }
      std::uint64_t taken = 0;
      const off_t total = static_cast<off_t>(4096 + 8 * process);
      if (::pread(counted.get(), &taken, sizeof taken, total) < 0) ::_exit(3);
      taken += held.size();
      if (::pwrite(counted.get(), &taken, sizeof taken, total) != sizeof taken) ::_exit(4);
      leases.release(held);
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    PRISMEM_EQUAL(::waitpid(child, &status, 0), child);
    PRISMEM_EQUAL(status, 0);
  }
  std::uint64_t counts = 0, taken = 0;
  for (std::uint64_t i = 0; i < kHashes + kProcesses; ++i) {
    std::uint64_t count = 0;
    const std::uint64_t at = i < kHashes ? 8 * i : 4096 + 8 * (i - kHashes);
    PRISMEM_EQUAL(::pread(counted.get(), &count, sizeof count, static_cast<off_t>(at)), ssize_t{8});
    (i < kHashes ? counts : taken) += count;
  }
  PRISMEM_EQUAL(counts, taken);
  PRISMEM_CHECK(taken > kProcesses * kTurns);
}

PRISMEM_TEST(a_forked_child_neither_keeps_nor_ends_the_leases_of_its_parent) {
  const TemporaryDirectory directory;
  auto leases = std::make_unique<Leases>(open_flights(directory));
  const Hashes held = leases->acquire({12}, {}, nullptr);
  PRISMEM_CHECK(in_child([&] {
    // The number of the parent's descriptor is free in the child; what takes it must stay open.
    const int file = ::open("/dev/null", O_RDONLY);
    leases.reset();
    return ::fcntl(file, F_GETFD) >= 0;
  }));
  PRISMEM_CHECK(!free_for_others(directory, {12}));
  const Hashes own{30};
  Child child(directory, own);
  PRISMEM_CHECK(child.has_them());
  leases.reset();  // as the end of this process would; the child lives on
  PRISMEM_CHECK(free_for_others(directory, {12}));
  PRISMEM_CHECK(!free_for_others(directory, own));
}

PRISMEM_TEST(a_forked_child_may_wait_although_its_parent_holds_a_lease) {
  const TemporaryDirectory directory;
  Leases leases(open_flights(directory));
  const Hashes held = leases.acquire({12}, {}, nullptr);
  PRISMEM_CHECK(in_child([&] {
    Leases own(open_flights(directory));
    const auto stop = [] { throw std::runtime_error("enough"); };
    return PRISMEM_MESSAGE(std::runtime_error, own.acquire({12}, stop, nullptr)) == "enough";
  }));
  leases.release(held);
}

}  // namespace prismem::cache
