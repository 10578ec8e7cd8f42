#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "prismem/cache.hpp"
#include "support/error.hpp"
#include "temporary_directory.hpp"
#include "testing.hpp"

namespace prismem::cache {
namespace {

using testing::TemporaryDirectory;

Key key_of(unsigned number) {
  Key key{};
  for (int byte = 0; byte < 4; ++byte) key[static_cast<std::size_t>(byte)] = static_cast<unsigned char>(number >> (8 * byte));
  return key;
}

std::string value_of(unsigned number) { return std::string(number % 700, static_cast<char>('a' + number % 26)) + std::to_string(number); }

Options options_in(const std::string& directory) {
  Options options;
  options.directory = directory;
  options.segment_bytes = 1 << 16;
  return options;
}

}  // namespace

PRISMEM_TEST(a_cache_keeps_what_was_put_when_it_is_opened_again) {
  const TemporaryDirectory directory;
  const Options options = options_in(directory.inside("cache"));
  {
    ExecutionCache cache(options);
    for (unsigned i = 0; i < 500; ++i) cache.put("stage", key_of(i), value_of(i));
    cache.put("stage", key_of(7), "newer");
  }
  ExecutionCache cache(options);
  for (unsigned i = 0; i < 500; ++i) {
    const Value value = cache.get("stage", key_of(i));
    PRISMEM_CHECK(value != nullptr);
    PRISMEM_EQUAL(*value, i == 7 ? std::string("newer") : value_of(i));
  }
  PRISMEM_CHECK(cache.get("stage", key_of(500)) == nullptr);
  PRISMEM_CHECK(cache.get("other", key_of(1)) == nullptr);
  PRISMEM_EQUAL(cache.damaged(), std::uint64_t{0});
}

PRISMEM_TEST(a_bound_on_the_disk_holds_and_costly_entries_stay_longest) {
  const TemporaryDirectory directory;
  Options options = options_in(directory.inside("cache"));
  options.disk_bytes = 4 << 20;
  ExecutionCache cache(options);
  constexpr unsigned kCount = 6000;
  for (unsigned i = 0; i < kCount; ++i) {
    cache.put("stage", key_of(i), std::string(1000, 'x'), i % 3 == 0 ? 5.0 : 1.0);
    if (i % 100 != 0) continue;
    std::uint64_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(*options.directory)) {
      std::error_code gone;
      const auto size = file.file_size(gone);
      if (!gone) bytes += size;
    }
    PRISMEM_CHECK(bytes <= options.disk_bytes);
  }
  unsigned costly = 0, cheap = 0;
  for (unsigned i = 0; i < kCount; ++i) (i % 3 == 0 ? costly : cheap) += cache.contains("stage", key_of(i)) ? 1 : 0;
  PRISMEM_EQUAL(std::uint64_t{costly} + cheap, cache.stats().entries);
  PRISMEM_EQUAL(cache.counters().at("stage").evictions, std::uint64_t{kCount} - costly - cheap);
  PRISMEM_CHECK(costly > 2 * cheap);  // half as many were put
  const VerifyReport report = cache.verify();
  PRISMEM_EQUAL(report.entries, std::uint64_t{costly} + cheap);
  PRISMEM_EQUAL(report.damaged + report.damaged_index, std::uint64_t{0});
}

PRISMEM_TEST(two_writers_and_a_reader_of_one_directory_see_each_other) {
  const TemporaryDirectory directory;
  const Options options = options_in(directory.inside("cache"));
  ExecutionCache one(options);
  ExecutionCache two(options);
  Options reading = options;
  reading.read_only = true;
  ExecutionCache reader(reading);
  for (unsigned i = 0; i < 3000; ++i) (i % 2 == 0 ? one : two).put("stage", key_of(i), value_of(i));  // the index grows twice
  one.compact();
  two.put("stage", key_of(1), "newer");
  for (unsigned i = 2; i < 3000; ++i) {
    PRISMEM_EQUAL(*one.get("stage", key_of(i)), value_of(i));
    PRISMEM_EQUAL(*two.get("stage", key_of(i)), value_of(i));
    PRISMEM_EQUAL(*reader.get("stage", key_of(i)), value_of(i));
  }
  PRISMEM_EQUAL(*reader.get("stage", key_of(1)), std::string("newer"));
  PRISMEM_EQUAL(one.remove("stage", {key_of(1), key_of(2), key_of(5000)}), std::uint64_t{2});
  PRISMEM_CHECK(!two.contains("stage", key_of(1)) && !reader.contains("stage", key_of(2)));
  two.clear();
  PRISMEM_CHECK(!one.contains("stage", key_of(7)) && reader.get("stage", key_of(7)) == nullptr);
  one.put("stage", key_of(7), "after");
  PRISMEM_EQUAL(*reader.get("stage", key_of(7)), std::string("after"));
  PRISMEM_EQUAL(one.damaged() + two.damaged() + reader.damaged(), std::uint64_t{0});
}

PRISMEM_TEST(an_index_that_is_gone_or_damaged_is_made_anew_from_the_segments) {
  const TemporaryDirectory directory;
  const Options options = options_in(directory.inside("cache"));
  {
    ExecutionCache cache(options);
    for (unsigned i = 0; i < 400; ++i) cache.put("stage", key_of(i), value_of(i));
    cache.put("stage", key_of(3), "newer");
    cache.remove("stage", {key_of(4)});
  }
  const std::string index = *options.directory + "/index";
  for (const bool removed : {true, false}) {
    if (removed) {
      std::filesystem::remove(index);
    } else {
      std::fstream file(index, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(4096);  // every slot
      const std::string noise(16 * 1024, '\x5a');
      file.write(noise.data(), static_cast<std::streamsize>(noise.size()));
    }
    ExecutionCache cache(options);
    for (unsigned i = 0; i < 400; ++i) {
      const Value value = cache.get("stage", key_of(i));
      PRISMEM_CHECK(i == 4 ? value == nullptr : value != nullptr && *value == (i == 3 ? "newer" : value_of(i)));
    }
    PRISMEM_EQUAL(cache.verify().entries, std::uint64_t{399});
    PRISMEM_EQUAL(cache.damaged(), std::uint64_t{removed ? 0u : 1u});
  }
}

PRISMEM_TEST(rows_come_as_one_matrix) {
  const TemporaryDirectory directory;
  ExecutionCache cache(options_in(directory.inside("cache")));
  constexpr std::size_t kCount = 700, kDimension = 33;
  std::vector<float> rows(kCount * kDimension);
  std::vector<Key> keys;
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  for (unsigned i = 0; i < kCount; ++i) keys.push_back(key_of(i));
  cache.put_rows("embed", keys.data(), kCount, kDimension, rows.data(), nullptr);
  keys[5] = key_of(100000);
  std::vector<float> out(rows.size(), -1.0f);
  std::vector<unsigned char> found(kCount, 7);
  for (const bool verify : {true, false}) {
    cache.get_rows("embed", keys.data(), kCount, kDimension, out.data(), found.data(), verify);
    for (std::size_t i = 0; i < kCount; ++i) {
      PRISMEM_EQUAL(int{found[i]}, i == 5 ? 0 : 1);
      for (std::size_t d = 0; d < kDimension; ++d) PRISMEM_EQUAL(out[i * kDimension + d], i == 5 ? 0.0f : rows[i * kDimension + d]);
    }
  }
  const std::string message = PRISMEM_MESSAGE(
      ArgumentError, cache.get_rows("embed", keys.data(), 1, kDimension + 1, out.data(), found.data()));
  PRISMEM_CHECK(message.find("no float32 row of 34 elements") != std::string::npos);
}

PRISMEM_TEST(puts_that_outlive_a_loss_of_power_share_their_syncs) {
  const TemporaryDirectory directory;
  Options options = options_in(directory.inside("cache"));
  options.durable = true;
  ExecutionCache cache(options);
  std::vector<std::thread> threads;
  for (unsigned worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      for (unsigned i = 0; i < 10; ++i) cache.put("stage", key_of(worker * 100 + i), value_of(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  PRISMEM_EQUAL(cache.stats().entries, std::uint64_t{40});
}

PRISMEM_TEST(a_lease_keeps_others_waiting_and_a_second_one_of_a_thread_does_not_wait) {
  const TemporaryDirectory directory;
  const Options options = options_in(directory.inside("cache"));
  ExecutionCache one(options);
  ExecutionCache two(options);
  std::atomic<bool> entered{false};
  ExecutionCache::Lease lease = one.lease("stage", {key_of(1), key_of(2), key_of(1)});
  PRISMEM_EQUAL(lease.held().size(), std::size_t{3});
  PRISMEM_CHECK(!lease.waited());
  PRISMEM_EQUAL(two.lease("stage", {key_of(2), key_of(3)}).held().size(), std::size_t{1});  // the same thread: told, not kept waiting
  std::thread other([&] {
    const ExecutionCache::Lease mine = two.lease("stage", {key_of(2)});
    entered = true;
    PRISMEM_CHECK(mine.waited());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  PRISMEM_CHECK(!entered);
  lease.release();
  other.join();
  PRISMEM_CHECK(entered);
}

PRISMEM_TEST(threads_share_one_computation_a_key) {
  const TemporaryDirectory directory;
  ExecutionCache cache(options_in(directory.inside("cache")));
  std::atomic<int> computed{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&] {
      for (unsigned i = 0; i < 100; ++i) {
        const Value value = cache.get_or_compute("stage", key_of(i), [&] {
          ++computed;
          return value_of(i);
        });
        if (*value != value_of(i)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  PRISMEM_EQUAL(computed.load(), 100);
  PRISMEM_EQUAL(wrong.load(), 0);
}

PRISMEM_TEST(threads_read_and_write_side_by_side_while_the_log_is_cleaned) {
  const TemporaryDirectory directory;
  Options options = options_in(directory.inside("cache"));
  options.disk_bytes = 4 << 20;
  ExecutionCache cache(options);
  ExecutionCache neighbour(options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      ExecutionCache& mine = worker == 3 ? neighbour : cache;
      for (unsigned i = 0; i < 3000; ++i) {
        const unsigned number = (i * 7 + worker * 13) % 6000;
        if (i % 3 == 0) mine.put("stage", key_of(number), value_of(number));
        const Value value = mine.get("stage", key_of(number));
        if (value != nullptr && *value != value_of(number)) ++wrong;
        if (i % 500 == 0) mine.counters();
        if (i == 1500 && worker == 0) mine.compact();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  PRISMEM_EQUAL(wrong.load(), 0);
  PRISMEM_EQUAL(cache.damaged() + neighbour.damaged(), std::uint64_t{0});
  PRISMEM_EQUAL(cache.verify().damaged, std::uint64_t{0});
}

PRISMEM_TEST(entries_are_removed_while_other_threads_open_segments_and_the_index_grows) {
  const TemporaryDirectory directory;
  const Options options = options_in(directory.inside("cache"));
  ExecutionCache cache(options);
  ExecutionCache neighbour(options);
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::thread writer([&] {
    for (unsigned i = 0; i < 4000; ++i) neighbour.put("stage", key_of(i), value_of(i));
    done = true;
  });
  std::thread reader([&] {
    for (unsigned i = 0; !done; i = (i + 1) % 4000) {
      const Value value = cache.get("stage", key_of(i));
      if (value != nullptr && *value != value_of(i)) ++wrong;
    }
  });
  for (unsigned i = 0; !done; i = (i + 2) % 4000) cache.remove("stage", {key_of(i)});
  writer.join();
  reader.join();
  PRISMEM_EQUAL(wrong.load(), 0);
  for (unsigned i = 1; i < 4000; i += 2) PRISMEM_CHECK(cache.contains("stage", key_of(i)));
}

PRISMEM_TEST(an_exception_reaches_all_who_wait_and_nothing_is_stored) {
  ExecutionCache cache{Options{}};
  const std::string message = PRISMEM_MESSAGE(std::runtime_error, cache.get_or_compute("stage", key_of(1), []() -> std::string {
    throw std::runtime_error("no value");
  }));
  PRISMEM_EQUAL(message, "no value");
  PRISMEM_CHECK(cache.get("stage", key_of(1)) == nullptr);
}

PRISMEM_TEST(a_closed_cache_refuses) {
  ExecutionCache cache{Options{}};
  cache.close();
  PRISMEM_CHECK(!PRISMEM_MESSAGE(CacheError, cache.get("stage", key_of(1))).empty());
}

}  // namespace prismem::cache
