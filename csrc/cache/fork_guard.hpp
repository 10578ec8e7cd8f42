// Forks: a child process must neither use a cache of its parent nor keep the parent's lock alive.
#pragma once

#include <cstdint>

namespace prismem::cache {

// A number that changes in every forked child; an object that remembers another one belongs to an ancestor.
std::uint64_t fork_generation();

// Descriptors that every forked child closes at once. A flock lives until its last descriptor is closed, so a child
// that outlived a killed parent would otherwise keep the directory locked.
void close_in_children(int fd);
void forget_in_children(int fd);

}  // namespace prismem::cache
