// Filters brought into the order of slots.
#pragma once

#include <cstdint>
#include <mutex>
#include <memory>
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

// ArgumentError for a mask of the wrong length. A filter with ids needs the store's table of ids.
Selection select(const RowStore& store, const IndexFilter& filter);

}  // namespace prismem::index

namespace prismem {

// Made by VectorIndex::prepare.
class PreparedFilter {
 public:
  PreparedFilter(std::uint64_t index, const IndexFilter& filter);

  // The selection for a store at `version` of the index numbered `index`; made anew from ids after a change, ArgumentError for a mask.
  std::shared_ptr<const index::Selection> at(std::uint64_t index, std::uint64_t version, const index::RowStore& store);
  void prepare(std::uint64_t version, index::Selection selection);

 private:
  const std::uint64_t index_;
  const bool by_ids_;
  const std::vector<std::int64_t> ids_;
  std::mutex mutex_;
  std::uint64_t version_ = 0;
  std::shared_ptr<const index::Selection> selection_;
};

}  // namespace prismem
