#include "support/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace prismem {
namespace {

// Below this a new thread costs about as much as the work it takes over.
constexpr double kWorkPerThread = 2e6;

int usable_cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

int thread_count(int wanted, double work) {
  if (work < 2 * kWorkPerThread) return 1;  // small calls do not ask the system for its cores
  const int most = wanted > 0 ? wanted : usable_cores();
  return static_cast<int>(std::min(static_cast<double>(most), work / kWorkPerThread));
}

void parallel_for(std::int64_t count, int threads, const std::function<void(int, std::int64_t)>& job) {
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  std::int64_t failed_index = count;
  const auto work = [&](int worker) {
    for (;;) {
      const std::int64_t index = next.fetch_add(1);
      if (index >= count) return;
      try {
        job(worker, index);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (index < failed_index) {
          failed_index = index;
          failure = std::current_exception();
        }
      }
    }
  };
  std::vector<std::thread> helpers;
  const std::int64_t useful = std::min<std::int64_t>(threads, count);
  try {
    for (int worker = 1; worker < useful; ++worker) helpers.emplace_back(work, worker);
  } catch (const std::system_error&) {
    // The system gives no more threads: those that exist do all the work.
  }
  work(0);
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace prismem
