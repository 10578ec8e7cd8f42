// Forks: a child process must neither use a cache of its parent nor keep the parent's lock alive.
#pragma once

#include <cstdint>
#include <utility>

#include "support/file.hpp"

namespace prismem::cache {

// A number that changes in every forked child; an object that remembers another one belongs to an ancestor.
std::uint64_t fork_generation();

// Descriptors that every forked child closes at once. A flock lives until its last descriptor is closed, so a child
// that outlived a killed parent would otherwise keep the directory locked.
void close_in_children(int fd);
void forget_in_children(int fd);

// A descriptor for locks, closed in every forked child.
class GuardedDescriptor {
 public:
  GuardedDescriptor() = default;
  explicit GuardedDescriptor(Descriptor file) : file_(std::move(file)) {
    if (file_) close_in_children(file_.get());
  }
  GuardedDescriptor(GuardedDescriptor&&) = default;
  GuardedDescriptor& operator=(GuardedDescriptor&&) = delete;
  ~GuardedDescriptor() {
    if (file_) forget_in_children(file_.get());
  }
  int get() const { return file_.get(); }

 private:
  Descriptor file_;
};

}  // namespace prismem::cache
