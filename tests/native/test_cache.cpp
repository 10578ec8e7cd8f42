#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cache/execution_cache.hpp"
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

PRISMEM_TEST(a_small_memory_tier_evicts_and_the_disk_tier_remembers) {
  const TemporaryDirectory directory;
  Options options = options_in(directory.inside("cache"));
  options.memory_bytes = 4096;
  ExecutionCache cache(options);
  for (unsigned i = 0; i < 200; ++i) cache.put("stage", key_of(i), value_of(i));
  for (unsigned i = 0; i < 200; ++i) PRISMEM_EQUAL(*cache.get("stage", key_of(i)), value_of(i));
  PRISMEM_CHECK(cache.counters().at("stage").evictions > 0);
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

PRISMEM_TEST(threads_read_and_write_side_by_side) {
  const TemporaryDirectory directory;
  Options options = options_in(directory.inside("cache"));
  options.memory_bytes = 8192;
  ExecutionCache cache(options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      for (unsigned i = 0; i < 300; ++i) {
        const unsigned number = (i * 7 + worker * 13) % 120;
        if (i % 3 == 0) cache.put("stage", key_of(number), value_of(number));
        const Value value = cache.get("stage", key_of(number));
        if (value != nullptr && *value != value_of(number)) ++wrong;
        if (i % 50 == 0) cache.counters();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  PRISMEM_EQUAL(wrong.load(), 0);
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
