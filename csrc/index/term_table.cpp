#include "index/term_table.hpp"

#include <cstring>
#include <utility>

namespace prismem::index {
namespace {

std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ (bits >> 32)) * 0x9fb21c651e98df25ull;
  return bits ^ (bits >> 29);
}

// Eight bytes at a time: most terms are one step.
std::uint32_t hash_of(std::string_view term) {
  std::uint64_t hash = term.size() * 0x9e3779b97f4a7c15ull;
  const char* at = term.data();
  std::size_t left = term.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mixed(hash ^ word);
  }
  std::uint64_t word = 0;
  std::memcpy(&word, at, left);
  return static_cast<std::uint32_t>(mixed(hash ^ word));
}

}  // namespace

std::size_t TermTable::bytes() const {
  return cells_.capacity() * sizeof(Cell) + bytes_.capacity() + ends_.capacity() * sizeof(std::int64_t);
}

std::string_view TermTable::term(std::int32_t number) const {
  const std::int64_t begin = number > 0 ? ends_[static_cast<std::size_t>(number) - 1] : 0;
  const std::int64_t end = ends_[static_cast<std::size_t>(number)];
  return {bytes_.data() + begin, static_cast<std::size_t>(end - begin)};
}

std::size_t TermTable::cell_of(std::string_view text, std::uint32_t hash) const {
  const std::size_t last = cells_.size() - 1;
  std::size_t cell = hash & last;
  while (cells_[cell].number >= 0 && (cells_[cell].hash != hash || term(cells_[cell].number) != text)) cell = (cell + 1) & last;
  return cell;
}

std::int32_t TermTable::find(std::string_view text) const {
  return cells_.empty() ? -1 : cells_[cell_of(text, hash_of(text))].number;
}

void TermTable::grow() {
  std::vector<Cell> old(cells_.empty() ? 64 : 2 * cells_.size(), Cell{0, -1});
  std::swap(old, cells_);
  const std::size_t last = cells_.size() - 1;
  for (const Cell& taken : old) {
    if (taken.number < 0) continue;
    std::size_t cell = taken.hash & last;
    while (cells_[cell].number >= 0) cell = (cell + 1) & last;
    cells_[cell] = taken;
  }
}

std::int32_t TermTable::insert(std::string_view text) {
  const std::uint32_t hash = hash_of(text);
  if (!cells_.empty()) {
    const Cell& cell = cells_[cell_of(text, hash)];
    if (cell.number >= 0) return cell.number;
  }
  if (2 * (ends_.size() + 1) > cells_.size()) grow();
  const std::size_t before = bytes_.size();
  bytes_.insert(bytes_.end(), text.begin(), text.end());
  try {
    ends_.push_back(static_cast<std::int64_t>(bytes_.size()));
  } catch (...) {
    bytes_.resize(before);
    throw;
  }
  const std::int32_t number = size() - 1;
  cells_[cell_of(text, hash)] = Cell{hash, number};
  return number;
}

}  // namespace prismem::index
