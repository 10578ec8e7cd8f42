// Scores every key of a range with a few queries, and hands each score to a selection: once with a warp a key for any kind of rows,
// and (tiles.cuh) once with tensor cores for batches of half-precision rows.
//
// A block works on one item: some queries of one group and a piece of the range of keys that they see. Scores are never stored.
#pragma once

#include "rows.cuh"

namespace prismem::cuda {

constexpr int kItemFields = 7;

// A piece of work. `first` counts queries in the order of groups; `slot` is where the first query's partial result goes, and
// `slot_step` how far from it that of the next query.
struct Item {
  std::int64_t first, queries, begin, end, base, slot, slot_step;
};

struct Scan {
  RowsView queries;
  RowsView keys;
  std::int64_t dim;
  std::int64_t staged;  // elements of each query in shared memory at a time
  Filter filter;
  std::int32_t normalize;
  std::int32_t block_queries;
  const std::int64_t* items;  // null: all queries see all keys
  const std::int64_t* order;  // queries by group; null: as they are
  std::int64_t query_blocks;  // of a dense scan, with the fields below
  std::int64_t splits;
  std::int64_t span;

  PRISMEM_DEVICE Item item() const {
    if (items != nullptr) {
      const std::int64_t* at = items + block_index() * kItemFields;
      const auto field = [&](int i) { return load_uniform(at + i); };
      return Item{field(0), field(1), field(2), field(3), field(4), field(5), field(6)};
    }
    const auto block = static_cast<std::uint32_t>(block_index()), blocks = static_cast<std::uint32_t>(query_blocks);
    const std::int64_t split = block / blocks, first = static_cast<std::int64_t>(block % blocks) * block_queries;
    const std::int64_t left = queries.count - first;
    const std::int64_t end = (split + 1) * span;
    return Item{
        first, left < block_queries ? left : block_queries, split * span, end < keys.count ? end : keys.count, 0, first * splits + split,
        splits};
  }
  PRISMEM_DEVICE std::int64_t query(std::int64_t position) const { return order == nullptr ? position : load(order + position); }
  PRISMEM_DEVICE float power(const RowsView& rows, std::int64_t row) const {
    return rows.powers == nullptr ? 1.0f : load(rows.powers + row);
  }
  PRISMEM_DEVICE float inverse(const RowsView& rows, std::int64_t row) const { return normalize != 0 ? load(rows.inverses + row) : 0.0f; }
  // The score of a row of `left` with a key, from the product of the rows times their powers of two.
  PRISMEM_DEVICE float score(float product, const RowsView& left, float inverse_left, std::int64_t row, std::int64_t key) const {
    if (normalize != 0) return cosine(product, inverse_left, load(keys.inverses + key));
    return is_finite(product) ? product : wide_product(left, row, keys, key, dim);
  }
};

constexpr int kScanThreads = 256;
constexpr int kScanWarps = kScanThreads / kWarp;
constexpr int kRowsAWarp = 4;
constexpr int kScanRound = 256;  // keys between two calls of a selection's end_round

// Where element `e` of a query lies in shared memory: the parts of sixteen bytes that a warp reads together are neighbours, so that
// its lanes use all banks.
template <class T>
PRISMEM_DEVICE int staged_at(int e, int staged) {
  if (kQuadElements<T> == 4) return e;
  const int quad = e / 8, within = e % 8;
  return within < 4 ? quad * 4 + within : staged / 2 + quad * 4 + within - 4;
}

// Elements from `from` on of a row, times its power of two, as float32; zeros behind its end.
template <class T>
PRISMEM_DEVICE void stage_row(const Scan& scan, const RowsView& rows, std::int64_t row, bool real, Shared<float> to, std::int64_t from) {
  const int staged = static_cast<int>(scan.staged);
  const float power = real ? scan.power(rows, row) : 0.0f;
  for (int e = thread_index(); e < staged; e += kScanThreads) {
    const std::int64_t position = from + e;
    to.set(staged_at<T>(e, staged), real && position < scan.dim ? element(rows, row, position) * power : 0.0f);
  }
}

template <class T, int kQueries>
PRISMEM_DEVICE void stage_queries(const Scan& scan, const Item& item, Shared<float> to, std::int64_t from) {
#pragma unroll 1
  for (int q = 0; q < kQueries; ++q) {
    const bool real = q < item.queries;
    stage_row<T>(scan, scan.queries, real ? scan.query(item.first + q) : 0, real, to + q * static_cast<int>(scan.staged), from);
  }
}

// Adds to sums[row * kQueries + query] the products of elements from `from` on of the warp's rows.
template <class T, int kQueries>
PRISMEM_DEVICE void add_products(float (&sums)[kRowsAWarp * kQueries], const T* const (&rows)[kRowsAWarp], const bool (&real)[kRowsAWarp],
                                 const float (&powers)[kRowsAWarp], Shared<float> queries, int staged, std::int64_t dim, bool aligned,
                                 int lane) {
  constexpr int kElements = kQuadElements<T>;
  const int left = dim < staged ? static_cast<int>(dim) : staged;
  const int full = aligned ? left / kElements : 0;
  const auto accumulate = [&](int quad, const Quad(&raw)[kRowsAWarp]) {
    float query[kQueries][kElements];
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
#pragma unroll
      for (int part = 0; part < kElements / 4; ++part) {
        const Quad four = queries.get_quad(q * staged + part * (staged / 2) + quad * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) query[q][part * 4 + i] = float_of_bits(four.words[i]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsAWarp; ++r) {
      float values[kElements];
      unpack(raw[r], values, T{});
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const float value = kHalf<T> ? values[i] : values[i] * powers[r];
#pragma unroll
        for (int q = 0; q < kQueries; ++q) sums[r * kQueries + q] = multiply_add(value, query[q][i], sums[r * kQueries + q]);
      }
    }
  };
  int quad = lane;
#pragma unroll(kQueries == 1 ? 2 : 1)
  for (; quad < full; quad += kWarp) {
    Quad raw[kRowsAWarp];
#pragma unroll
    for (int r = 0; r < kRowsAWarp; ++r) raw[r] = real[r] ? load_quad(rows[r] + quad * kElements) : Quad{{0, 0, 0, 0}};
    accumulate(quad, raw);
  }
#pragma unroll 1
  for (; quad * kElements < left; quad += kWarp) {
    Quad raw[kRowsAWarp];
#pragma unroll
    for (int r = 0; r < kRowsAWarp; ++r) {
      raw[r] = real[r] ? load_elements(rows[r] + quad * kElements, static_cast<std::int64_t>(left) - quad * kElements) : Quad{{0, 0, 0, 0}};
    }
    accumulate(quad, raw);
  }
}

// The inner products of up to kRowsAWarp keys of the warp (`first` and those `step` apart that are `wanted`) with the staged rows:
// lane l gets that of key l / kQueries % kRowsAWarp and row l % kQueries. `restage(from)` brings other elements of the rows where they
// do not fit at once; the whole block calls this together.
template <class T, int kQueries, class Wanted, class Restage>
PRISMEM_DEVICE float warp_products(const Scan& scan, std::int64_t first, std::int64_t step, Wanted wanted, Shared<float> staged_rows,
                                   Restage restage) {
  const int lane = thread_index() % kWarp, staged = static_cast<int>(scan.staged);
  const bool aligned = scan.keys.aligned != 0;
  const T* rows[kRowsAWarp];
  bool real[kRowsAWarp];
  float powers[kRowsAWarp];
  float sums[kRowsAWarp * kQueries];
  bool any = false;
#pragma unroll
  for (int r = 0; r < kRowsAWarp; ++r) {
    real[r] = wanted(first + r * step);
    any = any || real[r];
    rows[r] = row_of<T>(scan.keys, real[r] ? first + r * step : 0);
    powers[r] = real[r] ? scan.power(scan.keys, first + r * step) : 1.0f;
  }
#pragma unroll
  for (int i = 0; i < kRowsAWarp * kQueries; ++i) sums[i] = 0.0f;
  if (scan.dim <= staged) {
    if (any) add_products<T, kQueries>(sums, rows, real, powers, staged_rows, staged, scan.dim, aligned, lane);
  } else {
#pragma unroll 1
    for (std::int64_t from = 0; from < scan.dim; from += staged) {
      restage(from);
      if (any) add_products<T, kQueries>(sums, rows, real, powers, staged_rows, staged, scan.dim - from, aligned, lane);
#pragma unroll
      for (int r = 0; r < kRowsAWarp; ++r) rows[r] += staged;
    }
  }
  return warp_sum_each<kRowsAWarp * kQueries>(sums, lane);
}

template <class T, int kQueries, class Selection>
PRISMEM_KERNEL(kScanThreads, 2)
scan_rows(const Scan scan, const typename Selection::Output out) {
  const Item item = scan.item();
  const int staged = static_cast<int>(scan.staged), lane = thread_index() % kWarp, warp = thread_index() / kWarp;
  const Shared<float> staged_queries = Shared<float>::at(0);
  const int q = lane % kQueries, row = lane / kQueries;
  const bool mine = lane < kRowsAWarp * kQueries && q < item.queries;
  const std::int64_t query = mine ? scan.query(item.first + q) : 0;
  const float inverse = mine ? scan.inverse(scan.queries, query) : 0.0f;
  Selection selection(out, kQueries * staged * 4);
  selection.clear();
  if (scan.dim <= staged) stage_queries<T, kQueries>(scan, item, staged_queries, 0);
  const auto ceiling = selection.ceiling(query);
  sync_block<5>();
  for (std::int64_t round = item.begin; round < item.end; round += kScanRound) {
    for (std::int64_t group = round; group < round + kScanRound && group < item.end; group += kRowsAWarp * kScanWarps) {
      const auto wanted = [&](std::int64_t key) { return key < item.end; };
      const float product = warp_products<T, kQueries>(scan, group + warp, kScanWarps, wanted, staged_queries, [&](std::int64_t from) {
        sync_block<6>();
        stage_queries<T, kQueries>(scan, item, staged_queries, from);
        sync_block<7>();
      });
      const std::int64_t key = group + warp + row * kScanWarps;
      if (mine && key < item.end)
        selection.offer(scan, q, 0, query, key, item.base, scan.score(product, scan.queries, inverse, query, key), ceiling);
    }
    selection.end_round(item);
  }
  selection.finish(scan, item, [&](int) { return mine ? q : -1; }, kQueries, kWarp / 2);
}

}  // namespace prismem::cuda
