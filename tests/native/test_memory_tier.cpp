#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cache/memory_tier.hpp"
#include "cache/stages.hpp"
#include "cache/worth.hpp"
#include "testing.hpp"

namespace prismem::cache {
namespace {

constexpr std::uint64_t kLarge = 16 << 20;  // a budget of 16 shards

EntryId id_of(unsigned number, std::uint32_t stage = 0) {
  EntryId id{Key{}, stage};
  for (std::size_t byte = 0; byte < 4; ++byte) id.key[byte] = static_cast<unsigned char>(number >> (8 * byte));
  return id;
}

Value value_of(unsigned number, std::size_t size) {
  return std::make_shared<const std::string>(size, static_cast<char>('a' + number % 26));
}

std::uint64_t charge(std::size_t size) { return size + MemoryTier::kEntryBytes; }

// A tier with one stage.
struct Tier {
  explicit Tier(std::uint64_t budget) : tier(budget, stages) { stages.intern("stage"); }
  std::uint64_t evictions() { return stages.at(0).evictions.load(); }
  StageTable stages;
  MemoryTier tier;
};

// What a tier of one shard must do, said plainly: the entry of the lowest priority goes, among equals the one unused for longest.
class PlainTier {
 public:
  struct Entry {
    std::string value;
    double cost, priority;
    std::uint64_t use;
  };
  explicit PlainTier(std::uint64_t budget) : budget_(budget) {}

  const std::string* get(unsigned number) {
    const auto found = entries_.find(number);
    if (found == entries_.end()) return nullptr;
    renew(found->second);
    return &found->second.value;
  }
  void put(unsigned number, const std::string& value, double cost) {
    entries_.erase(number);
    if (charge(value.size()) > budget_) return;
    while (used() + charge(value.size()) > budget_) {
      const auto lowest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
        return std::make_pair(a.second.priority, a.second.use) < std::make_pair(b.second.priority, b.second.use);
      });
      inflation_ = lowest->second.priority;
      entries_.erase(lowest);
      ++evictions;
    }
    renew(entries_[number] = {value, cost, 0, 0});
  }
  bool erase(unsigned number) { return entries_.erase(number) != 0; }
  std::uint64_t used() const {
    std::uint64_t bytes = 0;
    for (const auto& entry : entries_) bytes += charge(entry.second.value.size());
    return bytes;
  }
  const std::map<unsigned, Entry>& entries() const { return entries_; }

  std::uint64_t evictions = 0;

 private:
  void renew(Entry& entry) {
    entry.priority = inflation_ + (entry.cost > 0 ? entry.cost / static_cast<double>(charge(entry.value.size())) : 1e-6);
    entry.use = ++uses_;
  }
  const std::uint64_t budget_;
  double inflation_ = 0;
  std::uint64_t uses_ = 0;
  std::map<unsigned, Entry> entries_;
};

std::map<std::string, MemoryTier::Kept> kept_in(const MemoryTier& tier) {
  std::map<std::string, MemoryTier::Kept> kept;
  tier.for_each([&](const MemoryTier::Kept& entry) {
    PRISMEM_CHECK(kept.emplace(std::string(entry.id.key.begin(), entry.id.key.end()), entry).second);
  });
  return kept;
}

std::string name_of(unsigned number) {
  const EntryId id = id_of(number);
  return std::string(id.key.begin(), id.key.end());
}

}  // namespace

PRISMEM_TEST(the_worth_of_an_entry_is_its_cost_a_byte) {
  PRISMEM_EQUAL(worth(10, 4), 2.5);
  PRISMEM_EQUAL(worth(3, 0), 3.0);
  for (const double none : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) PRISMEM_EQUAL(worth(none, 1000), kUnknownWorth);
  PRISMEM_EQUAL(worth(std::numeric_limits<double>::infinity(), 10), kLargestWorth);
  PRISMEM_EQUAL(priority(2, 10, 4), 4.5);
}

PRISMEM_TEST(one_shard_keeps_exactly_what_the_policy_says) {
  std::mt19937 random(3);
  for (const std::uint64_t budget : {300, 700, 2000, 10000, 60000}) {
    // Costs of all kinds; in every other run only few different ones, so that ties are many.
    for (const bool ties : {false, true}) {
      Tier tested(budget);
      PlainTier plain(budget);
      PRISMEM_EQUAL(tested.tier.shards(), std::size_t{1});
      for (int step = 0; step < 6000; ++step) {
        const unsigned number = random() % 300;
        const unsigned action = random() % 10;
        if (action < 5) {
          double cost = 0;
          const Value value = tested.tier.get(id_of(number), &cost);
          const std::string* expected = plain.get(number);
          PRISMEM_CHECK((value == nullptr) == (expected == nullptr));
          if (expected != nullptr) {
            PRISMEM_EQUAL(*value, *expected);
            PRISMEM_EQUAL(cost, plain.entries().at(number).cost);
          }
        } else if (action < 9) {
          const std::size_t size = ties ? 40 * (random() % 3) : random() % (random() % 20 == 0 ? budget + 100 : 400);
          const double cost = ties ? random() % 2 * 10.0 : random() % 3 == 0 ? 0.0 : std::exp(static_cast<double>(random() % 1000) / 100);
          const Value value = value_of(number + random() % 5, size);
          tested.tier.put(id_of(number), value, cost);
          plain.put(number, *value, cost);
        } else {
          PRISMEM_EQUAL(tested.tier.erase(id_of(number)), plain.erase(number));
        }
        PRISMEM_EQUAL(tested.tier.used_bytes(), plain.used());
        PRISMEM_CHECK(tested.tier.used_bytes() <= budget);
        PRISMEM_EQUAL(tested.evictions(), plain.evictions);
        if (step % 40 != 0) continue;
        const auto kept = kept_in(tested.tier);
        PRISMEM_EQUAL(kept.size(), plain.entries().size());
        PRISMEM_EQUAL(tested.tier.entries(), std::uint64_t{kept.size()});
        for (const auto& [entry, expected] : plain.entries()) {
          const auto found = kept.find(name_of(entry));
          PRISMEM_CHECK(found != kept.end() && *found->second.value == expected.value && found->second.cost == expected.cost &&
                        found->second.priority == expected.priority);
        }
      }
      PRISMEM_CHECK(plain.evictions > 100);
    }
  }
}

PRISMEM_TEST(entries_without_costs_leave_in_the_order_of_their_last_use) {
  Tier tested(4 * charge(10));
  for (unsigned i = 0; i < 4; ++i) tested.tier.put(id_of(i), value_of(i, 10), 0);
  PRISMEM_CHECK(tested.tier.get(id_of(0)) != nullptr);
  tested.tier.put(id_of(4), value_of(4, 10), 0);
  tested.tier.put(id_of(5), value_of(5, 10), 0);
  for (const unsigned gone : {1u, 2u}) PRISMEM_CHECK(tested.tier.get(id_of(gone)) == nullptr);
  for (const unsigned kept : {0u, 3u, 4u, 5u}) PRISMEM_CHECK(tested.tier.get(id_of(kept)) != nullptr);
}

PRISMEM_TEST(what_was_dear_to_compute_stays_and_ages_in_the_end) {
  Tier tested(4 * charge(10));
  const double cost = 5.5 * kUnknownWorth * static_cast<double>(charge(10));  // as much as five rounds of cheap ones
  tested.tier.put(id_of(1000), value_of(0, 10), cost);
  unsigned stayed = 0;
  while (tested.tier.entries() < 4) tested.tier.put(id_of(++stayed), value_of(1, 10), 0);
  for (; kept_in(tested.tier).count(name_of(1000)) != 0; ++stayed) tested.tier.put(id_of(stayed + 1), value_of(1, 10), 0);
  // Three cheap ones fit beside it, and every three of them raise the inflation by their worth.
  PRISMEM_CHECK(stayed >= 15 && stayed <= 21);
}

PRISMEM_TEST(in_every_shard_the_lowest_entry_goes_first) {
  Tier tested(kLarge);
  PRISMEM_EQUAL(tested.tier.shards(), MemoryTier::kMaxShards);
  std::mt19937 random(9);
  std::size_t evicted = 0;
  std::vector<std::size_t> shards_that_gave(MemoryTier::kMaxShards, 0);
  for (int step = 0; step < 800; ++step) {
    const unsigned number = random() % 3000;
    if (step % 3 == 0) {
      tested.tier.get(id_of(number));
      continue;
    }
    const auto before = kept_in(tested.tier);
    tested.tier.put(id_of(number), value_of(number, random() % 120000), static_cast<double>(random() % 1000));
    const auto after = kept_in(tested.tier);
    PRISMEM_CHECK(tested.tier.used_bytes() <= kLarge && after.count(name_of(number)) == 1);
    for (const auto& [name, entry] : before) {
      if (after.count(name) != 0) continue;
      ++evicted;
      const std::size_t shard = tested.tier.shard_of(entry.id);
      ++shards_that_gave[shard];
      for (const auto& [other_name, other] : after) {
        if (other_name == name_of(number) || tested.tier.shard_of(other.id) != shard) continue;
        PRISMEM_CHECK(other.priority >= entry.priority);
      }
    }
    PRISMEM_EQUAL(tested.evictions(), evicted);
  }
  for (const std::size_t given : shards_that_gave) PRISMEM_CHECK(given > 0);
}

PRISMEM_TEST(a_value_as_large_as_the_budget_is_kept_and_a_larger_one_is_not) {
  for (const std::uint64_t budget : {std::uint64_t{2000}, kLarge}) {
    Tier tested(budget);
    for (unsigned i = 0; i < 100; ++i) tested.tier.put(id_of(i), value_of(i, budget / 200), 1e9);
    const std::size_t largest = budget - MemoryTier::kEntryBytes;
    tested.tier.put(id_of(500), value_of(0, largest), 0);
    PRISMEM_CHECK(tested.tier.get(id_of(500)) != nullptr);
    PRISMEM_EQUAL(tested.tier.entries(), std::uint64_t{1});
    PRISMEM_EQUAL(tested.tier.used_bytes(), budget);
    tested.tier.put(id_of(500), value_of(1, largest), 0);
    PRISMEM_EQUAL((*tested.tier.get(id_of(500)))[0], 'b');
    tested.tier.put(id_of(501), value_of(1, 1), 0);
    PRISMEM_CHECK(tested.tier.get(id_of(500)) == nullptr && tested.tier.get(id_of(501)) != nullptr);
    tested.tier.put(id_of(501), value_of(0, largest + 1), 1e9);
    PRISMEM_CHECK(tested.tier.get(id_of(501)) == nullptr);
    PRISMEM_EQUAL(tested.tier.used_bytes(), std::uint64_t{0});
  }
  Tier nothing(0);
  nothing.tier.put(id_of(1), value_of(1, 0), 1);
  PRISMEM_CHECK(nothing.tier.get(id_of(1)) == nullptr);
}

PRISMEM_TEST(shards_are_as_many_as_the_budget_bears) {
  StageTable stages;
  const std::map<std::uint64_t, std::size_t> expected = {{0, 1}, {1 << 20, 1}, {2 << 20, 2}, {(4 << 20) - 1, 2}, {kLarge, 16}, {1 << 30, 16}};
  for (const auto& [budget, shards] : expected) PRISMEM_EQUAL(MemoryTier(budget, stages).shards(), shards);
}

PRISMEM_TEST(entries_of_two_stages_are_two_and_a_clear_takes_all) {
  Tier tested(kLarge);
  tested.stages.intern("other");
  for (unsigned i = 0; i < 50; ++i) {
    tested.tier.put(id_of(i, 0), value_of(i, 10), 1);
    tested.tier.put(id_of(i, 1), value_of(i + 1, 20), 2);
  }
  for (unsigned i = 0; i < 50; ++i) {
    PRISMEM_EQUAL(*tested.tier.get(id_of(i, 0)), *value_of(i, 10));
    PRISMEM_EQUAL(*tested.tier.get(id_of(i, 1)), *value_of(i + 1, 20));
  }
  PRISMEM_EQUAL(tested.tier.used_bytes(), 50 * (charge(10) + charge(20)));
  const Value held = tested.tier.get(id_of(3));
  tested.tier.clear();
  PRISMEM_EQUAL(tested.tier.used_bytes(), std::uint64_t{0});
  PRISMEM_EQUAL(tested.tier.entries(), std::uint64_t{0});
  PRISMEM_EQUAL(*held, *value_of(3, 10));
  tested.tier.put(id_of(3), held, 1);
  PRISMEM_CHECK(tested.tier.get(id_of(3)) == held);
}

PRISMEM_TEST(the_budget_holds_at_every_moment_while_threads_put_and_get) {
  Tier tested(kLarge);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> highest{0};
  std::atomic<int> wrong{0};
  std::atomic<int> unseen{0};
  // This entry is replaced over and over, and worth more than all others: it must never be missing.
  const EntryId dear = id_of(77777);
  const Value large = value_of(0, kLarge / 3);
  tested.tier.put(dear, value_of(0, 100), 1e12);
  std::vector<std::thread> threads;
  for (unsigned worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      std::mt19937 random(worker);
      for (int step = 0; step < 2500; ++step) {
        const unsigned number = random() % 2000;
        const std::size_t size = random() % 40000;
        if (step % 2 == 0) tested.tier.put(id_of(number), value_of(number, size), static_cast<double>(random() % 100));
        if (random() % 400 == 0) tested.tier.put(id_of(5000 + number % 5), large, 50);
        if (step % 16 == static_cast<int>(worker)) tested.tier.put(dear, value_of(number, 100 + random() % 100), 1e12);
        const Value value = tested.tier.get(id_of(number));
        if (value != nullptr && !value->empty() && value->front() != static_cast<char>('a' + number % 26)) ++wrong;
        if (tested.tier.get(dear) == nullptr) ++unseen;
        if (step % 500 == 0) tested.tier.erase(id_of(random() % 2000));
      }
    });
  }
  std::thread watcher([&] {
    while (!done.load()) highest = std::max(highest.load(), tested.tier.used_bytes());
  });
  for (std::thread& thread : threads) thread.join();
  done.store(true);
  watcher.join();
  PRISMEM_EQUAL(wrong.load(), 0);
  PRISMEM_EQUAL(unseen.load(), 0);
  PRISMEM_CHECK(highest.load() <= kLarge && highest.load() > kLarge / 2);
  std::uint64_t bytes = 0;
  for (const auto& entry : kept_in(tested.tier)) bytes += charge(entry.second.value->size());
  PRISMEM_EQUAL(tested.tier.used_bytes(), bytes);
  tested.tier.clear();
  PRISMEM_EQUAL(tested.tier.used_bytes(), std::uint64_t{0});
}

PRISMEM_TEST(threads_that_each_want_the_whole_budget_come_to_an_end) {
  Tier tested(kLarge);
  std::vector<Value> values;
  for (std::size_t less = 0; less < 3; ++less) values.push_back(value_of(0, kLarge - MemoryTier::kEntryBytes - less * 100000));
  std::vector<std::thread> threads;
  for (unsigned worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      for (unsigned step = 0; step < 300; ++step) tested.tier.put(id_of(worker * 100 + step % 5), values[step % 3], 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  PRISMEM_CHECK(tested.tier.entries() == 1 && tested.tier.used_bytes() <= kLarge);
}

}  // namespace prismem::cache
