// Where each id lies: a hash table of positions, whose keys are read from the array of ids itself.
#pragma once

#include <cstdint>
#include <vector>

namespace prismem::index {

// Open addressing over positions; `ids` is always the array that the positions count in. Equal ids never stand in it twice.
class IdTable {
 public:
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return cells_.capacity() * sizeof(std::int64_t); }

  // Room for `count` entries, so that inserting up to that many cannot fail. Throws std::bad_alloc, and then nothing has changed.
  void reserve(std::int64_t count, const std::int64_t* ids);
  // The position of `id`, or -1.
  std::int64_t find(std::int64_t id, const std::int64_t* ids) const;
  // Enters ids[position]; returns `position`, or the one under which the id stands already (and then changes nothing).
  std::int64_t insert(std::int64_t position, const std::int64_t* ids);
  // Takes out ids[position], which must stand under that position.
  void erase(std::int64_t position, const std::int64_t* ids);
  void clear();

 private:
  std::size_t home(std::int64_t id) const;
  // The cell that holds `id`, or the empty one where it would go.
  std::size_t cell_of(std::int64_t id, const std::int64_t* ids) const;

  std::vector<std::int64_t> cells_;  // -1: empty; a power of two of them, at most 7 of 10 taken
  std::int64_t size_ = 0;
};

}  // namespace prismem::index
