#include "index/id_table.hpp"

#include <algorithm>
#include <utility>

namespace prismem::index {
namespace {

// Spreads neighbouring ids over the whole table (the finaliser of MurmurHash3).
std::uint64_t mixed(std::int64_t id) {
  std::uint64_t bits = static_cast<std::uint64_t>(id);
  bits = (bits ^ (bits >> 33)) * 0xff51afd7ed558ccdull;
  bits = (bits ^ (bits >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return bits ^ (bits >> 33);
}

}  // namespace

std::size_t IdTable::home(std::int64_t id) const { return static_cast<std::size_t>(mixed(id)) & (cells_.size() - 1); }

std::size_t IdTable::cell_of(std::int64_t id, const std::int64_t* ids) const {
  std::size_t cell = home(id);
  while (cells_[cell] >= 0 && ids[cells_[cell]] != id) cell = (cell + 1) & (cells_.size() - 1);
  return cell;
}

void IdTable::reserve(std::int64_t count, const std::int64_t* ids) {
  std::size_t wanted = std::max<std::size_t>(16, cells_.size());
  while (static_cast<double>(count) > 0.7 * static_cast<double>(wanted)) wanted *= 2;
  if (wanted == cells_.size()) return;
  std::vector<std::int64_t> old(wanted, -1);
  std::swap(old, cells_);
  for (const std::int64_t position : old) {
    if (position >= 0) cells_[cell_of(ids[position], ids)] = position;
  }
}

std::int64_t IdTable::find(std::int64_t id, const std::int64_t* ids) const {
  return cells_.empty() ? -1 : cells_[cell_of(id, ids)];
}

std::int64_t IdTable::insert(std::int64_t position, const std::int64_t* ids) {
  std::int64_t& cell = cells_[cell_of(ids[position], ids)];
  if (cell >= 0) return cell;
  cell = position;
  ++size_;
  return position;
}

void IdTable::erase(std::int64_t position, const std::int64_t* ids) {
  const std::size_t last = cells_.size() - 1;
  std::size_t hole = cell_of(ids[position], ids);
  // Entries behind the hole move up where they may, so that no search ends too early.
  for (std::size_t cell = (hole + 1) & last; cells_[cell] >= 0; cell = (cell + 1) & last) {
    const std::size_t from = home(ids[cells_[cell]]);
    if (((cell - from) & last) >= ((cell - hole) & last)) {
      cells_[hole] = cells_[cell];
      hole = cell;
    }
  }
  cells_[hole] = -1;
  --size_;
}

void IdTable::clear() {
  std::fill(cells_.begin(), cells_.end(), -1);
  size_ = 0;
}

}  // namespace prismem::index
