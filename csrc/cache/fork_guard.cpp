#include "cache/fork_guard.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

namespace prismem::cache {
namespace {

struct Registry {
  std::mutex mutex;
  std::set<int> descriptors;
  std::atomic<std::uint64_t> generation{0};
};

Registry& registry() {
  // Never destroyed: a fork may happen while the process is ending.
  static Registry* instance = new Registry;
  return *instance;
}

void install() {
  static const int installed = pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                                              [] {
                                                for (const int fd : registry().descriptors) ::close(fd);
                                                registry().descriptors.clear();
                                                registry().generation.fetch_add(1);
                                                registry().mutex.unlock();
                                              });
  (void)installed;
}

}  // namespace

std::uint64_t fork_generation() {
  install();
  return registry().generation.load(std::memory_order_relaxed);
}

void close_in_children(int fd) {
  install();
  std::lock_guard lock(registry().mutex);
  registry().descriptors.insert(fd);
}

void forget_in_children(int fd) {
  std::lock_guard lock(registry().mutex);
  registry().descriptors.erase(fd);
}

}  // namespace prismem::cache
