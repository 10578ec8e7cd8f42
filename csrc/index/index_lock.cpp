#include "index/index_lock.hpp"

#include <pthread.h>

#include <new>
#include <set>

#include "support/error.hpp"

namespace prismem::index {
namespace {

struct Registry {
  std::mutex mutex;
  std::set<IndexLock*> locks;
};

Registry& registry() {
  // Never destroyed: a fork may happen while the process is ending.
  static Registry* const instance = new Registry;
  static const int installed = pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                                              [] {
                                                for (IndexLock* lock : registry().locks) lock->start_anew();
                                                registry().mutex.unlock();
                                              });
  (void)installed;
  return *instance;
}

}  // namespace

IndexLock::IndexLock() : mutexes_(std::in_place) {
  const std::lock_guard<std::mutex> guard(registry().mutex);
  registry().locks.insert(this);
}

IndexLock::~IndexLock() {
  const std::lock_guard<std::mutex> guard(registry().mutex);
  registry().locks.erase(this);
}

void IndexLock::start_anew() {
  broken_ = broken_ || writing_.load();
  // Threads of the parent that held the mutexes do not exist here; their state is left where it was and replaced.
  new (&mutexes_) std::optional<Mutexes>(std::in_place);
}

void IndexLock::refuse_broken() const {
  if (!broken_) return;
  throw VectorIndexError("this process was forked while another thread changed the index, which is half changed here; make or load it anew in the child");
}

void IndexLock::lock() {
  refuse_broken();
  const std::lock_guard<std::mutex> guard(mutexes_->gate);
  mutexes_->data.lock();
  writing_.store(true);
}

void IndexLock::unlock() {
  writing_.store(false);
  mutexes_->data.unlock();
}

void IndexLock::lock_shared() {
  refuse_broken();
  const std::lock_guard<std::mutex> guard(mutexes_->gate);
  mutexes_->data.lock_shared();
}

void IndexLock::unlock_shared() { mutexes_->data.unlock_shared(); }

}  // namespace prismem::index
