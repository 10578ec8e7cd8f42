#include "prismem/index.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <utility>

#include "codes/code_search.hpp"
#include "index/index_file.hpp"
#include "index/index_lock.hpp"
#include "index/row_store.hpp"
#include "index/row_values.hpp"
#include "index/selection.hpp"
#include "index/store_codes.hpp"
#include "support/error.hpp"

namespace prismem {
namespace {

using index::IndexLock;
using index::RowStore;
using index::Selection;
using index::StoreCodes;
using ReadGuard = std::shared_lock<IndexLock>;
using WriteGuard = std::unique_lock<IndexLock>;

constexpr std::int64_t kMmrBytes = std::int64_t{32} << 20;  // rows of candidates side by side at a time

std::atomic<std::uint64_t> next_index_number{1};

// The best slots of each query, `width` cells each.
struct BestSlots {
  std::int64_t width = 0;
  std::vector<float> scores;
  std::vector<std::int64_t> slots;
  std::vector<std::int64_t> counts;
};

void check_dim(const Rows& rows, const std::string& name, const IndexOptions& options) {
  if (rows.dim == options.dim) return;
  throw ArgumentError(name + ": expected " + std::to_string(options.dim) + " dimensions, as the rows of this index have, got " +
                      std::to_string(rows.dim) + "; were they embedded by the same model?");
}

void check_queries(const Rows& queries, const IndexOptions& options) {
  check_dim(queries, "queries", options);
  if (const std::int64_t bad = index::first_nonfinite(queries); bad >= 0) {
    throw ArgumentError("queries: row " + std::to_string(bad) + " holds NaN or infinity; mend the row");
  }
}

void check_dim_for_codes(const IndexOptions& options) {
  if (RowCodes::supports(options.dim)) return;
  throw ArgumentError("codes: expected at most " + std::to_string(kMaxCodeDim) + " dimensions, got " + std::to_string(options.dim) +
                      "; such rows are searched without codes");
}

// Rows of some slots, side by side.
class GatheredRows {
 public:
  GatheredRows(const RowStore& store, const std::int64_t* slots, std::int64_t count)
      : bytes_(static_cast<std::size_t>(count * store.row_bytes())), rows_(store.rows()) {
    const char* from = static_cast<const char*>(rows_.data);
    unsigned char* to = bytes_.data();
    const std::size_t row_bytes = static_cast<std::size_t>(store.row_bytes());
    for (std::int64_t i = 0; i < count; ++i, to += row_bytes) std::memcpy(to, from + slots[i] * store.row_bytes(), row_bytes);
    rows_.data = bytes_.data();
    rows_.count = count;
  }
  const Rows& rows() const { return rows_; }

 private:
  HugeBuffer bytes_;
  Rows rows_;
};

}  // namespace

struct VectorIndex::State {
  State(RowStore content, CodePolicy policy) : store(std::move(content)), codes(policy) {}

  IndexLock lock;
  RowStore store;
  StoreCodes codes;
  const std::uint64_t number = next_index_number++;

  ReadGuard read() { return ReadGuard(lock); }

  // A lock for reading, with the table of ids there.
  ReadGuard read_with_table() {
    for (;;) {
      ReadGuard guard(lock);
      if (store.has_table()) return guard;
      guard.unlock();
      const WriteGuard writing(lock);
      if (!store.has_table()) store.build_table();
    }
  }

  // A lock for a search, with all there that it needs.
  ReadGuard read_for(const IndexFilter& filter, std::int64_t num_queries, const RunOptions& run) {
    for (bool counted = false;; counted = true) {
      ReadGuard guard = filter.id_count >= 0 || filter.prepared != nullptr ? read_with_table() : read();
      if (counted || !codes.wanted_after(store, num_queries)) return guard;
      guard.unlock();
      const WriteGuard writing(lock);
      try {
        if (!codes.present()) codes.build(store, run);
      } catch (const std::bad_alloc&) {
        // The search goes on without.
      }
    }
  }

  WriteGuard write() {
    if (store.is_mapped()) {
      throw VectorIndexError("this index is open for reading only: it was opened from a file, mapped; VectorIndex.load() makes a copy that can be changed");
    }
    return WriteGuard(lock);
  }

  void close_gaps(const RunOptions& run) {
    const std::int64_t first_moved = store.compact();
    codes.follow_move(store, first_moved, run);
  }

  bool cosine() const { return store.options().metric == Metric::cosine; }

  std::shared_ptr<const Selection> selection(const IndexFilter& filter, std::int64_t num_queries) const {
    std::shared_ptr<const Selection> selected = filter.prepared != nullptr ? filter.prepared->at(number, store)
                                                                           : std::make_shared<const Selection>(index::select(store, filter));
    if (selected->mark_queries > 0 && selected->mark_queries != num_queries) {
      throw ArgumentError("filter: the mask was made for " + std::to_string(selected->mark_queries) + " queries, but there are " + std::to_string(num_queries));
    }
    return selected;
  }

  [[noreturn]] void refuse_score(const Report& report, std::int64_t slot) const {
    // Rows are finite when they are added; those of a mapped file need not be.
    if (index::first_nonfinite(GatheredRows(store, &slot, 1).rows()) == 0) {
      throw VectorIndexError("the file of this index is damaged: the row with id " + std::to_string(store.ids()[slot]) +
                             " holds NaN or infinity; VectorIndex.open(path, verify=True) looks at all of it");
    }
    throw ArgumentError("queries: the score of row " + std::to_string(report.bad_query) + " with id " + std::to_string(store.ids()[slot]) +
                        " is too large for float32; scale the rows");
  }

  BestSlots best(const Rows& queries, const Selection& selection, const SearchOptions& options, const RunOptions& run) const {
    const bool listed = selection.form == Selection::Form::listed;
    const std::int64_t candidates = listed ? static_cast<std::int64_t>(selection.slots.size()) : store.slots();
    const std::int64_t width = std::min(options.k, candidates);
    BestSlots found;
    found.width = width;
    found.scores.resize(static_cast<std::size_t>(queries.count * width));
    found.slots.resize(found.scores.size());
    found.counts.resize(static_cast<std::size_t>(queries.count));
    float* const scores = found.scores.data();
    std::int64_t* const slots = found.slots.data();
    std::int64_t* const counts = found.counts.data();
    const TopKOptions wanted{width, cosine(), options.has_min_score, options.min_score};
    const Segments whole{nullptr, 0, nullptr};
    if (listed) {
      const GatheredRows gathered(store, selection.slots.data(), candidates);
      const Report report = top_k(queries, gathered.rows(), whole, Mask{nullptr, 0, 0}, wanted, width, scores, slots, counts, run);
      if (report.bad_key >= 0) refuse_score(report, selection.slots[static_cast<std::size_t>(report.bad_key)]);
      for (std::int64_t& slot : found.slots) {
        if (slot >= 0) slot = selection.slots[static_cast<std::size_t>(slot)];
      }
    } else {
      const Mask mask = selection.mask(store);
      const Report report = codes.present() ? coded_top_k(queries, store.rows(), codes.view(), mask, wanted, width, scores, slots, counts, run)
                                            : top_k(queries, store.rows(), whole, mask, wanted, width, scores, slots, counts, run);
      if (report.bad_key >= 0) refuse_score(report, report.bad_key);
    }
    return found;
  }

  // Ids for slots, and no column that no query uses.
  Found named(BestSlots best) const {
    Found found;
    found.width = best.counts.empty() ? best.width : *std::max_element(best.counts.begin(), best.counts.end());
    const std::int64_t* ids = store.ids();
    const std::size_t used = static_cast<std::size_t>(found.width), width = static_cast<std::size_t>(best.width);
    for (std::size_t query = 0; query < best.counts.size(); ++query) {
      for (std::size_t column = 0; column < used; ++column) {
        const std::int64_t slot = best.slots[query * width + column];
        best.slots[query * used + column] = slot >= 0 ? ids[slot] : -1;
        best.scores[query * used + column] = best.scores[query * width + column];
      }
    }
    best.slots.resize(best.counts.size() * used);
    best.scores.resize(best.counts.size() * used);
    found.scores = std::move(best.scores);
    found.ids = std::move(best.slots);
    found.counts = std::move(best.counts);
    return found;
  }

  BestSlots diverse(const Rows& queries, const Selection& selection, const MmrSearchOptions& options, const RunOptions& run) const;
};

VectorIndex::VectorIndex(std::unique_ptr<State> state) : state_(std::move(state)) {}
VectorIndex::VectorIndex(const IndexOptions& options, CodePolicy codes) : state_(std::make_unique<State>(RowStore(options), codes)) {
  if (codes == CodePolicy::always) check_dim_for_codes(options);
}
VectorIndex::~VectorIndex() = default;

std::unique_ptr<VectorIndex> VectorIndex::load(const std::string& path, CodePolicy codes) {
  const index::IndexFile file(path);
  auto state = std::make_unique<State>(RowStore::copied(file), codes);
  if (codes != CodePolicy::never && file.has_codes()) state->codes.adopt_copy(file);
  return std::unique_ptr<VectorIndex>(new VectorIndex(std::move(state)));
}

std::unique_ptr<VectorIndex> VectorIndex::open(const std::string& path, bool verify, CodePolicy codes) {
  auto file = std::make_unique<const index::MappedIndexFile>(path);
  if (verify) file->verify();
  const index::MappedIndexFile& kept = *file;
  auto state = std::make_unique<State>(RowStore::mapped(std::move(file)), codes);
  if (codes != CodePolicy::never && kept.has_codes()) state->codes.adopt_mapped(kept);
  return std::unique_ptr<VectorIndex>(new VectorIndex(std::move(state)));
}

const IndexOptions& VectorIndex::options() const { return state_->store.options(); }

bool VectorIndex::read_only() const { return state_->store.is_mapped(); }

std::int64_t VectorIndex::size() const {
  const ReadGuard guard = state_->read();
  return state_->store.live();
}

std::vector<std::int64_t> VectorIndex::ids() const {
  const ReadGuard guard = state_->read();
  const RowStore& store = state_->store;
  std::vector<std::int64_t> every;
  every.reserve(static_cast<std::size_t>(store.live()));
  for (std::int64_t slot = 0; slot < store.slots(); ++slot) {
    if (store.alive() == nullptr || store.alive()[slot] != 0) every.push_back(store.ids()[slot]);
  }
  return every;
}

bool VectorIndex::contains(std::int64_t id) const {
  const ReadGuard guard = state_->read_with_table();
  return state_->store.find(id) >= 0;
}

IndexStats VectorIndex::stats() const {
  const ReadGuard guard = state_->read();
  const RowStore& store = state_->store;
  IndexStats stats;
  stats.count = store.live();
  stats.removed = store.dead();
  stats.capacity = store.capacity();
  stats.row_bytes = store.memory_of_rows();
  stats.id_bytes = store.memory_of_ids();
  stats.coded = state_->codes.present();
  stats.code_bytes = state_->codes.memory();
  stats.code_seconds = state_->codes.build_seconds();
  return stats;
}

std::vector<std::int64_t> VectorIndex::add(const Rows& rows, const std::int64_t* ids, const RunOptions& run) {
  check_dim(rows, "vectors", options());
  const WriteGuard guard = state_->write();
  RowStore& store = state_->store;
  store.append(rows, ids);
  state_->codes.follow_append(store, run);
  const std::int64_t* added = store.ids() + store.slots() - rows.count;
  return std::vector<std::int64_t>(added, added + rows.count);
}

void VectorIndex::update(const Rows& rows, const std::int64_t* ids, const RunOptions& run) {
  check_dim(rows, "vectors", options());
  const WriteGuard guard = state_->write();
  const std::vector<std::int64_t> slots = state_->store.find_all(ids, rows.count, true);
  state_->store.update(rows, slots);
  state_->codes.follow_update(state_->store, slots, run);
}

void VectorIndex::remove(const std::int64_t* ids, std::int64_t count, const RunOptions& run) {
  const WriteGuard guard = state_->write();
  RowStore& store = state_->store;
  store.remove(store.find_all(ids, count, true));
  if (store.is_sparse()) state_->close_gaps(run);
}

void VectorIndex::reserve(std::int64_t count) {
  const WriteGuard guard = state_->write();
  state_->store.reserve(count);
}

void VectorIndex::get(const std::int64_t* ids, std::int64_t count, float* out) const {
  const ReadGuard guard = state_->read_with_table();
  const RowStore& store = state_->store;
  const std::vector<std::int64_t> slots = store.find_all(ids, count, false);
  Rows row = store.rows();
  const char* every = static_cast<const char*>(row.data);
  row.count = 1;
  for (const std::int64_t slot : slots) {
    row.data = every + slot * store.row_bytes();
    index::convert_rows(row, Kind::f32, out);
    out += row.dim;
  }
}

Found VectorIndex::search(const Rows& queries, const SearchOptions& options, const IndexFilter& filter, const RunOptions& run) const {
  check_queries(queries, this->options());
  const ReadGuard guard = state_->read_for(filter, queries.count, run);
  const std::shared_ptr<const Selection> selection = state_->selection(filter, queries.count);
  return state_->named(state_->best(queries, *selection, options, run));
}

BestSlots VectorIndex::State::diverse(const Rows& queries, const Selection& selection, const MmrSearchOptions& options, const RunOptions& run) const {
  const SearchOptions relevant{std::max(options.pool, options.k), options.has_min_relevance, options.min_relevance};
  BestSlots pool = best(queries, selection, relevant, run);
  BestSlots picks;
  picks.width = std::min(options.k, pool.width);
  picks.scores.resize(static_cast<std::size_t>(queries.count * picks.width));
  picks.slots.resize(picks.scores.size());
  picks.counts.resize(static_cast<std::size_t>(queries.count));
  const MmrOptions wanted{picks.width, options.relevance_weight, cosine(), false, 0.0f};
  // In the order of slots, so that ties fall as they do over all rows.
  for (std::int64_t query = 0; query < queries.count; ++query) {
    std::int64_t* slots = pool.slots.data() + query * pool.width;
    std::sort(slots, slots + pool.counts[static_cast<std::size_t>(query)]);
  }
  std::vector<std::int64_t> candidates, ranges;
  for (std::int64_t begin = 0, end = 0; begin < queries.count; begin = end) {
    candidates.clear();
    ranges.clear();
    do {
      const std::int64_t* slots = pool.slots.data() + end * pool.width;
      ranges.push_back(static_cast<std::int64_t>(candidates.size()));
      candidates.insert(candidates.end(), slots, slots + pool.counts[static_cast<std::size_t>(end)]);
      ranges.push_back(static_cast<std::int64_t>(candidates.size()));
      ++end;
    } while (end < queries.count && static_cast<std::int64_t>(candidates.size()) * store.row_bytes() < kMmrBytes);
    const GatheredRows gathered(store, candidates.data(), static_cast<std::int64_t>(candidates.size()));
    const std::int64_t element = index::bytes_of(queries.kind);
    const Rows some{static_cast<const char*>(queries.data) + begin * queries.stride * element, end - begin, queries.dim, queries.stride, queries.kind};
    const Segments segments{ranges.data(), end - begin, nullptr};
    mmr_select(some, gathered.rows(), segments, Mask{nullptr, 0, 0}, wanted, picks.width, picks.slots.data() + begin * picks.width,
               picks.scores.data() + begin * picks.width, picks.counts.data() + begin, run);
    for (std::int64_t query = begin; query < end; ++query) {
      const std::int64_t* own = candidates.data() + ranges[static_cast<std::size_t>(2 * (query - begin))];
      std::int64_t* cells = picks.slots.data() + query * picks.width;
      for (std::int64_t i = 0; i < picks.counts[static_cast<std::size_t>(query)]; ++i) cells[i] = own[cells[i]];
    }
  }
  return picks;
}

Found VectorIndex::mmr(const Rows& queries, const MmrSearchOptions& options, const IndexFilter& filter, const RunOptions& run) const {
  check_queries(queries, this->options());
  const ReadGuard guard = state_->read_for(filter, queries.count, run);
  const std::shared_ptr<const Selection> selection = state_->selection(filter, queries.count);
  return state_->named(state_->diverse(queries, *selection, options, run));
}

std::shared_ptr<PreparedFilter> VectorIndex::prepare(const IndexFilter& filter) const {
  if (filter.prepared != nullptr) throw ArgumentError("filter: it is prepared already");
  const ReadGuard guard = state_->read_with_table();
  return std::make_shared<PreparedFilter>(state_->number, state_->store, filter);
}

void VectorIndex::build_codes(const RunOptions& run) const {
  check_dim_for_codes(options());
  const WriteGuard guard(state_->lock);
  state_->codes.build(state_->store, run);
}

void VectorIndex::save(const std::string& path, const RunOptions& run) const {
  const RowStore& store = state_->store;
  for (;;) {
    {
      const ReadGuard guard = state_->read();
      if (store.dead() == 0) {
        std::vector<index::SectionData> sections = {{index::SectionKind::rows, store.rows().data, store.slots() * store.row_bytes()},
                                                    {index::SectionKind::ids, store.ids(), store.slots() * 8}};
        state_->codes.list_sections(sections);
        index::write_index_file(path, index::IndexHeader{store.options(), store.slots(), store.next_id()}, sections);
        return;
      }
    }
    const WriteGuard guard(state_->lock);
    state_->close_gaps(run);
  }
}

}  // namespace prismem
