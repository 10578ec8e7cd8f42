#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cache/mapped_index.hpp"
#include "support/crc32c.hpp"
#include "support/error.hpp"
#include "support/file.hpp"
#include "temporary_directory.hpp"
#include "testing.hpp"

namespace prismem::cache {
namespace {

using testing::TemporaryDirectory;

using Places = std::multiset<std::pair<std::uint32_t, std::uint32_t>>;

constexpr Detail kDetail{1.5, 100, 1700000000};

struct Folder {
  TemporaryDirectory directory;
  Descriptor fd{::open(directory.inside("").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  std::string index() const { return directory.inside("index"); }
};

std::uint64_t hash_of(std::uint64_t number) {
  number = (number + 1) * 0x9E3779B97F4A7C15u;
  number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9u;
  number = (number ^ number >> 27) * 0x94D049BB133111EBu;
  return (number ^ number >> 31) | 1;
}

Location location_of(std::uint64_t number) {
  return {static_cast<std::uint32_t>(1 + number % 4194303), static_cast<std::uint32_t>(8 + number * 2654435761u % 16777208)};
}

// All places the index has for a hash.
Places places(const MappedIndex& index, std::uint64_t hash, bool* damaged = nullptr) {
  Places found;
  MappedIndex::Probe probe = index.probe(hash);
  Location location;
  while (index.next(probe, location)) found.emplace(location.segment, location.unit);
  if (damaged != nullptr) *damaged = *damaged || probe.damaged;
  return found;
}

bool has(const MappedIndex& index, std::uint64_t hash, Location location) {
  return places(index, hash) == Places{{location.segment, location.unit}};
}

// The slot of the n-th entry of a hash.
std::uint64_t slot_of(const MappedIndex& index, std::uint64_t hash, std::size_t which = 0) {
  MappedIndex::Probe probe = index.probe(hash);
  Location location;
  for (std::size_t i = 0; i <= which; ++i) PRISMEM_CHECK(index.next(probe, location));
  return probe.slot;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_file(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Runs `check` with each byte from `first` to `last` of a file changed in turn: to every other value where numbers stand close
// together (the slots, the marks), else to a few.
template <class Check>
void for_each_flip(const std::string& path, std::size_t first, std::size_t last, const Check& check) {
  const std::string whole = read_file(path);
  const Descriptor file(::open(path.c_str(), O_WRONLY));
  for (std::size_t byte = first; byte < last; ++byte) {
    const bool thoroughly = byte < 200 || (byte >= MappedIndex::kHeaderBytes && byte < MappedIndex::kHeaderBytes + 256);
    for (int flip = 1; flip < 256; flip = thoroughly ? flip + 1 : 2 * flip) {
      const char changed = static_cast<char>(whole[byte] ^ flip);
      PRISMEM_EQUAL(::pwrite(file.get(), &changed, 1, static_cast<off_t>(byte)), ssize_t{1});
      check(byte);
    }
    PRISMEM_EQUAL(::pwrite(file.get(), &whole[byte], 1, static_cast<off_t>(byte)), ssize_t{1});
  }
}

LogState state_of(std::uint64_t number) {
  return {number, number * 1000 + 64, number * 3, number * 5, number * 7, static_cast<double>(number) * 0.25, number + 1};
}

bool same(const LogState& a, const LogState& b) {
  return a.tail_segment == b.tail_segment && a.tail_bytes == b.tail_bytes && a.entries == b.entries && a.live_bytes == b.live_bytes &&
         a.log_bytes == b.log_bytes && a.inflation == b.inflation && a.next_segment == b.next_segment;
}

std::size_t child_status(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? static_cast<std::size_t>(WEXITSTATUS(status)) : 1000 + static_cast<std::size_t>(WTERMSIG(status));
}

// An index that tells apart whatever has to do with a slot: hashes that share a home, erased slots, a round past the end.
std::map<std::uint64_t, Location> fill_awkwardly(MappedIndex& index) {
  std::map<std::uint64_t, Location> kept;
  const auto insert = [&](std::uint64_t hash, std::uint64_t number) {
    PRISMEM_CHECK(index.insert(hash, location_of(number), kDetail));
    kept[hash] = location_of(number);
  };
  for (std::uint64_t i = 0; i < 5; ++i) insert(0xFFFFFFFFFFFFFF00u + i * 17, i);  // at home in the last group
  for (std::uint64_t i = 0; i < 4; ++i) insert(hash_of(i), 40 + i);
  for (const std::uint64_t hash : {0xFFFFFFFFFFFFFF11u, 0xFFFFFFFFFFFFFF00u}) {
    index.erase(slot_of(index, hash));
    kept.erase(hash);
  }
  return kept;
}

}  // namespace

PRISMEM_TEST(an_index_holds_what_a_plain_map_holds) {
  std::mt19937_64 random(11);
  for (const std::uint64_t wanted : {1, 4, 5, 12, 64, 1000}) {
    const auto index = MappedIndex::in_memory(wanted);
    PRISMEM_CHECK(index->slots() >= wanted && index->slots() % 4 == 0 && index->slots() < wanted + 4);
    std::map<std::uint64_t, std::vector<Location>> model;
    std::uint64_t entries = 0;
    bool was_full = false;
    for (int step = 0; step < 20000; ++step) {
      // Few homes and few hashes, so that probes are long, wrap around, and meet entries of the same hash.
      const std::uint64_t hash = (random() % 5 << 62 | random() % (wanted + 3)) + 1;
      std::vector<Location>& mine = model[hash];
      const Location location = location_of(random() % 1000000);
      const std::size_t which = mine.empty() ? 0 : random() % mine.size();
      const unsigned action = random() % 8;
      // Entries of one hash stand in the order of the slots, not of their coming: find the one meant.
      std::uint64_t slot = 0;
      for (std::size_t n = 0; !mine.empty(); ++n) {
        MappedIndex::Probe probe = index->probe(hash);
        Location found{};
        for (std::size_t i = 0; i <= n; ++i) PRISMEM_CHECK(index->next(probe, found));
        slot = probe.slot;
        if (found.segment == mine[which].segment && found.unit == mine[which].unit) break;
      }
      if (action < 4) {
        if (index->insert(hash, location, kDetail)) {
          mine.push_back(location);
          ++entries;
        } else {
          was_full = true;
          PRISMEM_CHECK((index->taken() + 1) * 6 > index->slots() * 5);
        }
      } else if (action < 5 && !mine.empty()) {
        index->replace(slot, hash, location, kDetail);
        mine[which] = location;
      } else if (!mine.empty()) {
        index->erase(slot);
        mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(which));
        --entries;
      }
      PRISMEM_CHECK(index->taken() >= entries);
      bool damaged = false;
      Places expected;
      for (const Location& each : mine) expected.emplace(each.segment, each.unit);
      PRISMEM_CHECK(places(*index, hash, &damaged) == expected);
      PRISMEM_CHECK(!damaged);
    }
    PRISMEM_CHECK(was_full || wanted > 64);
    std::map<std::uint64_t, Places> seen;
    bool damaged = false;
    index->for_each([&](std::uint64_t, std::uint64_t hash, Location location, const Detail&) { seen[hash].emplace(location.segment, location.unit); },
                    &damaged);
    PRISMEM_CHECK(!damaged);
    for (const auto& [hash, mine] : model) {
      Places expected;
      for (const Location& each : mine) expected.emplace(each.segment, each.unit);
      PRISMEM_CHECK(seen[hash] == expected);
    }
    for (const auto& [hash, mine] : model) {
      for (std::size_t i = 0; i < mine.size(); ++i) index->erase(slot_of(*index, hash));
    }
    // Erased slots before an empty one become empty, so nothing is left of them all.
    PRISMEM_EQUAL(index->taken(), std::uint64_t{0});
  }
}

PRISMEM_TEST(an_index_refuses_what_a_slot_cannot_hold) {
  const auto index = MappedIndex::in_memory(8);
  for (const Location bad : {Location{0, 8}, Location{1u << 22, 8}, Location{1, 1u << 24}}) {
    PRISMEM_CHECK(PRISMEM_MESSAGE(ArgumentError, index->insert(5, bad, kDetail)).find("2^22") != std::string::npos);
  }
  PRISMEM_CHECK(!PRISMEM_MESSAGE(ArgumentError, index->insert(0, {1, 8}, kDetail)).empty());
  PRISMEM_CHECK(!PRISMEM_MESSAGE(ArgumentError, MappedIndex::in_memory(std::uint64_t{1} << 32)).empty());
  PRISMEM_EQUAL(index->taken(), std::uint64_t{0});
  const Location largest{(1u << 22) - 1, (1u << 24) - 1};
  PRISMEM_CHECK(index->insert(~std::uint64_t{0}, largest, kDetail));
  PRISMEM_CHECK(has(*index, ~std::uint64_t{0}, largest));
  PRISMEM_CHECK(places(*index, 0).empty());
}

PRISMEM_TEST(a_detail_is_kept_and_a_use_is_noted_where_the_file_may_be_written) {
  const Folder folder;
  {
    const auto index = MappedIndex::create(folder.fd.get(), 8);
    PRISMEM_CHECK(index->insert(7, {1, 8}, {2.5, 4000000000u, 1800000000u}));
    index->touch(slot_of(*index, 7), 3.5, 1900000000u);
  }
  const auto reader = MappedIndex::open(folder.fd.get(), false);
  PRISMEM_CHECK(!reader->writable());
  const std::uint64_t slot = slot_of(*reader, 7);
  reader->touch(slot, 9.0, 1);
  reader->supersede();
  PRISMEM_CHECK(!reader->superseded());
  const Detail detail = reader->detail(slot);
  PRISMEM_EQUAL(detail.priority, 3.5);
  PRISMEM_EQUAL(detail.units, 4000000000u);
  PRISMEM_EQUAL(detail.used_at, 1900000000u);
  const auto writer = MappedIndex::open(folder.fd.get(), true);
  writer->touch(slot, std::numeric_limits<double>::quiet_NaN(), 2);
  PRISMEM_EQUAL(writer->detail(slot).priority, 0.0);
}

PRISMEM_TEST(a_copy_leaves_erased_slots_behind_and_tells_of_damaged_ones) {
  const auto index = MappedIndex::in_memory(40);
  for (std::uint64_t i = 0; i < 30; ++i) PRISMEM_CHECK(index->insert(hash_of(i), location_of(i), {static_cast<double>(i), 1, 2}));
  for (std::uint64_t i = 0; i < 30; i += 3) index->erase(slot_of(*index, hash_of(i)));
  const auto copy = MappedIndex::in_memory(100);
  PRISMEM_CHECK(index->copy_into(*copy));
  PRISMEM_EQUAL(copy->taken(), std::uint64_t{20});
  for (std::uint64_t i = 0; i < 30; ++i) {
    PRISMEM_EQUAL(places(*copy, hash_of(i)).size(), std::size_t{i % 3 == 0 ? 0u : 1u});
    if (i % 3 == 0) continue;
    PRISMEM_CHECK(has(*copy, hash_of(i), location_of(i)));
    PRISMEM_EQUAL(copy->detail(slot_of(*copy, hash_of(i))).priority, static_cast<double>(i));
  }
  const auto small = MappedIndex::in_memory(8);
  PRISMEM_CHECK(PRISMEM_MESSAGE(ArgumentError, index->copy_into(*small)).find("8 slots") != std::string::npos);

  const Folder folder;
  MappedIndex::create(folder.fd.get(), 8)->insert(hash_of(1), location_of(1), kDetail);
  std::string bytes = read_file(folder.index());
  const std::uint64_t slot = slot_of(*MappedIndex::from_bytes(bytes), hash_of(1));
  bytes[MappedIndex::kHeaderBytes + 16 * slot + 9] ^= 4;
  const auto damaged = MappedIndex::from_bytes(bytes);
  PRISMEM_CHECK(!damaged->copy_into(*copy));
  PRISMEM_EQUAL(copy->taken(), std::uint64_t{20});
}

PRISMEM_TEST(an_index_appears_whole_or_not_at_all) {
  const Folder folder;
  PRISMEM_CHECK(MappedIndex::open(folder.fd.get(), true) == nullptr);
  const auto old = MappedIndex::create(folder.fd.get(), 16, [&](MappedIndex& index) {
    PRISMEM_CHECK(MappedIndex::open(folder.fd.get(), false) == nullptr);
    PRISMEM_CHECK(index.insert(3, {1, 8}, kDetail));
  });
  PRISMEM_EQUAL(::access(folder.directory.inside("index.new").c_str(), F_OK), -1);
  struct stat status;
  PRISMEM_EQUAL(::stat(folder.index().c_str(), &status), 0);
  PRISMEM_CHECK(static_cast<std::uint64_t>(status.st_blocks) * 512 >= old->bytes());  // a full disk shows now, not at a store
  PRISMEM_CHECK(has(*MappedIndex::open(folder.fd.get(), false), 3, {1, 8}));

  const auto failing = [&](MappedIndex&) { throw std::runtime_error("no more"); };
  PRISMEM_EQUAL(PRISMEM_MESSAGE(std::runtime_error, MappedIndex::create(folder.fd.get(), 32, failing, old.get())), "no more");
  PRISMEM_EQUAL(::access(folder.directory.inside("index.new").c_str(), F_OK), -1);
  PRISMEM_CHECK(!old->superseded());

  const pid_t child = ::fork();
  if (child == 0) {
    MappedIndex::create(folder.fd.get(), 32, [](MappedIndex&) { ::raise(SIGKILL); });
    ::_exit(1);
  }
  PRISMEM_EQUAL(child_status(child), std::size_t{1000 + SIGKILL});
  PRISMEM_EQUAL(::access(folder.directory.inside("index.new").c_str(), F_OK), 0);
  PRISMEM_EQUAL(MappedIndex::open(folder.fd.get(), false)->slots(), std::uint64_t{16});
  const auto larger = MappedIndex::create(folder.fd.get(), 32, [&](MappedIndex& index) { old->copy_into(index); }, old.get());
  PRISMEM_CHECK(old->superseded() && !larger->superseded());
  PRISMEM_CHECK(has(*old, 3, {1, 8}));
  PRISMEM_EQUAL(MappedIndex::open(folder.fd.get(), false)->slots(), std::uint64_t{32});
  PRISMEM_CHECK(has(*MappedIndex::open(folder.fd.get(), false), 3, {1, 8}));
}

PRISMEM_TEST(a_file_that_is_no_index_is_not_opened) {
  const Folder folder;
  MappedIndex::create(folder.fd.get(), 8);
  const std::string whole = read_file(folder.index());
  PRISMEM_EQUAL(whole.size(), std::size_t{4096 + 8 * 32});
  std::vector<std::string> bad = {"", whole.substr(0, 31), whole.substr(0, 4096), whole.substr(0, whole.size() - 1), whole + '\0'};
  for (std::size_t byte = 0; byte < 32; ++byte) {
    bad.push_back(whole);
    bad.back()[byte] = static_cast<char>(bad.back()[byte] ^ 0x40);
  }
  for (const std::string& bytes : bad) {
    write_file(folder.index(), bytes);
    PRISMEM_CHECK(MappedIndex::open(folder.fd.get(), true) == nullptr);
    PRISMEM_CHECK(MappedIndex::from_bytes(bytes) == nullptr);
  }
  write_file(folder.index(), whole);
  PRISMEM_CHECK(MappedIndex::open(folder.fd.get(), true) != nullptr);
  ::unlink(folder.index().c_str());
  PRISMEM_EQUAL(::mkdir(folder.index().c_str(), 0777), 0);
  PRISMEM_CHECK(!PRISMEM_MESSAGE(SystemFailure, MappedIndex::open(folder.fd.get(), true)).empty());
}

PRISMEM_TEST(no_flipped_byte_gives_a_wrong_place) {
  const Folder folder;
  std::map<std::uint64_t, Location> kept;
  {
    const auto index = MappedIndex::create(folder.fd.get(), 16);
    kept = fill_awkwardly(*index);
    index->set_state(state_of(1));
    index->set_state(state_of(2));
  }
  const auto index = MappedIndex::open(folder.fd.get(), true);
  const std::uint64_t taken = index->taken();
  const std::string whole = read_file(folder.index());
  std::size_t noticed = 0;
  // The first 32 bytes are looked at when the file is opened; the rest shows in the mapping at once.
  for_each_flip(folder.index(), 32, whole.size(), [&](std::size_t byte) {
    for (const auto& [hash, location] : kept) {
      bool damaged = false;
      const Places found = places(*index, hash, &damaged);
      const bool right = found == Places{{location.segment, location.unit}};
      if (!right) PRISMEM_CHECK(found.empty() && damaged);
      noticed += !right;
    }
    for (const std::uint64_t absent : {hash_of(77), std::uint64_t{0xFFFFFFFFFFFFFF11u}}) PRISMEM_CHECK(places(*index, absent).empty());
    bool damaged = false;
    std::size_t entries = 0;
    index->for_each(
        [&](std::uint64_t, std::uint64_t hash, Location location, const Detail&) {
          ++entries;
          PRISMEM_CHECK(kept.count(hash) == 1 && kept[hash].segment == location.segment && kept[hash].unit == location.unit);
        },
        &damaged);
    PRISMEM_CHECK(damaged ? entries + 1 >= kept.size() : entries == kept.size());
    PRISMEM_EQUAL(index->taken(), taken);
    PRISMEM_CHECK(!index->superseded());
    // A damaged state is the one before, as after a kill between two stores of the newest.
    LogState state;
    PRISMEM_CHECK(index->state(state));
    PRISMEM_CHECK(same(state, state_of(2)) || (byte < MappedIndex::kHeaderBytes && same(state, state_of(1))));
  });
  PRISMEM_EQUAL(noticed, std::size_t{7 * 16 * 255});
}

PRISMEM_TEST(no_flipped_byte_makes_an_index_trusted) {
  const Folder folder;
  const auto index = MappedIndex::create(folder.fd.get(), 4);
  PRISMEM_CHECK(index->trusted());
  const Descriptor file(::open(folder.index().c_str(), O_WRONLY));
  const std::string other_boot = "some other boot.";
  PRISMEM_EQUAL(::pwrite(file.get(), other_boot.data(), other_boot.size(), 64), ssize_t{16});
  PRISMEM_CHECK(!index->trusted());
  for_each_flip(folder.index(), 32, MappedIndex::kHeaderBytes, [&](std::size_t) { PRISMEM_CHECK(!index->trusted()); });
}

PRISMEM_TEST(an_index_is_trusted_within_a_boot_or_after_an_orderly_close) {
  const Folder folder;
  MappedIndex::create(folder.fd.get(), 4);
  PRISMEM_CHECK(MappedIndex::open(folder.fd.get(), false)->trusted());
  MappedIndex::open(folder.fd.get(), true)->mark_clean();
  std::string clean = read_file(folder.index());
  for (std::size_t byte = 64; byte < 80; ++byte) clean[byte] = static_cast<char>(clean[byte] + 1);
  write_file(folder.index(), clean);
  {
    const auto index = MappedIndex::open(folder.fd.get(), true);
    PRISMEM_CHECK(index->trusted());
    index->begin_writing();
    PRISMEM_CHECK(index->trusted());  // by the boot id now
  }
  std::string begun = read_file(folder.index());
  PRISMEM_CHECK(begun != clean);
  PRISMEM_CHECK(MappedIndex::open(folder.fd.get(), false)->trusted());
  begun[64] = static_cast<char>(begun[64] + 1);
  write_file(folder.index(), begun);
  const auto lost = MappedIndex::open(folder.fd.get(), true);
  PRISMEM_CHECK(!lost->trusted());
  PRISMEM_CHECK(PRISMEM_MESSAGE(CacheError, lost->begin_writing()).find("segments") != std::string::npos);
}

PRISMEM_TEST(a_superseded_index_is_neither_clean_nor_superseded_for_its_next_writer) {
  const Folder folder;
  const auto index = MappedIndex::create(folder.fd.get(), 4);
  index->mark_clean();
  index->supersede();
  std::string bytes = read_file(folder.index());
  for (std::size_t byte = 64; byte < 80; ++byte) bytes[byte] = static_cast<char>(bytes[byte] + 1);
  PRISMEM_CHECK(!MappedIndex::from_bytes(bytes)->trusted());
  PRISMEM_CHECK(MappedIndex::open(folder.fd.get(), false)->superseded());
  index->begin_writing();
  PRISMEM_CHECK(!MappedIndex::open(folder.fd.get(), false)->superseded());
}

PRISMEM_TEST(a_state_is_the_old_or_the_new_one_after_any_number_of_its_stores) {
  const Folder folder;
  const auto index = MappedIndex::create(folder.fd.get(), 4);
  LogState state;
  PRISMEM_CHECK(!index->state(state));
  std::string before = read_file(folder.index());
  for (std::uint64_t number = 1; number < 8; ++number) {
    index->set_state(state_of(number));
    PRISMEM_CHECK(index->state(state) && same(state, state_of(number)));
    const std::string after = read_file(folder.index());
    std::vector<std::size_t> changed;
    for (std::size_t word = 0; word < before.size(); word += 8) {
      if (before.compare(word, 8, after, word, 8) != 0) changed.push_back(word);
    }
    PRISMEM_CHECK(changed.size() > 4 && changed.size() <= 9);
    // Any subset of the words may have come through: every order of stores is among them.
    for (unsigned subset = 0; subset < 1u << changed.size(); ++subset) {
      std::string torn = before;
      for (std::size_t i = 0; i < changed.size(); ++i) {
        if ((subset >> i & 1) != 0) torn.replace(changed[i], 8, after, changed[i], 8);
      }
      const bool found = MappedIndex::from_bytes(torn)->state(state);
      if (subset + 1 == 1u << changed.size()) {
        PRISMEM_CHECK(found && same(state, state_of(number)));
      } else {
        PRISMEM_CHECK(number == 1 ? !found : found && same(state, state_of(number - 1)));
      }
    }
    before = after;
  }
}

PRISMEM_TEST(an_insertion_that_a_kill_ended_is_no_entry_whatever_its_hash) {
  const std::uint64_t folds_to_salt = 0x2C5A9;  // its check would be 0, as the place is
  const Folder folder;
  const auto index = MappedIndex::create(folder.fd.get(), 8);
  PRISMEM_CHECK(index->insert(folds_to_salt, {1, 8}, kDetail) && index->insert(folds_to_salt + 1, {1, 9}, kDetail));
  PRISMEM_CHECK(has(*index, folds_to_salt, {1, 8}));
  const Descriptor file(::open(folder.index().c_str(), O_WRONLY));
  const std::uint64_t nowhere = 0;
  PRISMEM_EQUAL(::pwrite(file.get(), &nowhere, sizeof nowhere, MappedIndex::kHeaderBytes + 8), ssize_t{sizeof nowhere});
  bool damaged = false;
  PRISMEM_CHECK(places(*index, folds_to_salt, &damaged).empty() && !damaged);
  PRISMEM_CHECK(has(*index, folds_to_salt + 1, {1, 9}));
  PRISMEM_CHECK(index->insert(folds_to_salt, {1, 10}, kDetail) && has(*index, folds_to_salt, {1, 10}));
  PRISMEM_EQUAL(index->taken(), std::uint64_t{2});
}

PRISMEM_TEST(the_sequence_of_states_may_begin_anew) {
  const Folder folder;
  const auto index = MappedIndex::create(folder.fd.get(), 4);
  index->set_state(state_of(1));
  const Descriptor file(::open(folder.index().c_str(), O_RDWR));
  std::array<std::uint64_t, 9> words;
  PRISMEM_EQUAL(::pread(file.get(), words.data(), sizeof words, 512), ssize_t{sizeof words});
  PRISMEM_EQUAL(words[1], std::uint64_t{1});
  words[0] = ~std::uint64_t{0};
  words[8] = crc32c(words.data(), 64);
  PRISMEM_EQUAL(::pwrite(file.get(), words.data(), sizeof words, 512), ssize_t{sizeof words});
  LogState state;
  for (std::uint64_t number = 2; number < 6; ++number) {
    PRISMEM_CHECK(index->state(state) && same(state, state_of(number - 1)));
    index->set_state(state_of(number));
  }
}

PRISMEM_TEST(a_count_of_taken_slots_that_was_damaged_is_counted_anew) {
  const Folder folder;
  std::uint64_t taken = 0;
  {
    const auto index = MappedIndex::create(folder.fd.get(), 16);
    fill_awkwardly(*index);
    taken = index->taken();
    PRISMEM_CHECK(taken > 6);
  }
  std::string bytes = read_file(folder.index());
  bytes[192] = static_cast<char>(bytes[192] - 3);
  PRISMEM_EQUAL(MappedIndex::from_bytes(bytes)->taken(), taken);
}

}  // namespace prismem::cache
