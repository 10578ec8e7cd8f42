// What an index holds: rows, their ids, which of them are alive. No locks, no searching.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "index/id_table.hpp"
#include "index/index_file.hpp"
#include "prismem/index.hpp"
#include "support/huge_buffer.hpp"

namespace prismem::index {

// A slot is a place of a row; slots are filled in the order of adding. A removed row leaves a dead slot behind, until enough of them are
// dead to close the gaps. Every change is whole or, where it throws (ArgumentError, std::bad_alloc), has not happened.
class RowStore {
 public:
  explicit RowStore(const IndexOptions& options);
  // The content of a file: copied into memory (every checksum is verified), or left in the file, mapped, and then never changed.
  static RowStore copied(const IndexFile& file);
  static RowStore mapped(std::unique_ptr<const MappedIndexFile> file);

  const IndexOptions& options() const { return options_; }
  std::int64_t live() const { return slots_ - dead_; }
  std::int64_t slots() const { return slots_; }
  std::int64_t dead() const { return dead_; }
  std::int64_t next_id() const { return next_id_; }
  std::int64_t row_bytes() const { return row_bytes_; }
  // Numbers that change when rows are added or removed, and when slots are (also by compact()).
  std::uint64_t membership() const { return membership_; }
  std::uint64_t layout() const { return layout_; }
  bool is_mapped() const { return file_ != nullptr; }

  // All slots, also dead ones, whose bytes are those of the removed rows.
  Rows rows() const;
  const std::int64_t* ids() const;
  // One byte a slot, or null while every slot is alive.
  const std::uint8_t* alive() const;

  // Whether find() may be called; a mapped store builds its table of ids when it is first needed. Throws VectorIndexError for a file
  // in which an id stands twice.
  bool has_table() const { return table_.size() == live(); }
  void build_table();
  std::int64_t find(std::int64_t id) const { return table_.find(id, ids()); }
  // The slots of `count` ids; ArgumentError names one that is unknown or, with `once`, stands there twice.
  std::vector<std::int64_t> find_all(const std::int64_t* ids, std::int64_t count, bool once) const;

  void reserve(std::int64_t slots);
  // Null ids: the numbers from next_id() on.
  void append(const Rows& rows, const std::int64_t* ids);
  void update(const Rows& rows, const std::vector<std::int64_t>& slots);
  void remove(const std::vector<std::int64_t>& slots);
  // Closes the gaps of dead slots; the order stays. Returns the first slot that was dead: those behind it have moved.
  std::int64_t compact();
  bool is_sparse() const { return dead_ > 256 && dead_ > slots_ / 4; }

  std::int64_t capacity() const;
  // Bytes held in memory for rows; for ids, their table and the marks of dead slots.
  std::int64_t memory_of_rows() const { return static_cast<std::int64_t>(rows_.capacity()); }
  std::int64_t memory_of_ids() const;

 private:
  std::int64_t fill_table();
  void refuse_row(const Rows& rows, std::int64_t row) const;
  std::int64_t bytes_for(std::int64_t slots) const;

  IndexOptions options_;
  std::int64_t row_bytes_;
  HugeBuffer rows_;
  HugeBuffer ids_;
  std::vector<std::uint8_t> alive_;  // empty while every slot is alive
  IdTable table_;
  std::unique_ptr<const MappedIndexFile> file_;
  std::int64_t slots_ = 0;
  std::int64_t dead_ = 0;
  std::int64_t next_id_ = 0;
  std::uint64_t membership_ = 0;
  std::uint64_t layout_ = 0;
};

}  // namespace prismem::index
