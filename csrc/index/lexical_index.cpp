#include "index/lexical_index.hpp"

#include <algorithm>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "index/index_lock.hpp"
#include "index/lexical_file.hpp"
#include "support/error.hpp"
#include "support/parallel.hpp"

namespace prismem {
namespace {

using index::Bm25;
using index::IndexLock;
using index::LexicalHit;
using index::PostingStore;
using index::WeightedTerm;
using ReadGuard = std::shared_lock<IndexLock>;
using WriteGuard = std::unique_lock<IndexLock>;

constexpr std::int64_t kMaxId = std::numeric_limits<std::int64_t>::max();

// Bytes that say for each slot whether a query may find it; none where all may.
struct Allowed {
  std::vector<std::uint8_t> marks;
  std::int64_t stride = 0;  // 0: the same for all queries

  const std::uint8_t* of(std::int64_t query) const { return marks.empty() ? nullptr : marks.data() + query * stride; }
};

Allowed allowed_by(const PostingStore& store, const IndexFilter& filter, std::int64_t num_queries) {
  Allowed allowed;
  const std::size_t slots = static_cast<std::size_t>(store.slots());
  if (filter.id_count >= 0) {
    allowed.marks.assign(slots, 0);
    for (std::int64_t i = 0; i < filter.id_count; ++i) {
      if (const std::int64_t slot = store.slot_of(filter.ids[i]); slot >= 0) allowed.marks[static_cast<std::size_t>(slot)] = 1;
    }
  } else if (filter.mask_count >= 0) {
    if (filter.mask_count != store.live()) {
      throw ArgumentError("filter: expected a mask with " + std::to_string(store.live()) +
                          " values a query, one for each text of the index in the order of ids, got " + std::to_string(filter.mask_count));
    }
    if (filter.mask_queries > 0 && filter.mask_queries != num_queries) {
      throw ArgumentError("filter: the mask was made for " + std::to_string(filter.mask_queries) + " queries, but there are " + std::to_string(num_queries));
    }
    const std::int64_t masks = std::max<std::int64_t>(1, filter.mask_queries);
    allowed.stride = filter.mask_queries > 0 ? store.slots() : 0;
    allowed.marks.assign(static_cast<std::size_t>(masks) * slots, 0);
    const std::vector<std::int32_t> order = store.slots_in_order();
    for (std::int64_t mask = 0; mask < masks; ++mask) {
      const std::uint8_t* from = filter.mask.data + mask * filter.mask.query_stride;
      std::uint8_t* to = allowed.marks.data() + mask * store.slots();
      for (const std::int32_t slot : order) {
        to[slot] = *from != 0 ? 1 : 0;
        from += filter.mask.key_stride;
      }
    }
  }
  return allowed;
}

// The slots of ids that must be there, each once.
std::vector<std::int64_t> slots_of(const PostingStore& store, const std::int64_t* ids, std::int64_t count) {
  std::vector<std::int64_t> slots;
  slots.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    slots.push_back(store.slot_of(ids[i]));
    if (slots.back() < 0) throw ArgumentError("ids: there is no text with id " + std::to_string(ids[i]) + " (position " + std::to_string(i) + ")");
  }
  std::vector<std::int64_t> sorted = slots;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) throw ArgumentError("ids: id " + std::to_string(store.id(*twice)) + " is given twice; name each text once");
  return slots;
}

void check_new_ids(const PostingStore& store, const std::int64_t* ids, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (store.slot_of(ids[i]) >= 0) throw ArgumentError("ids: id " + std::to_string(ids[i]) + " is in the index already (position " + std::to_string(i) + "); update() replaces its text");
  }
  std::vector<std::int64_t> sorted(ids, ids + count);
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) throw ArgumentError("ids: id " + std::to_string(*twice) + " is given twice");
}

// Stages texts, and takes them out again unless the change goes through.
class StagedTexts {
 public:
  StagedTexts(PostingStore& store, const TokenLists& texts) : store_(store), first_(store.slots()) {
    try {
      for (std::int64_t i = 0; i < texts.count(); ++i) store_.stage(texts.begin(i), texts.length(i));
      store_.reserve_live(store_.live() + texts.count());
    } catch (...) {
      store_.cut(first_);
      throw;
    }
  }
  std::int64_t slot(std::int64_t text) const { return first_ + text; }

 private:
  PostingStore& store_;
  const std::int64_t first_;
};

}  // namespace

struct LexicalIndex::State {
  index::Bm25Options options;
  std::string tokenizer;
  PostingStore store;
  mutable IndexLock lock;

  ReadGuard read() const { return guarded<ReadGuard>(); }
  WriteGuard write() const { return guarded<WriteGuard>(); }

 private:
  template <class Guard>
  Guard guarded() const {
    try {
      return Guard(lock);
    } catch (const VectorIndexError& broken) {
      throw LexicalIndexError(broken.what());
    }
  }
};

LexicalIndex::LexicalIndex(std::unique_ptr<State> state) : state_(std::move(state)) {}
LexicalIndex::LexicalIndex(const index::Bm25Options& options, const std::string& tokenizer) : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->tokenizer = tokenizer;
}
LexicalIndex::~LexicalIndex() = default;

std::unique_ptr<LexicalIndex> LexicalIndex::load(const std::string& path) {
  index::LexicalContent content = index::read_lexical_file(path);
  auto state = std::make_unique<State>();
  state->options = content.options;
  state->tokenizer = std::move(content.tokenizer);
  state->store = std::move(content.store);
  return std::unique_ptr<LexicalIndex>(new LexicalIndex(std::move(state)));
}

const index::Bm25Options& LexicalIndex::options() const { return state_->options; }

const std::string& LexicalIndex::tokenizer() const { return state_->tokenizer; }

std::int64_t LexicalIndex::size() const {
  const ReadGuard guard = state_->read();
  return state_->store.live();
}

std::vector<std::int64_t> LexicalIndex::ids() const {
  const ReadGuard guard = state_->read();
  std::vector<std::int64_t> every;
  every.reserve(static_cast<std::size_t>(state_->store.live()));
  for (const std::int32_t slot : state_->store.slots_in_order()) every.push_back(state_->store.id(slot));
  return every;
}

bool LexicalIndex::contains(std::int64_t id) const {
  const ReadGuard guard = state_->read();
  return state_->store.slot_of(id) >= 0;
}

LexicalStats LexicalIndex::stats() const {
  const ReadGuard guard = state_->read();
  const PostingStore& store = state_->store;
  return LexicalStats{store.live(), store.removed(), store.terms().size(), store.tokens(), static_cast<std::int64_t>(store.bytes())};
}

std::vector<std::int64_t> LexicalIndex::add(const TokenLists& texts, const std::int64_t* ids) {
  const WriteGuard guard = state_->write();
  PostingStore& store = state_->store;
  const std::int64_t count = texts.count();
  std::vector<std::int64_t> added(static_cast<std::size_t>(count));
  if (ids != nullptr) {
    check_new_ids(store, ids, count);
    std::copy(ids, ids + count, added.begin());
  } else {
    if (count > kMaxId - store.next_id()) throw ArgumentError("ids: no automatic id is left after " + std::to_string(store.next_id() - 1) + "; pass ids");
    for (std::int64_t i = 0; i < count; ++i) added[static_cast<std::size_t>(i)] = store.next_id() + i;
  }
  const StagedTexts staged(store, texts);
  for (std::int64_t i = 0; i < count; ++i) store.enter(staged.slot(i), added[static_cast<std::size_t>(i)]);
  return added;
}

void LexicalIndex::update(const TokenLists& texts, const std::int64_t* ids) {
  const WriteGuard guard = state_->write();
  PostingStore& store = state_->store;
  const std::vector<std::int64_t> slots = slots_of(store, ids, texts.count());
  const StagedTexts staged(store, texts);
  for (std::int64_t i = 0; i < texts.count(); ++i) store.replace(slots[static_cast<std::size_t>(i)], staged.slot(i));
  store.tidy();
}

void LexicalIndex::remove(const std::int64_t* ids, std::int64_t count) {
  const WriteGuard guard = state_->write();
  PostingStore& store = state_->store;
  for (const std::int64_t slot : slots_of(store, ids, count)) store.leave(slot);
  store.tidy();
}

Found LexicalIndex::search(const TokenLists& queries, const SearchOptions& options, const IndexFilter& filter, int threads) const {
  const ReadGuard guard = state_->read();
  const PostingStore& store = state_->store;
  const std::int64_t num_queries = queries.count();
  const Allowed allowed = allowed_by(store, filter, num_queries);
  Bm25 scores(store, state_->options);
  std::vector<std::vector<WeightedTerm>> weighted(static_cast<std::size_t>(num_queries));
  std::int64_t postings = 0;
  for (std::int64_t query = 0; query < num_queries; ++query) {
    weighted[static_cast<std::size_t>(query)] = scores.weigh(queries.begin(query), queries.length(query));
    postings += scores.postings_of(weighted[static_cast<std::size_t>(query)]);
  }
  if (postings >= static_cast<std::int64_t>(store.shapes().size())) scores.tabulate();

  const std::int64_t k = std::min(options.k, store.live());
  const float min_score = options.has_min_score ? options.min_score : 0.0f;
  const int most = thread_count(threads, 4.0 * static_cast<double>(postings));
  std::vector<Bm25::Search> searches;
  for (int worker = 0; worker < most; ++worker) searches.emplace_back(scores);
  std::vector<std::vector<LexicalHit>> hits(static_cast<std::size_t>(num_queries));
  parallel_for(num_queries, most, [&](int worker, std::int64_t query) {
    const std::size_t at = static_cast<std::size_t>(query);
    hits[at] = searches[static_cast<std::size_t>(worker)].best(weighted[at], k, min_score, allowed.of(query));
  });

  Found found;
  for (const std::vector<LexicalHit>& row : hits) found.width = std::max(found.width, static_cast<std::int64_t>(row.size()));
  const std::size_t width = static_cast<std::size_t>(found.width);
  found.scores.assign(hits.size() * width, -std::numeric_limits<float>::infinity());
  found.ids.assign(hits.size() * width, -1);
  for (std::size_t query = 0; query < hits.size(); ++query) {
    found.counts.push_back(static_cast<std::int64_t>(hits[query].size()));
    for (std::size_t column = 0; column < hits[query].size(); ++column) {
      found.scores[query * width + column] = hits[query][column].score;
      found.ids[query * width + column] = store.id(hits[query][column].slot);
    }
  }
  return found;
}

void LexicalIndex::save(const std::string& path) const {
  const ReadGuard guard = state_->read();
  index::write_lexical_file(path, state_->options, state_->tokenizer, state_->store);
}

}  // namespace prismem
