// Dot products of many packed queries with many keys, in tiles of registers.
//
// Order of additions. One dot product is eight partial sums: partial sum j takes the products of dimensions j, j + 8, j + 16 ... in
// this order, one fused multiply-add each (portable: a product, then a sum); the end of a row that is no multiple of eight is
// filled with zeros. Then sum8 adds the eight. A tile holds the eight sums of several pairs of rows in registers and walks the
// dimensions once for all of them, and sum_group makes the additions of sum8 for several pairs at once; neither changes what is
// added to what. So a score depends on its two rows and on nothing else: not on the tile, the block, the number of queries, the
// thread, or whether rows were read in place, copied, or widened from half precision (which is exact); and the sets with fused
// products agree bit for bit.
#pragma once

#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

constexpr int kPanelWides = 3;
constexpr int kPanelQueries = kPanelWides * kWideQueries;

// Where copying the keys of a block side by side pays: aligned rows are read faster, once a panel.
constexpr std::int64_t kQueriesWorthACopy = 48;

// Rows stored for a panel when `left` queries remain; the last panel is narrower, and an odd one may hold a row of zeros.
inline std::int64_t panel_width(std::int64_t left) {
  return left >= kPanelQueries ? kPanelQueries : (left + kWideQueries - 1) / kWideQueries * kWideQueries;
}

// A panel holds the eight floats of step 0 of each of its rows, then those of step 1, and so on: it is read from end to end.
template <class T>
inline void pack_panels_of(const Rows& queries, const std::int64_t* ids, std::int64_t count, float* rows, double* norms) {
  const std::int64_t dim = queries.dim;
  for (std::int64_t first = 0; first < count; first += kPanelQueries) {
    const std::int64_t width = panel_width(count - first);
    for (std::int64_t r = 0; r < width; ++r) {
      float* to = rows + first * padded_dim(dim) + 8 * r;
      std::int64_t i = 0;
      if (first + r < count) {
        const T* row = row_at<T>(queries, ids[first + r]);
        for (; i + 8 <= dim; i += 8) store8(to + i * width, load8(row + i));
        if (i < dim) store8(to + i * width, load8_tail(row + i, dim - i));
        if (norms != nullptr) norms[first + r] = row_norm(row, dim);
      } else {
        for (; i < dim; i += 8) store8(to + i * width, zero8());
      }
    }
  }
}

// The packed query as a row of its own.
inline void unpack_query(const PackedPanels& queries, std::int64_t query, std::int64_t dim, float* row) {
  const std::int64_t first = query / kPanelQueries * kPanelQueries;
  const std::int64_t width = panel_width(queries.count - first);
  const float* from = queries.rows + first * padded_dim(dim) + 8 * (query - first);
  for (std::int64_t i = 0; i < dim; i += 8) store8(row + i, load8(from + i * width));
}

// Lines of memory that will be read soon, a few at each call.
struct Ahead {
  const char* next;
  const char* end;

  inline void fetch_line() {
    prefetch(next);
    next += next < end ? 64 : 0;
  }
};

// out[q * stride + k] = dot product of query q of the panel with keys[k], for kGroupKeys keys of padded_dim floats.
template <int Wides>
inline void tile_dots(const float* panel, const float* const* keys, std::int64_t padded, Ahead& ahead, float* out, std::int64_t stride) {
  Wide sums[Wides][kGroupKeys];
  const float* key[kGroupKeys];
  for (int k = 0; k < kGroupKeys; ++k) key[k] = keys[k];
  for (int w = 0; w < Wides; ++w)
    for (int k = 0; k < kGroupKeys; ++k) sums[w][k] = zero_wide();
  for (std::int64_t i = 0; i < padded; i += 8) {
    Wide query[Wides];
    for (int w = 0; w < Wides; ++w) query[w] = load_wide(panel + (i * Wides + 8 * w) * kWideQueries);
    ahead.fetch_line();
    for (int k = 0; k < kGroupKeys; ++k) {
      const Wide repeated = repeat_wide(key[k] + i);
      for (int w = 0; w < Wides; ++w) {
        sums[w][k] = fma_wide(query[w], repeated, sums[w][k]);
        keep(sums[w][k]);
      }
    }
  }
  for (int w = 0; w < Wides; ++w) sum_group(sums[w], out + w * kWideQueries * stride, stride);
}

// The dots of one panel with `count` keys, a multiple of eight.
inline void panel_dots(const float* panel, std::int64_t width, const float* const* keys, std::int64_t count, std::int64_t padded, Ahead& ahead,
                       float* out, std::int64_t stride) {
  for (std::int64_t k = 0; k < count; k += kGroupKeys) {
    switch (width / kWideQueries) {
      case 1: tile_dots<1>(panel, keys + k, padded, ahead, out + k, stride); break;
      case 2: tile_dots<2>(panel, keys + k, padded, ahead, out + k, stride); break;
      default: tile_dots<3>(panel, keys + k, padded, ahead, out + k, stride); break;
    }
  }
}

constexpr int kStreamKeys = 4;
constexpr std::int64_t kStreamAhead = 8;  // rows

// out[k] = dot product of the query, padded_dim floats, with each of four keys, read where they lie. `ahead` is the distance in
// elements of what is read next: such a row ends before the processor has noticed that it is one.
template <class T>
inline void stream_dots(const float* query, const T* const* keys, std::int64_t dim, std::int64_t ahead, float* out) {
  F8 sums[kStreamKeys];
  const T* key[kStreamKeys];
  for (int k = 0; k < kStreamKeys; ++k) key[k] = keys[k];
  for (int k = 0; k < kStreamKeys; ++k) sums[k] = zero8();
  std::int64_t i = 0;
  for (; i + 16 <= dim; i += 16) {
    const F8 low = load8(query + i);
    const F8 high = load8(query + i + 8);
    for (int k = 0; k < kStreamKeys; ++k) {
      prefetch(key[k] + i + ahead);
      sums[k] = fma8(low, load8(key[k] + i), sums[k]);
      sums[k] = fma8(high, load8(key[k] + i + 8), sums[k]);
    }
  }
  if (i + 8 <= dim) {
    for (int k = 0; k < kStreamKeys; ++k) sums[k] = fma8(load8(query + i), load8(key[k] + i), sums[k]);
    i += 8;
  }
  if (i < dim) {
    for (int k = 0; k < kStreamKeys; ++k) sums[k] = fma8(load8(query + i), load8_tail(key[k] + i, dim - i), sums[k]);
  }
  sum8_of4(sums, out);
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
