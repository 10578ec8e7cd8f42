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

// Memory that will be read soon. A tile fetches one line a step, while its registers are busy, so it may run past `end`, which
// harms nothing.
struct Ahead {
  const char* next;
  const char* end;
};

// Numbers known to the compiler: accumulators in an array that is indexed by them alone are registers in every optimisation, where
// a loop that is unrolled late may leave them in memory.
template <int... I>
struct Numbers {};

#if PRISMEM_GROUP_KEYS == 8
using GroupNumbers = Numbers<0, 1, 2, 3, 4, 5, 6, 7>;
#else
using GroupNumbers = Numbers<0, 1, 2, 3>;
#endif

template <int Wides>
struct Tile {
  Wide sums[Wides][kGroupKeys];

  template <int K>
  inline void clear() {
    sums[0][K] = zero_wide();
    if constexpr (Wides > 1) sums[1][K] = zero_wide();
    if constexpr (Wides > 2) sums[2][K] = zero_wide();
  }

  template <int K>
  inline void add(const Wide (&query)[Wides], const float* key) {
    const Wide repeated = repeat_wide(key);
    sums[0][K] = added(sums[0][K], query[0], repeated);
    if constexpr (Wides > 1) sums[1][K] = added(sums[1][K], query[1], repeated);
    if constexpr (Wides > 2) sums[2][K] = added(sums[2][K], query[2], repeated);
  }

  static inline Wide added(Wide sum, Wide query, Wide key) {
    sum = fma_wide(query, key, sum);
    keep(sum);
    return sum;
  }
};

// out[q * stride + k] = dot product of query q of the panel with keys[k], for kGroupKeys keys of padded_dim floats.
// Not inline: among the registers of its caller, the accumulators would not all find one.
template <int Wides, int... K>
__attribute__((noinline)) void tile_dots(const float* panel, const float* const* keys, std::int64_t padded, Ahead& ahead, float* out,
                                         std::int64_t stride, Numbers<K...>) {
  constexpr int kStep = 8 * kWideQueries;
  Tile<Wides> tile;
  const char* line = ahead.next;
  const std::int64_t line_step = line < ahead.end ? 64 : 0;
  (tile.template clear<K>(), ...);
  const float* const key[kGroupKeys] = {keys[K]...};
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < padded; i += 8) {
    Wide query[Wides];
    query[0] = load_wide(panel);
    if constexpr (Wides > 1) query[1] = load_wide(panel + kStep);
    if constexpr (Wides > 2) query[2] = load_wide(panel + 2 * kStep);
    panel += Wides * kStep;
    prefetch_far(line);
    line += line_step;
    (tile.template add<K>(query, key[K] + i), ...);
  }
  ahead.next = line;
  sum_group(tile.sums[0], out, stride);
  if constexpr (Wides > 1) sum_group(tile.sums[1], out + kWideQueries * stride, stride);
  if constexpr (Wides > 2) sum_group(tile.sums[2], out + 2 * kWideQueries * stride, stride);
}

// The dots of one panel with `count` keys, a multiple of eight. Fetches the next panel, then the next keys.
inline void panel_dots(const float* panel, std::int64_t width, const float* const* keys, std::int64_t count, std::int64_t padded,
                       Ahead& next_panel, Ahead& next_keys, float* out, std::int64_t stride) {
  for (std::int64_t k = 0; k < count; k += kGroupKeys) {
    Ahead& ahead = next_panel.next < next_panel.end ? next_panel : next_keys;
    switch (width / kWideQueries) {
      case 1: tile_dots<1>(panel, keys + k, padded, ahead, out + k, stride, GroupNumbers{}); break;
      case 2: tile_dots<2>(panel, keys + k, padded, ahead, out + k, stride, GroupNumbers{}); break;
      default: tile_dots<3>(panel, keys + k, padded, ahead, out + k, stride, GroupNumbers{}); break;
    }
  }
}

constexpr int kStreamKeys = 4;

// How far ahead of the keys being read memory is fetched, at least; measured.
constexpr std::int64_t kStreamAheadBytes = 12288;

// out[k] = dot product of the query, padded_dim floats, with each of four keys, read where they lie. Meanwhile as many bytes as
// that reads are fetched from `ahead` on, in their order in memory: four rows at once are too many short streams for a processor to
// see where it is going.
template <class T>
inline void stream_dots(const float* query, const T* const* keys, std::int64_t dim, const char* ahead, float* out) {
  constexpr int kLines = kStreamKeys * 16 * static_cast<int>(sizeof(T)) / 64;
  F8 sums[kStreamKeys];
  const T* key[kStreamKeys];
  for (int k = 0; k < kStreamKeys; ++k) key[k] = keys[k];
  for (int k = 0; k < kStreamKeys; ++k) sums[k] = zero8();
  std::int64_t i = 0;
  for (; i + 16 <= dim; i += 16) {
    const F8 low = load8(query + i);
    const F8 high = load8(query + i + 8);
    for (int line = 0; line < kLines; ++line) prefetch(ahead + 64 * line);
    ahead += 64 * kLines;
    for (int k = 0; k < kStreamKeys; ++k) {
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
