#include "emulator/machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

// The sanitizers follow swapcontext, but not a switch of our own, which is twenty times as fast.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define PRISMEM_OWN_SWITCH 1
#else
#define PRISMEM_OWN_SWITCH 0
#include <ucontext.h>
#endif

namespace prismem::cuda::emulator {

namespace {

#if PRISMEM_OWN_SWITCH
struct Context {
  void* stack_pointer = nullptr;
};
extern "C" void prismem_emulator_switch(void** save, void* load);
asm(R"(
.text
.type prismem_emulator_switch, @function
prismem_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size prismem_emulator_switch, .-prismem_emulator_switch
)");
void switch_context(Context& from, Context& to) { prismem_emulator_switch(&from.stack_pointer, to.stack_pointer); }
void start_context(Context& context, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  auto top = (reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~std::uintptr_t{15};
  auto* slots = reinterpret_cast<void**>(top);
  slots[-1] = nullptr;  // where `entry` would return to, which it never does
  slots[-2] = reinterpret_cast<void*>(entry);
  for (int i = 3; i <= 8; ++i) slots[-i] = nullptr;
  context.stack_pointer = slots - 8;
}
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
#else
struct Context {
  ucontext_t context;
};
void switch_context(Context& from, Context& to) { swapcontext(&from.context, &to.context); }
void start_context(Context& context, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&context.context);
  context.context.uc_stack.ss_sp = stack;
  context.context.uc_stack.ss_size = bytes;
  context.context.uc_link = nullptr;
  makecontext(&context.context, entry, 0);
}
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
#endif

struct Copy {
  unsigned char* to;
  const void* from;
  std::size_t bytes;
  int group;
};

struct Fiber {
  Context context;
  std::unique_ptr<unsigned char[]> stack;
  std::uint32_t block_epoch = 0;
  bool done = false;
  int copy_group = 0;
  std::vector<Copy> copies;
};

// What is known of four bytes of shared memory. A thread is -1 for none, a reader -2 for several.
constexpr int kGranule = 4;
struct Shadow {
  std::uint32_t write_epoch;
  std::uint32_t read_epoch;
  std::int16_t writer;
  std::int16_t reader;
  std::int16_t copier;  // the thread whose asynchronous copy is under way
  bool written;
  bool atomic;
};
constexpr Shadow kUntouched{0, 0, -1, -1, -1, false, false};

struct Warp {
  Collective operation = nullptr;
  int arrived = 0;
  void* lanes[32];
};

struct Machine {
  Context scheduler;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<int> ready;
  std::vector<unsigned char> memory;
  unsigned char* shared = nullptr;
  std::size_t shared_bytes = 0;
  std::vector<Shadow> shadows;
  const std::function<void()>* kernel = nullptr;
  std::int64_t block = 0;
  int current = 0;
  int threads = 0;
  int at_barrier = 0;
  int barrier = -1;
  std::uint64_t random = 1;
  std::string fault;

  std::uint64_t next() {  // xorshift64*
    random ^= random >> 12;
    random ^= random << 25;
    random ^= random >> 27;
    return random * 0x2545f4914f6cdd1dULL;
  }
  void report(const std::string& what) {
    if (fault.empty()) fault = what + ", thread " + std::to_string(current) + " of block " + std::to_string(block);
  }
  Fiber& mine() { return fibers[static_cast<std::size_t>(current)]; }
  void leave() { switch_context(mine().context, scheduler); }
};

Machine machine;
std::mutex running;

void fiber_entry() {
  (*machine.kernel)();
  if (!machine.mine().copies.empty()) machine.report("a thread ends before its asynchronous copies");
  machine.mine().done = true;
  machine.leave();
}

// Where several threads wait and none can go on, the block is stuck.
void run_block() {
  Machine& m = machine;
  m.ready.clear();
  for (int t = 0; t < m.threads; ++t) m.ready.push_back(t);
  int done = 0;
  while (!m.ready.empty()) {
    const std::size_t pick = m.next() % m.ready.size();
    m.current = m.ready[pick];
    m.ready[pick] = m.ready.back();
    m.ready.pop_back();
    switch_context(m.scheduler, m.mine().context);
    done += m.mine().done ? 1 : 0;
  }
  if (done < m.threads) m.report("deadlock: " + std::to_string(m.threads - done) + " threads wait for others that never come");
}

std::string number(std::size_t value) { return std::to_string(value); }

}  // namespace

Settings& settings() {
  static Settings value;
  return value;
}
Counters& counters() {
  static Counters value;
  return value;
}
std::int64_t* sync_counts() {
  static std::int64_t counts[kSyncs];
  return counts;
}

std::string launch(std::int64_t blocks, int threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
  const std::lock_guard<std::mutex> lock(running);
  Machine& m = machine;
  m.fault.clear();
  if (threads <= 0 || threads > 1024 || threads % 32 != 0) return "a block needs a multiple of 32 threads, at most 1024";
  if (shared_bytes > 163 * 1024) return "a block asks for more shared memory than sm_80 has";
  m.kernel = &kernel;
  m.threads = threads;
  if (m.fibers.size() < static_cast<std::size_t>(threads)) m.fibers.resize(static_cast<std::size_t>(threads));
  m.warps.assign(static_cast<std::size_t>(threads / 32), Warp{});
  m.memory.resize(shared_bytes + 256);
  m.shared = reinterpret_cast<unsigned char*>((reinterpret_cast<std::uintptr_t>(m.memory.data()) + 127) & ~std::uintptr_t{127});
  m.shared_bytes = shared_bytes;
  m.random = settings().seed * 0x9e3779b97f4a7c15ULL | 1;
  ++counters().launches;
  std::vector<std::int64_t> order(static_cast<std::size_t>(blocks));
  for (std::int64_t b = 0; b < blocks; ++b) order[static_cast<std::size_t>(b)] = b;
  for (std::size_t b = order.size(); b > 1; --b) std::swap(order[b - 1], order[m.next() % b]);
  for (const std::int64_t block : order) {
    m.block = block;
    m.at_barrier = 0;
    m.barrier = -1;
    for (Warp& warp : m.warps) warp.arrived = 0;
    std::memset(m.shared, 0xff, shared_bytes);
    m.shadows.assign((shared_bytes + kGranule - 1) / kGranule, kUntouched);
    for (int t = 0; t < threads; ++t) {
      Fiber& fiber = m.fibers[static_cast<std::size_t>(t)];
      if (!fiber.stack) fiber.stack.reset(new unsigned char[kStackBytes]);
      fiber.block_epoch = 0;
      fiber.done = false;
      fiber.copy_group = 0;
      fiber.copies.clear();
      start_context(fiber.context, fiber.stack.get(), kStackBytes, fiber_entry);
    }
    run_block();
    if (!m.fault.empty()) break;
  }
  return m.fault;
}

int thread_index() { return machine.current; }
std::int64_t block_index() { return machine.block; }

void sync_block(int id) {
  Machine& m = machine;
  ++sync_counts()[id];
  if (id == settings().removed_sync) return;
  if (m.at_barrier > 0 && m.barrier != id)
    m.report("divergence: threads meet at barriers " + std::to_string(m.barrier) + " and " + std::to_string(id));
  m.barrier = id;
  ++m.mine().block_epoch;
  if (++m.at_barrier < m.threads) {
    m.leave();
    return;
  }
  m.at_barrier = 0;
  for (int t = 0; t < m.threads; ++t) {
    if (t != m.current) m.ready.push_back(t);
  }
  // The last one to come is not the first to go on.
  m.ready.push_back(m.current);
  m.leave();
}

void collective(Collective operation, void* mine) {
  Machine& m = machine;
  const int warp_index = m.current / 32;
  Warp& warp = m.warps[static_cast<std::size_t>(warp_index)];
  if (warp.arrived > 0 && warp.operation != operation) m.report("divergence: lanes of a warp meet at different operations");
  warp.operation = operation;
  warp.lanes[m.current % 32] = mine;
  if (++warp.arrived < 32) {
    m.leave();
    return;
  }
  operation(warp.lanes);
  warp.arrived = 0;
  for (int t = warp_index * 32; t < warp_index * 32 + 32; ++t) m.ready.push_back(t);
  m.leave();
}

void read_global(const void* at, std::size_t bytes) {
  counters().bytes_read += static_cast<std::int64_t>(bytes);
  const auto offset = reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(settings().watched);
  if (offset < settings().watched_bytes) counters().watched_bytes_read += static_cast<std::int64_t>(bytes);
}
void wrote_global(const void*, std::size_t bytes) { counters().bytes_written += static_cast<std::int64_t>(bytes); }
void count_tensor_operations(std::int64_t operations) { counters().tensor_operations += operations; }

unsigned char* shared_memory(std::size_t byte_offset) { return machine.shared + byte_offset; }

bool access_shared(const void* at, std::size_t bytes, Access access) {
  Machine& m = machine;
  const auto offset = static_cast<std::size_t>(static_cast<const unsigned char*>(at) - m.shared);
  if (offset + bytes > m.shared_bytes || offset + bytes < bytes) {
    m.report("an access outside of shared memory, at byte " + number(offset));
    return false;
  }
  const int me = m.current;
  const std::uint32_t epoch = m.mine().block_epoch;
  for (std::size_t g = offset / kGranule; g <= (offset + bytes - 1) / kGranule; ++g) {
    Shadow& shadow = m.shadows[g];
    const bool fresh_write = shadow.writer != -1 && shadow.write_epoch == epoch && shadow.writer != me;
    const auto complain = [&](const char* what) { m.report(what + (" at byte " + number(g * kGranule)) + " of shared memory"); };
    if (shadow.copier != -1) complain("an access to what an asynchronous copy is writing");
    if (access == Access::read) {
      if (!shadow.written) complain("a read of what nobody has written");
      if (fresh_write) complain("race: a read after a write without a barrier between");
      if (shadow.reader == -1 || shadow.read_epoch != epoch) {
        shadow.reader = static_cast<std::int16_t>(me);
        shadow.read_epoch = epoch;
      } else if (shadow.reader != me) {
        shadow.reader = -2;
      }
      continue;
    }
    const bool both_atomic = access == Access::atomic && shadow.atomic;
    if (access == Access::atomic && !shadow.written) complain("an atomic on what nobody has written");
    if (fresh_write && !both_atomic) complain("race: two writes without a barrier between");
    if (shadow.reader != -1 && shadow.read_epoch == epoch && shadow.reader != me) {
      complain("race: a write after a read without a barrier between");
    }
    shadow.writer = static_cast<std::int16_t>(me);
    shadow.write_epoch = epoch;
    shadow.written = true;
    shadow.atomic = access == Access::atomic;
  }
  return true;
}

void copy_async(void* to, const void* from, std::size_t bytes) {
  Machine& m = machine;
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 || (bytes > 0 && reinterpret_cast<std::uintptr_t>(from) % 16 != 0) || bytes > 16) {
    m.report("an asynchronous copy of other than sixteen aligned bytes");
    return;
  }
  if (!access_shared(to, 16, Access::write)) return;
  if (bytes > 0) read_global(from, bytes);
  std::memset(to, 0xff, 16);
  const auto first = static_cast<std::size_t>(static_cast<unsigned char*>(to) - m.shared) / kGranule;
  for (std::size_t g = first; g < first + 16 / kGranule; ++g) m.shadows[g].copier = static_cast<std::int16_t>(m.current);
  m.mine().copies.push_back({static_cast<unsigned char*>(to), from, bytes, m.mine().copy_group});
}

void copy_commit() { ++machine.mine().copy_group; }

void copy_wait(int id, int left) {
  Machine& m = machine;
  ++sync_counts()[id];
  if (id == settings().removed_sync) return;
  Fiber& fiber = m.mine();
  std::size_t kept = 0;
  for (const Copy& copy : fiber.copies) {
    if (copy.group >= fiber.copy_group - left) {
      fiber.copies[kept++] = copy;
      continue;
    }
    const auto first = static_cast<std::size_t>(copy.to - m.shared) / kGranule;
    for (std::size_t g = first; g < first + 16 / kGranule; ++g) m.shadows[g].copier = -1;
    access_shared(copy.to, 16, Access::write);
    std::memset(copy.to, 0, 16);
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
  fiber.copies.resize(kept);
}

}  // namespace prismem::cuda::emulator
