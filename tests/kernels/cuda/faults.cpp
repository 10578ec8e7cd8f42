// Kernels with one fault each, for the emulator: prints what it says of each of them.
#include <cstdio>
#include <string>

#include "launch.cuh"

namespace prismem::cuda {
namespace {

alignas(16) float source[64];

PRISMEM_KERNEL(64, 1) no_fault(int) {
  const Shared<float> values = Shared<float>::at(0);
  values.set(thread_index(), 1.0f);
  sync_block<100>();
  values.get(63 - thread_index());
}
PRISMEM_KERNEL(64, 1) read_after_write(int) {
  const Shared<float> values = Shared<float>::at(0);
  values.set(thread_index(), 1.0f);
  values.get(63 - thread_index());
}
PRISMEM_KERNEL(64, 1) write_after_read(int) {
  const Shared<float> values = Shared<float>::at(0);
  values.set(thread_index(), 1.0f);
  sync_block<101>();
  values.get(63 - thread_index());
  values.set(thread_index(), 2.0f);
}
PRISMEM_KERNEL(64, 1) two_writes(int) { Shared<float>::at(0).set(thread_index() / 2, 1.0f); }
PRISMEM_KERNEL(64, 1) plain_and_atomic(int) {
  const Shared<int> values = Shared<int>::at(0);
  if (thread_index() == 0) values.set(0, 0);
  values.add(0, 1);
}
PRISMEM_KERNEL(64, 1) read_of_nothing(int) { Shared<float>::at(0).get(thread_index()); }
PRISMEM_KERNEL(64, 1) outside(int) { Shared<float>::at(0).set(thread_index() + 1000, 1.0f); }
PRISMEM_KERNEL(64, 1) some_wait(int) {
  if (thread_index() < 32) sync_block<102>();
}
PRISMEM_KERNEL(64, 1) two_barriers(int) {
  if (thread_index() < 32) {
    sync_block<103>();
  } else {
    sync_block<104>();
  }
}
PRISMEM_KERNEL(64, 1) lanes_apart(int) {
  if (thread_index() % 2 == 0) {
    ballot(true);
  } else {
    shuffle(1.0f, 0);
  }
}
PRISMEM_KERNEL(64, 1) read_before_the_wait(int) {
  const Shared<float> values = Shared<float>::at(16 * thread_index());
  copy_async(values, source, 16);
  copy_commit();
  values.get(0);
  copy_wait<105, 0>();
}
PRISMEM_KERNEL(64, 1) no_wait(int) {
  copy_async(Shared<float>::at(16 * thread_index()), source, 16);
  copy_commit();
}
PRISMEM_KERNEL(64, 1) wait_for_too_few(int) {
  const Shared<float> values = Shared<float>::at(16 * thread_index());
  copy_async(values, source, 16);
  copy_commit();
  copy_wait<106, 1>();
  values.get(0);
  copy_wait<107, 0>();
}
PRISMEM_KERNEL(64, 1) crooked_copy(int) { copy_async(Shared<float>::at(16 * thread_index()), source + 1, 16); }
PRISMEM_KERNEL(64, 1) no_barrier_after_the_wait(int) {
  copy_async(Shared<float>::at(16 * thread_index()), source, 16);
  copy_commit();
  copy_wait<108, 0>();
  Shared<float>::at(16 * (63 - thread_index())).get(0);
}

void show(const char* name, void (*kernel)(int)) {
  const int code = launch(kernel, 1, 64, 1024, nullptr, 0);
  std::printf("%s: %s\n", name, code == 0 ? "nothing" : prismem_cuda_message());
}

}  // namespace
}  // namespace prismem::cuda

int main() {
  using namespace prismem::cuda;
#define SHOW(kernel) show(#kernel, kernel)
  SHOW(no_fault);
  SHOW(read_after_write);
  SHOW(write_after_read);
  SHOW(two_writes);
  SHOW(plain_and_atomic);
  SHOW(read_of_nothing);
  SHOW(outside);
  SHOW(some_wait);
  SHOW(two_barriers);
  SHOW(lanes_apart);
  SHOW(read_before_the_wait);
  SHOW(no_wait);
  SHOW(wait_for_too_few);
  SHOW(crooked_copy);
  SHOW(no_barrier_after_the_wait);
}
