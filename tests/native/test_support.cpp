#include <atomic>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "support/crc32c.hpp"
#include "support/huge_buffer.hpp"
#include "support/parallel.hpp"
#include "testing.hpp"

namespace prismem {

PRISMEM_TEST(parallel_for_calls_each_index_once) {
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t count : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      std::vector<std::int64_t> work(static_cast<std::size_t>(threads));  // written by one worker each, without a lock
      parallel_for(count, threads, [&](int worker, std::int64_t index) {
        ++work[static_cast<std::size_t>(worker)];
        ++calls[static_cast<std::size_t>(index)];
      });
      std::int64_t all = 0;
      for (const std::int64_t own : work) all += own;
      PRISMEM_EQUAL(all, count);
      for (const std::atomic<int>& times : calls) PRISMEM_EQUAL(times.load(), 1);
    }
  }
}

PRISMEM_TEST(parallel_for_throws_what_the_lowest_index_threw) {
  for (const int threads : {1, 4}) {
    const std::string message = PRISMEM_MESSAGE(std::runtime_error, parallel_for(100, threads, [](int, std::int64_t index) {
                                                  if (index >= 30) throw std::runtime_error(std::to_string(index));
                                                }));
    PRISMEM_EQUAL(message, "30");
  }
}

PRISMEM_TEST(huge_buffer_grows_and_keeps_what_it_holds) {
  HugeBuffer buffer;
  std::size_t size = 1;
  while (size < (std::size_t{1} << 23)) {
    const std::size_t before = buffer.size();
    buffer.resize(size);
    std::memset(buffer.data() + before, static_cast<int>(size % 251), size - before);
    PRISMEM_EQUAL(static_cast<int>(buffer.data()[0]), 1);
    PRISMEM_EQUAL(static_cast<std::size_t>(buffer.data()[size - 1]), size % 251);
    PRISMEM_EQUAL(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, std::uintptr_t{0});
    size = size * 3 + 1;
  }
  HugeBuffer moved = std::move(buffer);
  PRISMEM_EQUAL(static_cast<int>(moved.data()[0]), 1);
  moved.resize(3);
  PRISMEM_EQUAL(moved.size(), std::size_t{3});
}

PRISMEM_TEST(crc32c_of_known_text) {
  PRISMEM_EQUAL(crc32c("123456789", 9, 0), 0xE3069283u);
  PRISMEM_EQUAL(crc32c("56789", 5, crc32c("1234", 4, 0)), 0xE3069283u);
}

}  // namespace prismem
