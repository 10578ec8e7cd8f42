// Runs kernels on the CPU: one block after the other, each thread of a block as a fiber of its own, in a seeded random order.
//
// What it reports, as the error of the launch: two accesses to shared memory of which one writes and which no barrier orders (by
// epochs of barriers, so on every schedule), reads of shared memory that nobody has written or that an unfinished asynchronous copy
// will write, warps and blocks whose threads wait in different places, and atomics on what others access plainly. Shared memory
// starts as NaN. It counts bytes of global memory and the operations of tensor cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace prismem::cuda::emulator {

struct Counters {
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t watched_bytes_read = 0;  // of them, within the watched range
  std::int64_t tensor_operations = 0;   // multiplications and additions
  std::int64_t launches = 0;
};

struct Settings {
  std::uint64_t seed = 1;
  int removed_sync = -1;  // the number of the barrier or wait that is left out
  const void* watched = nullptr;
  std::size_t watched_bytes = 0;
};

Settings& settings();
Counters& counters();
// How often the barrier or wait `id` was met since the last clearing; ids are below kSyncs.
constexpr int kSyncs = 256;
std::int64_t* sync_counts();

// Runs the kernel; an empty string, or what went wrong first.
std::string launch(std::int64_t blocks, int threads, std::size_t shared_bytes, const std::function<void()>& kernel);

// For primitives, within a kernel.
int thread_index();
std::int64_t block_index();
void sync_block(int id);
using Collective = void (*)(void* const (&lanes)[32]);
// All lanes of the warp meet, then `operation` runs once on what each of them gave.
void collective(Collective operation, void* mine);
void read_global(const void* at, std::size_t bytes);
void wrote_global(const void* at, std::size_t bytes);
void count_tensor_operations(std::int64_t operations);
unsigned char* shared_memory(std::size_t byte_offset);
enum class Access { read, write, atomic };
// Checks an access to shared memory; false where it is outside, so that it must not be made.
bool access_shared(const void* at, std::size_t bytes, Access access);
void copy_async(void* to, const void* from, std::size_t bytes);
void copy_commit();
void copy_wait(int id, int left);

}  // namespace prismem::cuda::emulator
