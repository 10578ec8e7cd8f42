// The best keys of a few queries in shared memory: lists that grow behind a threshold and are cut back when they are nearly full.
#pragma once

#include "rows.cuh"

namespace prismem::cuda {

// Where the hits of a query go: `width` of them from column `column` on. A later pass of a search for many hits looks below the
// ceiling that the pass before has left.
struct BestOutput {
  std::int64_t* indices;  // (queries, row_stride)
  float* scores;
  std::int64_t* counts;
  std::uint64_t* ceilings;  // (queries), null where one pass is enough
  std::int64_t row_stride;
  std::int64_t column;
  std::int32_t width;

  PRISMEM_DEVICE std::uint64_t ceiling(std::int64_t query) const {
    return ceilings == nullptr || column == 0 ? ~std::uint64_t{0} : load(ceilings + query);
  }
};

// Lists of `queries` queries with room for `capacity` keys each. Between two calls of cut_full, at most `round` keys are offered to
// a query, and capacity >= width + round.
template <int kThreads, int kQueries>
struct BestLists {
  static constexpr int kOwn = 2;  // keys that a thread holds while a list is sorted: capacity <= kOwn * kThreads

  Shared<std::uint64_t> keys;
  Shared<std::uint64_t> thresholds;
  Shared<int> counts;
  Shared<int> any_full;
  int capacity;
  int round;
  int width;

  static PRISMEM_HOST_DEVICE int bytes(int capacity) { return kQueries * capacity * 8 + kQueries * 8 + kQueries * 4 + 16; }

  PRISMEM_DEVICE BestLists(int byte_offset, int capacity_, int round_, int width_) : capacity(capacity_), round(round_), width(width_) {
    keys = Shared<std::uint64_t>::at(byte_offset);
    thresholds = Shared<std::uint64_t>::at(byte_offset + kQueries * capacity * 8);
    counts = Shared<int>::at(byte_offset + kQueries * capacity * 8 + kQueries * 8);
    any_full = counts + kQueries;
  }

  // A barrier must follow.
  PRISMEM_DEVICE void clear() const {
    for (int q = thread_index(); q < kQueries; q += kThreads) {
      thresholds.set(q, 0);
      counts.set(q, 0);
    }
    if (thread_index() == 0) any_full.set(0, 0);
  }

  PRISMEM_DEVICE void append(int query, std::uint64_t key) const {
    const int position = counts.add(query, 1);
    keys.set(query * capacity + position, key);
    if (position == capacity - round) any_full.add(0, 1);
  }

  // Sorts a list, largest first, cuts it to `width` and raises the threshold. Keys are distinct, so each has a rank of its own.
  PRISMEM_DEVICE void sort(int query) const {
    const Shared<std::uint64_t> list = keys + query * capacity;
    const int count = counts.get(query);
    std::uint64_t own[kOwn];
    int ranks[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int position = thread_index() + i * kThreads;
      own[i] = position < count ? list.get(position) : 0;
      ranks[i] = 0;
    }
    for (int position = 0; position < count; ++position) {
      const std::uint64_t other = list.get(position);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) ranks[i] += other > own[i] ? 1 : 0;
    }
    sync_block<1>();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (own[i] == 0 || ranks[i] >= width) continue;
      list.set(ranks[i], own[i]);
      if (ranks[i] == width - 1) thresholds.set(query, own[i]);
    }
    if (thread_index() == 0) counts.set(query, count < width ? count : width);
    sync_block<2>();
  }

  // Makes room for another round. To be called by the whole block.
  PRISMEM_DEVICE void cut_full(int queries) const {
    sync_block<3>();
    if (any_full.get(0) != 0) {
      for (int q = 0; q < queries; ++q) {
        if (counts.get(q) > capacity - round) sort(q);
      }
      if (thread_index() == 0) any_full.set(0, 0);
    }
    sync_block<4>();
  }
};

// Writes a sorted list as the hits of a query.
template <int kThreads>
PRISMEM_DEVICE void write_hits(const BestOutput& out, std::int64_t query, Shared<std::uint64_t> list, int count) {
  const std::int64_t first = query * out.row_stride + out.column;
  for (int i = thread_index(); i < out.width; i += kThreads) {
    const std::uint64_t key = i < count ? list.get(i) : 0;
    store(out.scores + first + i, key == 0 ? float_of_bits(0xff800000u) : score_of(key));
    store(out.indices + first + i, key == 0 ? std::int64_t{-1} : index_of(key));
  }
  if (thread_index() == 0) {
    const std::int64_t before = out.column == 0 ? 0 : load(out.counts + query);
    store(out.counts + query, before + count);
    if (out.ceilings != nullptr) store(out.ceilings + query, count == out.width ? list.get(count - 1) : std::uint64_t{0});
  }
}

}  // namespace prismem::cuda
