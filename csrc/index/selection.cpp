#include "index/selection.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "support/error.hpp"

namespace prismem::index {
namespace {

// Below this share of the slots, and this many bytes, copying the rows side by side costs less than walking over all marks.
constexpr std::int64_t kListedShare = 16;
constexpr std::int64_t kListedBytes = std::int64_t{256} << 20;

Selection select_ids(const RowStore& store, const std::int64_t* ids, std::int64_t count) {
  Selection selection;
  std::vector<std::int64_t> slots;
  slots.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    if (const std::int64_t slot = store.find(ids[i]); slot >= 0) slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  const std::int64_t named = static_cast<std::int64_t>(slots.size());
  if (named <= store.slots() / kListedShare && named <= kListedBytes / store.row_bytes()) {
    selection.form = Selection::Form::listed;
    selection.slots = std::move(slots);
    return selection;
  }
  selection.form = Selection::Form::marked;
  selection.marks.assign(static_cast<std::size_t>(store.slots()), 0);
  for (const std::int64_t slot : slots) selection.marks[static_cast<std::size_t>(slot)] = 1;
  return selection;
}

Selection select_marked(const RowStore& store, const IndexFilter& filter) {
  if (filter.mask_count != store.live()) {
    throw ArgumentError("filter: expected a mask with " + std::to_string(store.live()) + " values a query, one for each row of the index in the order of ids, got " +
                        std::to_string(filter.mask_count));
  }
  Selection selection;
  selection.form = Selection::Form::marked;
  selection.mark_queries = filter.mask_queries;
  selection.mark_stride = filter.mask_queries > 0 ? store.slots() : 0;
  const std::int64_t masks = std::max<std::int64_t>(1, filter.mask_queries);
  selection.marks.resize(static_cast<std::size_t>(masks * store.slots()));
  std::uint8_t* out = selection.marks.data();
  for (std::int64_t query = 0; query < masks; ++query) {
    const std::uint8_t* in = filter.mask.data + query * filter.mask.query_stride;
    for (std::int64_t slot = 0; slot < store.slots(); ++slot) {
      const bool alive = store.alive() == nullptr || store.alive()[slot] != 0;
      *out++ = alive && *in != 0 ? 1 : 0;
      if (alive) in += filter.mask.key_stride;
    }
  }
  return selection;
}

}  // namespace

Mask Selection::mask(const RowStore& store) const {
  if (form == Form::marked) return Mask{marks.data(), mark_stride, 1};
  return Mask{store.alive(), 0, 1};
}

Selection select(const RowStore& store, const IndexFilter& filter) {
  if (filter.id_count >= 0) return select_ids(store, filter.ids, filter.id_count);
  if (filter.mask_count >= 0) return select_marked(store, filter);
  return Selection{};
}

}  // namespace prismem::index

namespace prismem {

PreparedFilter::PreparedFilter(std::uint64_t index, const IndexFilter& filter)
    : index_(index), by_ids_(filter.id_count >= 0), ids_(filter.ids, filter.ids + std::max<std::int64_t>(0, filter.id_count)) {}

void PreparedFilter::prepare(std::uint64_t version, index::Selection selection) {
  const std::lock_guard<std::mutex> guard(mutex_);
  version_ = version;
  selection_ = std::make_shared<const index::Selection>(std::move(selection));
}

std::shared_ptr<const index::Selection> PreparedFilter::at(std::uint64_t index, std::uint64_t version, const index::RowStore& store) {
  if (index != index_) throw ArgumentError("filter: it was prepared by another index; prepare it with the one that is searched");
  const std::lock_guard<std::mutex> guard(mutex_);
  if (version != version_) {
    if (!by_ids_) throw ArgumentError("filter: its mask was prepared before rows were added or removed; prepare it again, or prepare one of ids, which lasts");
    IndexFilter filter;
    filter.ids = ids_.data();
    filter.id_count = static_cast<std::int64_t>(ids_.size());
    selection_ = std::make_shared<const index::Selection>(index::select(store, filter));
    version_ = version;
  }
  return selection_;
}

}  // namespace prismem
