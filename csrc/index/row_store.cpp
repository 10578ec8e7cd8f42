#include "index/row_store.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "index/row_values.hpp"
#include "support/error.hpp"

namespace prismem::index {
namespace {

constexpr std::int64_t kLargestId = std::numeric_limits<std::int64_t>::max();

}  // namespace

RowStore::RowStore(const IndexOptions& options) : options_(options), row_bytes_(options.dim * bytes_of(options.kind)) {
  if (options.dim < 1 || options.dim > kMaxIndexDim) {
    throw ArgumentError("dim: expected a whole number from 1 to " + std::to_string(kMaxIndexDim) + ", got " + std::to_string(options.dim));
  }
}

RowStore RowStore::copied(const IndexFile& file) {
  RowStore store(file.header().options);
  const std::int64_t count = file.header().count;
  store.reserve(count);
  store.rows_.resize(static_cast<std::size_t>(store.bytes_for(count)));
  store.ids_.resize(static_cast<std::size_t>(count) * sizeof(std::int64_t));
  file.read(SectionKind::rows, store.rows_.data());
  file.read(SectionKind::ids, store.ids_.data());
  store.slots_ = count;
  store.next_id_ = file.header().next_id;
  if (const std::int64_t twice = store.fill_table(); twice >= 0) file.refuse_id(store.ids()[twice]);
  return store;
}

RowStore RowStore::mapped(std::unique_ptr<const MappedIndexFile> file) {
  RowStore store(file->header().options);
  store.slots_ = file->header().count;
  store.next_id_ = file->header().next_id;
  store.file_ = std::move(file);
  return store;
}

Rows RowStore::rows() const {
  const void* data = file_ != nullptr ? file_->section(SectionKind::rows) : rows_.data();
  return Rows{data, slots_, options_.dim, options_.dim, options_.kind};
}

const std::int64_t* RowStore::ids() const {
  return file_ != nullptr ? static_cast<const std::int64_t*>(file_->section(SectionKind::ids)) : ids_.as<std::int64_t>();
}

const std::uint8_t* RowStore::alive() const { return dead_ > 0 ? alive_.data() : nullptr; }

void RowStore::build_table() {
  if (const std::int64_t twice = fill_table(); twice >= 0) file_->refuse_id(ids()[twice]);
}

// The first slot whose id stands before it already, or -1.
std::int64_t RowStore::fill_table() {
  const std::int64_t* every = ids();
  table_.clear();
  table_.reserve(slots_, every);
  for (std::int64_t slot = 0; slot < slots_; ++slot) {
    if (alive() != nullptr && alive_[static_cast<std::size_t>(slot)] == 0) continue;
    if (table_.insert(slot, every) != slot) {
      table_.clear();
      return slot;
    }
  }
  return -1;
}

std::vector<std::int64_t> RowStore::find_all(const std::int64_t* wanted, std::int64_t count, bool once) const {
  std::vector<std::int64_t> found(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t slot = find(wanted[i]);
    if (slot < 0) throw ArgumentError("ids: there is no row with id " + std::to_string(wanted[i]) + " (position " + std::to_string(i) + ")");
    found[static_cast<std::size_t>(i)] = slot;
  }
  if (once) {
    std::vector<std::int64_t> sorted = found;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) throw ArgumentError("ids: id " + std::to_string(ids()[*twice]) + " is given twice; name each row once");
  }
  return found;
}

std::int64_t RowStore::bytes_for(std::int64_t slots) const {
  if (slots < 0 || slots > kMaxIndexBytes / row_bytes_) {
    throw ArgumentError(std::to_string(slots) + " rows of " + std::to_string(row_bytes_) + " bytes each are more than an index can hold");
  }
  return slots * row_bytes_;
}

void RowStore::reserve(std::int64_t slots) {
  const std::int64_t bytes = bytes_for(slots);
  table_.reserve(slots, ids());
  ids_.reserve(static_cast<std::size_t>(slots) * sizeof(std::int64_t));
  rows_.reserve(static_cast<std::size_t>(bytes));
}

void RowStore::refuse_row(const Rows& rows, std::int64_t row) const {
  Rows alone = rows;
  alone.data = static_cast<const char*>(rows.data) + row * rows.stride * bytes_of(rows.kind);
  alone.count = 1;
  const bool not_finite = first_nonfinite(alone) == 0;
  throw ArgumentError("vectors: row " + std::to_string(row) +
                      (not_finite ? " holds NaN or infinity; mend the row"
                                  : std::string(" holds a number too large for ") + name_of(options_.kind) +
                                        ", in which this index keeps its rows; scale the row or make the index with dtype=\"float32\""));
}

void RowStore::append(const Rows& rows, const std::int64_t* ids) {
  const std::int64_t total = slots_ + rows.count;
  const std::int64_t bytes = bytes_for(total);
  if (ids == nullptr && rows.count > kLargestId - next_id_) {
    throw ArgumentError("ids: no automatic id is left after " + std::to_string(next_id_ - 1) + "; pass ids");
  }
  table_.reserve(live() + rows.count, this->ids());
  if (dead_ > 0) alive_.reserve(static_cast<std::size_t>(total));
  ids_.resize(static_cast<std::size_t>(total) * sizeof(std::int64_t));
  rows_.resize(static_cast<std::size_t>(bytes));
  // Nothing below this line fails but the checks of the values, and what is written beyond slots_ does not count yet.
  const std::int64_t bad = convert_rows(rows, options_.kind, rows_.data() + slots_ * row_bytes_);
  if (bad >= 0) refuse_row(rows, bad);
  std::int64_t* every = ids_.as<std::int64_t>();
  std::int64_t next = next_id_;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const std::int64_t slot = slots_ + i;
    every[slot] = ids != nullptr ? ids[i] : next_id_ + i;
    const std::int64_t holder = table_.insert(slot, every);
    if (holder != slot) {
      for (std::int64_t done = slots_; done < slot; ++done) table_.erase(done, every);
      const std::string id = "ids: id " + std::to_string(every[slot]);
      throw ArgumentError(holder < slots_ ? id + " is in the index already; use update() to change its row"
                                          : id + " is given twice; ids are unique");
    }
    if (every[slot] >= next) next = every[slot] < kLargestId ? every[slot] + 1 : kLargestId;
  }
  if (dead_ > 0) alive_.resize(static_cast<std::size_t>(total), 1);
  slots_ = total;
  next_id_ = next;
  membership_ += rows.count > 0 ? 1 : 0;
  layout_ += rows.count > 0 ? 1 : 0;
}

void RowStore::update(const Rows& rows, const std::vector<std::int64_t>& slots) {
  HugeBuffer values(static_cast<std::size_t>(bytes_for(rows.count)));
  const std::int64_t bad = convert_rows(rows, options_.kind, values.data());
  if (bad >= 0) refuse_row(rows, bad);
  for (std::int64_t i = 0; i < rows.count; ++i) {
    std::memcpy(rows_.data() + slots[static_cast<std::size_t>(i)] * row_bytes_, values.data() + i * row_bytes_, static_cast<std::size_t>(row_bytes_));
  }
}

void RowStore::remove(const std::vector<std::int64_t>& slots) {
  if (slots.empty()) return;
  if (dead_ == 0) alive_.assign(static_cast<std::size_t>(slots_), 1);
  for (const std::int64_t slot : slots) {
    table_.erase(slot, ids());
    alive_[static_cast<std::size_t>(slot)] = 0;
    ++dead_;
  }
  ++membership_;
  ++layout_;
}

std::int64_t RowStore::compact() {
  if (dead_ == 0) return slots_;
  const auto alive = [&](std::int64_t slot) { return alive_[static_cast<std::size_t>(slot)] != 0; };
  std::int64_t* every = ids_.as<std::int64_t>();
  std::int64_t first_dead = 0;
  while (alive(first_dead)) ++first_dead;
  std::int64_t kept = first_dead;
  for (std::int64_t begin = first_dead; begin < slots_;) {
    std::int64_t end = begin;
    while (end < slots_ && alive(end)) ++end;
    std::memmove(rows_.data() + kept * row_bytes_, rows_.data() + begin * row_bytes_, static_cast<std::size_t>((end - begin) * row_bytes_));
    std::memmove(every + kept, every + begin, static_cast<std::size_t>(end - begin) * sizeof(std::int64_t));
    kept += end - begin;
    begin = end + 1;
  }
  slots_ = kept;
  dead_ = 0;
  ++layout_;
  alive_.clear();
  rows_.resize(static_cast<std::size_t>(slots_ * row_bytes_));
  ids_.resize(static_cast<std::size_t>(slots_) * sizeof(std::int64_t));
  fill_table();  // the room is there: there were as many entries before
  return first_dead;
}

std::int64_t RowStore::capacity() const {
  return is_mapped() ? slots_ : static_cast<std::int64_t>(rows_.capacity()) / row_bytes_;
}

std::int64_t RowStore::memory_of_ids() const {
  return static_cast<std::int64_t>(ids_.capacity() + alive_.capacity() + table_.bytes());
}

}  // namespace prismem::index
