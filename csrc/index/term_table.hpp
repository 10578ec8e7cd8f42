// Numbers for terms, from 0 in the order in which they come.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace prismem::index {

// Open addressing over the bytes of all terms side by side.
class TermTable {
 public:
  std::int32_t size() const { return static_cast<std::int32_t>(ends_.size()); }
  std::size_t bytes() const;

  // The number of a term, or -1.
  std::int32_t find(std::string_view term) const;
  // The number of a term, which gets one if it has none. Throws std::bad_alloc, and then nothing has changed.
  std::int32_t insert(std::string_view term);
  std::string_view term(std::int32_t number) const;

 private:
  struct Cell {
    std::uint32_t hash;
    std::int32_t number;  // -1: empty
  };

  std::size_t cell_of(std::string_view term, std::uint32_t hash) const;
  void grow();

  std::vector<Cell> cells_;  // a power of two of them, at most half taken
  std::vector<char> bytes_;
  std::vector<std::int64_t> ends_;
};

}  // namespace prismem::index
