// An index that is read while it is written: by threads, and by a process whose writers are killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cache/mapped_index.hpp"
#include "support/file.hpp"
#include "temporary_directory.hpp"
#include "testing.hpp"

namespace prismem::cache {
namespace {

using testing::TemporaryDirectory;

constexpr std::uint64_t kStable = 40;    // hashes that are always there, at changing places
constexpr std::uint64_t kFleeting = 60;  // hashes that come and go

constexpr std::uint64_t kVersions = 0xFFFFFF;

// A few homes only, so that the slots of all get into each other's way.
std::uint64_t hash_of(std::uint64_t number) { return (number % 7) << 61 | (number * 0x9E3779B97F4A7C15u >> 4) | 1; }

// A place that says whose it is and how new: versions count up from 0.
Location location_of(std::uint64_t hash, std::uint64_t version) {
  return {static_cast<std::uint32_t>(1 + (hash >> 3) % 4000000), static_cast<std::uint32_t>(version & kVersions)};
}

bool belongs(std::uint64_t hash, Location location) {
  return location.segment == location_of(hash, 0).segment;
}

// One step of a writer that erases, inserts, replaces, and makes a larger index when there is no room.
template <class Grow>
void write_one(MappedIndex& index, std::mt19937_64& random, std::uint64_t version, const Grow& grow) {
  const std::uint64_t number = random() % (kStable + kFleeting);
  const std::uint64_t hash = hash_of(number);
  const Location location = location_of(hash, version);
  MappedIndex::Probe probe = index.probe(hash);
  Location old;
  if (!index.next(probe, old)) {
    if (!index.insert(hash, location, {1, 2, 3})) grow();
  } else if (number < kStable || random() % 3 == 0) {
    index.replace(probe.slot, hash, location, {1, 2, 3});
  } else {
    index.erase(probe.slot);
  }
}

// What one look at the index shows to be wrong.
struct Faults {
  std::uint64_t foreign = 0, missing = 0, damaged = 0, older = 0, found = 0;
};

class Reader {
 public:
  explicit Reader(std::uint64_t seed) : random_(seed), newest_(kStable, 0) {}

  void look(const MappedIndex& index) {
    const std::uint64_t number = random_() % (kStable + kFleeting);
    const std::uint64_t hash = hash_of(number);
    MappedIndex::Probe probe = index.probe(hash);
    Location location;
    bool found = false;
    while (index.next(probe, location)) {
      found = true;
      faults.foreign += !belongs(hash, location);
      index.touch(probe.slot, 2.0, 5);
    }
    faults.damaged += probe.damaged;
    faults.found += found;
    if (number >= kStable) return;
    faults.missing += !found;
    faults.older += found && location.unit < newest_[number];
    newest_[number] = location.unit;
  }

  Faults faults;

 private:
  std::mt19937_64 random_;
  std::vector<std::uint32_t> newest_;
};

void check(const Faults& faults) {
  PRISMEM_EQUAL(faults.foreign, std::uint64_t{0});
  PRISMEM_EQUAL(faults.missing, std::uint64_t{0});
  PRISMEM_EQUAL(faults.damaged, std::uint64_t{0});
  PRISMEM_EQUAL(faults.older, std::uint64_t{0});
}

void insert_stable(MappedIndex& index) {
  for (std::uint64_t i = 0; i < kStable; ++i) PRISMEM_CHECK(index.insert(hash_of(i), location_of(hash_of(i), 0), {1, 2, 3}));
}

LogState state_of(std::uint64_t number) { return {1, number, number * 3, number * 5, number * 7, static_cast<double>(number), 2}; }

bool whole(const LogState& state) {
  const LogState expected = state_of(state.tail_bytes);
  return state.tail_segment == 1 && state.entries == expected.entries && state.live_bytes == expected.live_bytes &&
         state.log_bytes == expected.log_bytes && state.inflation == expected.inflation && state.next_segment == 2;
}

using Contents = std::map<std::uint64_t, std::uint64_t>;  // version by hash

Contents contents(const MappedIndex& index, bool& damaged) {
  Contents found;
  for (std::uint64_t i = 0; i < kStable + kFleeting; ++i) {
    MappedIndex::Probe probe = index.probe(hash_of(i));
    Location location;
    while (index.next(probe, location)) {
      damaged = damaged || found.count(hash_of(i)) != 0 || !belongs(hash_of(i), location);
      found[hash_of(i)] = location.unit;
    }
    damaged = damaged || probe.damaged;
  }
  return found;
}

std::string bytes_of(int file) {
  std::string bytes(file_size(file), '\0');
  read_at(file, bytes.data(), bytes.size(), 0);
  return bytes;
}

std::uint64_t slots_in_use(const std::string& file, std::uint64_t slots) {
  std::uint64_t count = 0;
  const std::string empty(16, '\0');
  for (std::uint64_t slot = 0; slot < slots; ++slot) count += file.compare(MappedIndex::kHeaderBytes + 16 * slot, 16, empty) != 0;
  return count;
}

// Runs `change` in a child, one machine instruction at a time, and `check` whenever the file has changed: what it sees is what a
// kill at that instruction would leave. False where this system lets no process trace another.
bool after_each_store(int file, const std::function<void()>& change, const std::function<void(const std::string&)>& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    change();
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  PRISMEM_EQUAL(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) return false;
  std::string before = bytes_of(file);
  std::size_t changes = 0;
  for (;;) {
    PRISMEM_EQUAL(::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0L);
    PRISMEM_EQUAL(::waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) break;
    std::string now = bytes_of(file);
    if (now == before) continue;
    before = std::move(now);
    ++changes;
    check(before);
  }
  PRISMEM_CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);  // it came to the end
  ::kill(child, SIGKILL);
  PRISMEM_EQUAL(::waitpid(child, &status, 0), child);
  PRISMEM_CHECK(changes >= 1);
  return true;
}

}  // namespace

PRISMEM_TEST(an_index_is_whole_after_each_store_of_its_writer) {
  const TemporaryDirectory place;
  const Descriptor directory(::open(place.inside("").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto index = MappedIndex::create(directory.get(), 28, [](MappedIndex& fresh) {
    for (std::uint64_t i = 0; i < 18; ++i) PRISMEM_CHECK(fresh.insert(hash_of(i), location_of(hash_of(i), 1), {1, 2, 3}));
  });
  const Descriptor file(::open(place.inside("index").c_str(), O_RDONLY | O_CLOEXEC));
  std::mt19937_64 random(23);
  for (std::uint64_t step = 2; step < 26; ++step) {
    const std::uint64_t hash = hash_of(random() % 24);
    bool damaged = false;
    const Contents before = contents(*index, damaged);
    MappedIndex::Probe probe = index->probe(hash);
    Location old;
    const bool there = index->next(probe, old);
    const bool erases = there && step % 3 != 0;
    Contents after = before;
    if (erases) {
      after.erase(hash);
    } else {
      after[hash] = step;
    }
    const auto change = [&] {
      if (erases) {
        index->erase(probe.slot);
      } else if (there) {
        index->replace(probe.slot, hash, location_of(hash, step), {1, 2, 3});
      } else {
        index->insert(hash, location_of(hash, step), {1, 2, 3});
      }
    };
    const auto check = [&](const std::string& bytes) {
      const Contents now = contents(*index, damaged);
      PRISMEM_CHECK(!damaged && (now == before || now == after));
      PRISMEM_CHECK(index->taken() >= slots_in_use(bytes, index->slots()));
      bool passed_damage = false;
      index->for_each([](std::uint64_t, std::uint64_t, Location, const Detail&) {}, &passed_damage);
      PRISMEM_CHECK(!passed_damage);
    };
    if (!after_each_store(file.get(), change, check)) return;
    PRISMEM_CHECK(contents(*index, damaged) == after && !damaged);
  }
}

PRISMEM_TEST(threads_that_read_an_index_see_each_entry_while_one_writes) {
  std::vector<std::unique_ptr<MappedIndex>> all;
  all.push_back(MappedIndex::in_memory(kStable + kFleeting));
  insert_stable(*all.back());
  std::atomic<MappedIndex*> current{all.back().get()};
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> torn_states{0};
  std::vector<Reader> readers;
  for (std::uint64_t i = 0; i < 3; ++i) readers.emplace_back(i);
  std::vector<std::thread> threads;
  for (Reader& reader : readers) {
    threads.emplace_back([&] {
      LogState state{};
      for (std::uint64_t looks = 0; looks < 20000 || !done.load(); ++looks) {
        const MappedIndex* index = current.load();
        reader.look(*index);
        if (looks % 16 == 0 && index->state(state) && !whole(state)) ++torn_states;
      }
    });
  }
  std::mt19937_64 random(5);
  for (std::uint64_t step = 0; step < 60000; ++step) {
    MappedIndex* index = current.load();
    const auto grow = [&] {
      auto next = MappedIndex::in_memory(index->slots() + (all.size() % 8 == 0 ? 20 : 0));
      PRISMEM_CHECK(index->copy_into(*next));
      index->supersede();
      current.store(next.get());
      all.push_back(std::move(next));
    };
    write_one(*index, random, step, grow);
    if (step % 8 == 0) index->set_state(state_of(step + 1));
    if (step % 5000 == 0) grow();
  }
  done.store(true);
  for (std::thread& thread : threads) thread.join();
  for (const Reader& reader : readers) {
    check(reader.faults);
    PRISMEM_CHECK(reader.faults.found > 8000);
  }
  PRISMEM_EQUAL(torn_states.load(), std::uint64_t{0});
}

PRISMEM_TEST(a_writer_killed_at_any_moment_leaves_an_index_whole) {
  const TemporaryDirectory place;
  const Descriptor directory(::open(place.inside("").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  MappedIndex::create(directory.get(), kStable + kFleeting, [](MappedIndex& index) {
    insert_stable(index);
    index.set_state(state_of(1));
  });
  auto index = MappedIndex::open(directory.get(), true);
  Reader reader(3);
  std::mt19937_64 random(17);
  std::uint64_t newest = 1;
  int grown = 0;
  // On a busy machine a writer may not have come far when it is killed: then there are more of them.
  for (int round = 0; round < 60 || (round < 5000 && (newest <= 1000 || grown == 0)); ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::mt19937_64 choices(static_cast<std::uint64_t>(round) + 100);
      auto mine = MappedIndex::open(directory.get(), true);
      LogState state{};
      if (mine == nullptr || !mine->trusted() || !mine->state(state)) ::_exit(1);
      mine->begin_writing();
      for (std::uint64_t step = state.tail_bytes;; ++step) {
        const auto grow = [&] {
          mine = MappedIndex::create(directory.get(), kStable + kFleeting + choices() % 50,
                                     [&](MappedIndex& next) {
                                       if (!mine->copy_into(next)) ::_exit(2);
                                       next.set_state(state_of(step));
                                     },
                                     mine.get());
        };
        if (choices() % 300 == 0) grow();
        write_one(*mine, choices, step, grow);
        mine->set_state(state_of(step));
      }
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 4000);
    do {
      for (int looks = 0; looks < 20; ++looks) reader.look(*index);
      if (index->superseded()) {
        auto next = MappedIndex::open(directory.get(), true);
        grown += next->slots() != index->slots();
        index = std::move(next);
      }
    } while (std::chrono::steady_clock::now() < end);
    ::kill(child, SIGKILL);
    int status = 0;
    PRISMEM_EQUAL(::waitpid(child, &status, 0), child);
    PRISMEM_CHECK(WIFSIGNALED(status));
    check(reader.faults);

    auto left = MappedIndex::open(directory.get(), true);
    PRISMEM_CHECK(left != nullptr && left->trusted());
    grown += left->slots() != index->slots();
    index = std::move(left);
    LogState state{};
    PRISMEM_CHECK(index->state(state));
    PRISMEM_CHECK(whole(state) && state.tail_bytes >= newest);
    newest = state.tail_bytes;
    bool damaged = false;
    std::uint64_t entries = 0;
    std::uint64_t foreign = 0;
    index->for_each(
        [&](std::uint64_t, std::uint64_t hash, Location location, const Detail&) {
          ++entries;
          foreign += !belongs(hash, location);
        },
        &damaged);
    PRISMEM_CHECK(!damaged);
    PRISMEM_EQUAL(foreign, std::uint64_t{0});
    PRISMEM_CHECK(entries >= kStable && entries <= kStable + kFleeting && entries <= index->taken());
    for (std::uint64_t i = 0; i < kStable; ++i) {
      MappedIndex::Probe probe = index->probe(hash_of(i));
      Location location;
      PRISMEM_CHECK(index->next(probe, location) && !index->next(probe, location));
    }
  }
  PRISMEM_CHECK(newest > 1000 && grown > 0);
}

}  // namespace prismem::cache
