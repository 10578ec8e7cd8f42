// Filters brought into the order of slots.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "index/row_store.hpp"

namespace prismem::index {

// The slots that a search may return.
struct Selection {
  enum class Form { every, marked, listed };
  Form form = Form::every;
  std::vector<std::uint8_t> marks;  // marked: one byte a slot, for all queries or for each one
  std::int64_t mark_stride = 0;     // 0: the same marks for all queries
  std::int64_t mark_queries = 0;    // as IndexFilter::mask_queries
  std::vector<std::int64_t> slots;  // listed, ascending: so few that their rows are better read alone

  Mask mask(const RowStore& store) const;
};

// ArgumentError for a mask of the wrong length. A filter of ids needs the store's table of ids; prepared filters have no place here.
Selection select(const RowStore& store, const IndexFilter& filter);

}  // namespace prismem::index

namespace prismem {

// Made by VectorIndex::prepare; safe to use from several threads.
class PreparedFilter {
 public:
  // For the index numbered `index`, whose rows are in `store`.
  PreparedFilter(std::uint64_t index, const index::RowStore& store, const IndexFilter& filter);

  // The selection for the store as it is now: made anew where slots have moved, ArgumentError for a mask over other rows than those there are.
  std::shared_ptr<const index::Selection> at(std::uint64_t index, const index::RowStore& store);

 private:
  const std::uint64_t index_;
  const std::vector<std::int64_t> ids_;
  std::vector<std::uint8_t> mask_;
  IndexFilter filter_;  // over the copies above
  const std::uint64_t membership_;
  std::mutex mutex_;
  std::uint64_t layout_;
  std::shared_ptr<const index::Selection> selection_;
};

}  // namespace prismem
