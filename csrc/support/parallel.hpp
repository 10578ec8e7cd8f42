// Runs independent jobs on a few threads that live for one call: no pool, so nothing is left behind for a fork to break.
#pragma once

#include <cstdint>
#include <functional>

namespace prismem {

// The number of threads for `work` multiplications: `wanted` (all usable cores if <= 0), fewer where a thread would cost more
// than it saves.
int thread_count(int wanted, double work);

// Calls job(worker, index) once for each index in [0, count), with 0 <= worker < threads; the caller is worker 0.
// The exception of the lowest failing index is thrown again in the caller, after all threads have ended.
void parallel_for(std::int64_t count, int threads, const std::function<void(int worker, std::int64_t index)>& job);

}  // namespace prismem
