#include "index/selection.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "support/error.hpp"

namespace prismem::index {
namespace {

// Below this share of the slots, and this many bytes, copying the rows side by side costs less than walking over all marks.
constexpr std::int64_t kListedShare = 16;
constexpr std::int64_t kListedBytes = std::int64_t{256} << 20;

bool is_few(const RowStore& store, std::int64_t slots) {
  return slots <= store.slots() / kListedShare && slots <= kListedBytes / store.row_bytes();
}

Selection select_ids(const RowStore& store, const std::int64_t* ids, std::int64_t count) {
  Selection selection;
  std::vector<std::int64_t> slots;
  slots.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    if (const std::int64_t slot = store.find(ids[i]); slot >= 0) slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  if (is_few(store, static_cast<std::int64_t>(slots.size()))) {
    selection.form = Selection::Form::listed;
    selection.slots = std::move(slots);
    return selection;
  }
  selection.form = Selection::Form::marked;
  selection.marks.assign(static_cast<std::size_t>(store.slots()), 0);
  for (const std::int64_t slot : slots) selection.marks[static_cast<std::size_t>(slot)] = 1;
  return selection;
}

// Marks of live rows, `stride` bytes apart, as marks of slots.
void spread(const RowStore& store, const std::uint8_t* marks, std::int64_t stride, std::uint8_t* out) {
  const std::uint8_t* alive = store.alive();
  if (alive == nullptr && stride == 1) {
    if (store.slots() > 0) std::memcpy(out, marks, static_cast<std::size_t>(store.slots()));
    return;
  }
  for (std::int64_t slot = 0; slot < store.slots(); ++slot) {
    const bool lives = alive == nullptr || alive[slot] != 0;
    out[slot] = lives ? *marks : 0;
    if (lives) marks += stride;
  }
}

// Where the `count` bytes that are not zero stand, among mostly zeros.
std::vector<std::int64_t> places_of(const std::vector<std::uint8_t>& marks, std::int64_t count) {
  std::vector<std::int64_t> places;
  places.reserve(static_cast<std::size_t>(count));
  std::size_t i = 0;
  while (i < marks.size()) {
    std::uint64_t eight = 1;
    if (i + sizeof eight <= marks.size()) std::memcpy(&eight, marks.data() + i, sizeof eight);
    if (eight == 0) {
      i += sizeof eight;
      continue;
    }
    const std::size_t end = std::min(i + sizeof eight, marks.size());
    for (; i < end; ++i) {
      if (marks[i] != 0) places.push_back(static_cast<std::int64_t>(i));
    }
  }
  return places;
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
  for (std::int64_t query = 0; query < masks; ++query, out += store.slots()) {
    spread(store, filter.mask.data + query * filter.mask.query_stride, filter.mask.key_stride, out);
  }
  if (filter.mask_queries > 0) return selection;
  const std::int64_t marked = store.slots() - std::count(selection.marks.begin(), selection.marks.end(), std::uint8_t{0});
  if (!is_few(store, marked)) return selection;
  Selection listed;
  listed.form = Selection::Form::listed;
  listed.slots = places_of(selection.marks, marked);
  return listed;
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

PreparedFilter::PreparedFilter(std::uint64_t index, const index::RowStore& store, const IndexFilter& filter)
    : index_(index),
      ids_(filter.ids, filter.ids + std::max<std::int64_t>(0, filter.id_count)),
      filter_(filter),
      membership_(store.membership()),
      layout_(store.layout()),
      selection_(std::make_shared<const index::Selection>(index::select(store, filter))) {
  filter_.ids = ids_.data();
  if (filter.mask_count < 0) return;
  const std::int64_t masks = std::max<std::int64_t>(1, filter.mask_queries);
  mask_.reserve(static_cast<std::size_t>(masks * filter.mask_count));
  for (std::int64_t query = 0; query < masks; ++query) {
    const std::uint8_t* marks = filter.mask.data + query * filter.mask.query_stride;
    for (std::int64_t i = 0; i < filter.mask_count; ++i) mask_.push_back(marks[i * filter.mask.key_stride]);
  }
  filter_.mask = Mask{mask_.data(), filter.mask_count, 1};
}

std::shared_ptr<const index::Selection> PreparedFilter::at(std::uint64_t index, const index::RowStore& store) {
  if (index != index_) throw ArgumentError("filter: it was prepared by another index; prepare it with the one that is searched");
  if (filter_.mask_count >= 0 && membership_ != store.membership()) {
    throw ArgumentError("filter: its mask was prepared before rows were added or removed; prepare it again, or prepare one of ids, which lasts");
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  if (layout_ != store.layout()) {
    selection_ = std::make_shared<const index::Selection>(index::select(store, filter_));
    layout_ = store.layout();
  }
  return selection_;
}

}  // namespace prismem
