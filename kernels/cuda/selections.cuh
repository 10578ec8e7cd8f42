// What a scan does with its scores: keep the best of each query, keep the largest alone, or store them.
#pragma once

#include "best.cuh"
#include "scan.cuh"

namespace prismem::cuda {

// The best keys of each query. Results of a range that is split go to `partial`, `width` keys (sorted, then zeros) a slot.
template <int kThreads, int kQueries>
struct KeepBest {
  struct Output {
    BestOutput hits;
    std::uint64_t* partial;  // null: no range is split
    std::int32_t capacity;
    std::int32_t round;
  };

  const Output& out;
  BestLists<kThreads, kQueries> lists;

  PRISMEM_DEVICE KeepBest(const Output& output, int byte_offset)
      : out(output), lists(byte_offset, output.capacity, output.round, output.hits.width) {}
  PRISMEM_DEVICE void clear() { lists.clear(); }
  PRISMEM_DEVICE std::uint64_t ceiling(std::int64_t query) const { return out.hits.ceiling(query); }

  PRISMEM_DEVICE void offer(const Scan& scan, int q, int, std::int64_t query, std::int64_t key, std::int64_t base, float score,
                            std::uint64_t ceiling) {
    const std::uint64_t packed_key = packed(score, static_cast<std::uint32_t>(key - base));
    // Nearly every score ends here; only one that is not finite must be looked at although it is small.
    if (is_finite(score) && (packed_key <= lists.thresholds.get(q) || packed_key >= ceiling)) return;
    if (!scan.filter.admits(query, key, score)) return;
    if (packed_key > lists.thresholds.get(q) && packed_key < ceiling) lists.append(q, packed_key);
  }
  PRISMEM_DEVICE void end_round(const Item& item) { lists.cut_full(static_cast<int>(item.queries)); }

  template <class QueryOf>
  PRISMEM_DEVICE void finish(const Scan& scan, const Item& item, QueryOf, int, int) {
    const int width = out.hits.width;
    for (int q = 0; q < item.queries; ++q) {
      lists.sort(q);
      const Shared<std::uint64_t> list = lists.keys + q * lists.capacity;
      const int count = lists.counts.get(q);
      if (out.partial == nullptr) {
        write_hits<kThreads>(out.hits, scan.query(item.first + q), list, count);
        continue;
      }
      std::uint64_t* to = out.partial + (item.slot + q * item.slot_step) * width;
      for (int i = thread_index(); i < width; i += kThreads) store(to + i, i < count ? list.get(i) : std::uint64_t{0});
    }
  }
};

// The largest score of each query. A thread offers to at most kOwn queries.
template <int kThreads, int kQueries, int kOwn>
struct KeepLargest {
  struct Output {
    float* values;
    std::int64_t* indices;
    std::uint64_t* partial;  // null: no range is split
  };

  const Output& out;
  Shared<std::uint64_t> largest;
  std::uint64_t own[kOwn];

  static PRISMEM_HOST_DEVICE int bytes() { return kQueries * 8; }

  PRISMEM_DEVICE KeepLargest(const Output& output, int byte_offset) : out(output), largest(Shared<std::uint64_t>::at(byte_offset)) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = 0;
  }
  PRISMEM_DEVICE void clear() {
    for (int q = thread_index(); q < kQueries; q += kThreads) largest.set(q, 0);
  }
  PRISMEM_DEVICE std::uint64_t ceiling(std::int64_t) const { return 0; }

  PRISMEM_DEVICE void offer(const Scan& scan, int, int i, std::int64_t query, std::int64_t key, std::int64_t base, float score,
                            std::uint64_t) {
    const std::uint64_t packed_key = packed(score, static_cast<std::uint32_t>(key - base));
    if (is_finite(score) && packed_key <= own[i]) return;
    if (scan.filter.admits(query, key, score) && packed_key > own[i]) own[i] = packed_key;
  }
  PRISMEM_DEVICE void end_round(const Item&) {}

  // query_of(i) is the query that the thread's own[i] belongs to or -1; lanes whose numbers differ in the bits from `low` to `high`
  // have the same.
  template <class QueryOf>
  PRISMEM_DEVICE void finish(const Scan& scan, const Item& item, QueryOf query_of, int low, int high) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      for (int bit = low; bit <= high; bit *= 2) {
        const std::uint64_t other = shuffle_xor(own[i], bit);
        own[i] = other > own[i] ? other : own[i];
      }
      const int q = query_of(i);
      if (q >= 0 && own[i] != 0 && (thread_index() & (2 * high - low)) == 0) largest.maximum(q, own[i]);
    }
    sync_block<8>();
    for (int q = thread_index(); q < item.queries; q += kThreads) {
      const std::uint64_t key = largest.get(q);
      if (out.partial != nullptr) {
        store(out.partial + item.slot + q * item.slot_step, key);
      } else {
        write_largest(out, scan.query(item.first + q), key);
      }
    }
  }

  static PRISMEM_DEVICE void write_largest(const Output& out, std::int64_t query, std::uint64_t key) {
    store(out.values + query, key == 0 ? 0.0f : score_of(key));
    store(out.indices + query, key == 0 ? std::int64_t{-1} : index_of(key));
  }
};

// All scores.
struct StoreScores {
  struct Output {
    float* scores;
    std::int64_t row_stride;
  };

  const Output& out;

  PRISMEM_DEVICE StoreScores(const Output& output, int) : out(output) {}
  PRISMEM_DEVICE void clear() {}
  PRISMEM_DEVICE std::uint64_t ceiling(std::int64_t) const { return 0; }
  PRISMEM_DEVICE void offer(const Scan& scan, int, int, std::int64_t query, std::int64_t key, std::int64_t, float score, std::uint64_t) {
    store(out.scores + query * out.row_stride + key, score);
    if (!is_finite(score)) scan.filter.admits(query, key, score);
  }
  PRISMEM_DEVICE void end_round(const Item&) {}
  template <class QueryOf>
  PRISMEM_DEVICE void finish(const Scan&, const Item&, QueryOf, int, int) {}
};

}  // namespace prismem::cuda
