// mmr_select over at most 256 candidates: a block a query, which reads each row once.
//
// The rows pass through shared memory; meanwhile twelve warps keep the similarities of all pairs in registers, 32x32 of them a tile,
// and one thread a row its relevance. The lower triangle then takes the place of the rows in shared memory, where one warp picks:
// its lanes hold eight candidates each, so that a step needs no barrier.
#pragma once

#include "mmr.cuh"
#include "tiles.cuh"

namespace prismem::cuda {

constexpr int kPoolThreads = 384;
constexpr int kPoolWarps = kPoolThreads / kWarp;
constexpr int kPool = 256;
constexpr int kPoolTile = 32;
constexpr int kPoolTiles = 3;  // of a warp: 8 * 9 / 2 tiles of the lower triangle, over twelve warps
constexpr int kPoolRowBytes = 128;
constexpr int kPoolPitchBytes = kPoolRowBytes + 16;
constexpr int kPoolStages = 3;

// Shared memory, by what `rows` (a multiple of kPoolTile) candidates need.
struct PoolLayout {
  int rows;
  PRISMEM_HOST_DEVICE int query_stage() const { return rows * kPoolPitchBytes; }
  PRISMEM_HOST_DEVICE int stage() const { return query_stage() + 64 * 4; }
  PRISMEM_HOST_DEVICE int triangle() const { return rows * (rows - 1) / 2 * 4; }
  PRISMEM_HOST_DEVICE int ids() const {
    const int staged = kPoolStages * stage();
    return ((staged > triangle() ? staged : triangle()) + 15) / 16 * 16;
  }
  PRISMEM_HOST_DEVICE int relevances() const { return ids() + kPool * 4; }
  PRISMEM_HOST_DEVICE int inverses() const { return relevances() + kPool * 4; }
  PRISMEM_HOST_DEVICE int counts() const { return inverses() + kPool * 4; }
  PRISMEM_HOST_DEVICE int bytes() const { return counts() + kPool / kWarp * 4; }
};

// The sums of a 32x32 tile in the registers of a warp, for rows of two-byte elements.
template <class T>
struct PoolTile {
  float sums[2][4][4];

  PRISMEM_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
  }
  PRISMEM_DEVICE void add(Shared<T> stage, int top, int left, int lane) {
    constexpr int kPitch = kPoolPitchBytes / 2;
#pragma unroll
    for (int k = 0; k < kPoolRowBytes / 2; k += 16) {
      std::uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        load_matrices(a[i], stage + ((top + 16 * i + lane % 16) * kPitch + lane / 16 * 8 + k));
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        std::uint32_t b[4];
        load_matrices(b, stage + ((left + 16 * j + lane % 8 + lane / 16 * 8) * kPitch + lane / 8 % 2 * 8 + k));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          multiply_tiles(sums[i][2 * j], a[i], b[0], b[1], T{});
          multiply_tiles(sums[i][2 * j + 1], a[i], b[2], b[3], T{});
        }
      }
    }
  }
  template <class Visit>
  PRISMEM_DEVICE void each(int lane, Visit visit) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int part = 0; part < 4; ++part) visit(16 * i + lane / 4 + part / 2 * 8, 8 * j + lane % 4 * 2 + part % 2, sums[i][j][part]);
      }
    }
  }
};

// The same for rows of float32, without tensor cores: a lane has four rows and eight columns.
template <>
struct PoolTile<float> {
  float sums[4][8];

  PRISMEM_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[i / 8][i % 8] = 0.0f;
  }
  PRISMEM_DEVICE void add(Shared<float> stage, int top, int left, int lane) {
    constexpr int kPitch = kPoolPitchBytes / 4;
    const auto get = [&](int row, int k, float(&to)[4]) { unpack(stage.get_quad(row * kPitch + k), to, float{}); };
#pragma unroll 1
    for (int k = 0; k < kPoolRowBytes / 4; k += 4) {
      float a[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) get(top + lane / 4 + 8 * i, k, a[i]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float b[4];
        get(left + lane % 4 + 4 * j, k, b);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int part = 0; part < 4; ++part) sums[i][j] = multiply_add(a[i][part], b[part], sums[i][j]);
        }
      }
    }
  }
  template <class Visit>
  PRISMEM_DEVICE void each(int lane, Visit visit) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) visit(lane / 4 + 8 * i, lane % 4 + 4 * j, sums[i][j]);
    }
  }
};

// Makes picks until `k` or none is left; by one warp, of `count` candidates.
PRISMEM_DEVICE void pick_greedily(const Mmr& mmr, std::int64_t query, std::int64_t begin, int count, Shared<float> relevances,
                                  Shared<float> triangle, Shared<int> ids) {
  constexpr int kOwn = kPool / kWarp;
  const int lane = thread_index() % kWarp;
  float relevance[kOwn], penalty[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int candidate = lane + kWarp * i;
    relevance[i] = candidate < count ? relevances.get(candidate) : not_a_number();
    penalty[i] = 0.0f;
  }
  std::int64_t step = 0;
  for (; step < mmr.k; ++step) {
    Pick best{0.0, -1};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!is_number(relevance[i])) continue;
      best.consider(step == 0 ? static_cast<double>(relevance[i]) : mmr.score(relevance[i], penalty[i]), lane + kWarp * i);
    }
    best = warp_best(best);
    if (best.index < 0) break;
    const int picked = static_cast<int>(best.index);
    if (lane == 0) mmr.write_pick(query, step, ids.get(picked), best.value);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int candidate = lane + kWarp * i;
      if (candidate == picked) relevance[i] = not_a_number();
      if (!is_number(relevance[i])) continue;
      const int high = candidate > picked ? candidate : picked, low = candidate > picked ? picked : candidate;
      float similarity = triangle.get(high * (high - 1) / 2 + low);
      if (!is_finite(similarity) && mmr.scan.normalize == 0) {
        similarity = wide_product(mmr.scan.keys, begin + ids.get(high), mmr.scan.keys, begin + ids.get(low), mmr.scan.dim);
      }
      penalty[i] = step == 0 ? similarity : spoilt_maximum(penalty[i], similarity);
    }
  }
  mmr.write_rest(query, step, lane, kWarp);
}

template <class T>
PRISMEM_KERNEL(kPoolThreads, 1)
mmr_pool(const Mmr mmr, const PoolLayout layout) {
  constexpr int kDim = kPoolRowBytes / static_cast<int>(sizeof(T));
  constexpr int kPitch = kPoolPitchBytes / static_cast<int>(sizeof(T));
  const Scan& scan = mmr.scan;
  const std::int64_t query = block_index(), begin = mmr.begin(query), end = mmr.end(query);
  const int thread = thread_index(), lane = thread % kWarp, warp = thread / kWarp;
  const Shared<int> ids = Shared<int>::at(layout.ids()), counts = Shared<int>::at(layout.counts());
  const Shared<float> relevances = Shared<float>::at(layout.relevances()), inverses = Shared<float>::at(layout.inverses());

  // The candidates that the mask lets pass, in their order.
  const bool passes = thread < end - begin && thread < kPool && scan.filter.passes(query, begin + thread);
  const std::uint32_t votes = ballot(passes);
  if (lane == 0 && warp < kPool / kWarp) counts.set(warp, count_bits(votes));
  sync_block<17>();
  int count = 0, before = 0;
  for (int other = 0; other < kPool / kWarp; ++other) {
    if (other == warp) before = count;
    count += counts.get(other);
  }
  if (passes) ids.set(before + count_bits(votes & ((1u << lane) - 1)), thread);
  sync_block<18>();
  const bool scaled = !kHalf<T> && scan.keys.powers != nullptr;
  const std::int64_t own_key = begin + (thread < count ? ids.get(thread) : 0);
  if (thread < count && scan.normalize != 0) inverses.set(thread, load(scan.keys.inverses + own_key));

  const int chunks = static_cast<int>((scan.dim + kDim - 1) / kDim);
  const int rows = (count + kPoolTile - 1) / kPoolTile * kPoolTile, side = rows / kPoolTile, tiles = side * (side + 1) / 2;
  const float query_power = scan.power(scan.queries, query);
  int issued = 0, issued_stage = 0;
  const auto issue = [&]() {
    if (issued < chunks) {
      const std::int64_t from = static_cast<std::int64_t>(issued) * kDim;
      const Shared<T> stage = Shared<T>::at(issued_stage * layout.stage());
      for (int part = thread; part < rows * 8; part += kPoolThreads) {
        const int row = part / 8, column = part % 8 * kQuadElements<T>;
        const bool real = row < count;
        bring(scan.keys, real, real ? begin + ids.get(row) : 0, from + column, scan.dim, stage + (row * kPitch + column));
      }
      const Shared<float> query_stage = Shared<float>::at(issued_stage * layout.stage() + layout.query_stage());
      if (thread < kDim)
        query_stage.set(thread, from + thread < scan.dim ? element(scan.queries, query, from + thread) * query_power : 0.0f);
      issued_stage = issued_stage == kPoolStages - 1 ? 0 : issued_stage + 1;
      ++issued;
    }
    copy_commit();
  };

  // The tiles of a warp: rows from `top` on with rows from `left` on.
  int top[kPoolTiles], left[kPoolTiles];
  PoolTile<T> sums[kPoolTiles];
#pragma unroll
  for (int i = 0; i < kPoolTiles; ++i) {
    int row = 0, rest = warp + kPoolWarps * i;
    while (rest > row) rest -= ++row;
    top[i] = row * kPoolTile;
    left[i] = rest * kPoolTile;
    sums[i].clear();
  }
  float relevance = 0.0f;
  for (int i = 0; i < kPoolStages - 1; ++i) issue();
  int stage_number = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Shared<T> stage = Shared<T>::at(stage_number * layout.stage());
    copy_wait<19, kPoolStages - 2>();
    if (scaled) {
      for (int part = thread; part < count * 8; part += kPoolThreads) {
        scale_quad(stage + (part / 8 * kPitch + part % 8 * kQuadElements<T>), scan.power(scan.keys, begin + ids.get(part / 8)));
      }
    }
    sync_block<20>();
    issue();
#pragma unroll
    for (int i = 0; i < kPoolTiles; ++i) {
      if (warp + kPoolWarps * i < tiles) sums[i].add(stage, top[i], left[i], lane);
    }
    if (thread < count) {
      const Shared<float> query_stage = Shared<float>::at(stage_number * layout.stage() + layout.query_stage());
      float sum = 0.0f;
#pragma unroll 2
      for (int k = 0; k < kDim; k += kQuadElements<T>) {
        float values[kQuadElements<T>];
        unpack(stage.get_quad(thread * kPitch + k), values, T{});
#pragma unroll
        for (int i = 0; i < kQuadElements<T>; ++i) sum = multiply_add(values[i], query_stage.get(k + i), sum);
      }
      relevance += sum;
    }
    stage_number = stage_number == kPoolStages - 1 ? 0 : stage_number + 1;
  }
  if (thread < count) {
    const float score = scan.score(relevance, scan.queries, scan.inverse(scan.queries, query), query, own_key);
    relevances.set(thread, scan.filter.keeps(query, own_key, score) ? score : not_a_number());
  }
  sync_block<21>();
  // The triangle lies where the rows were.
  const Shared<float> triangle = Shared<float>::at(0);
#pragma unroll
  for (int i = 0; i < kPoolTiles; ++i) {
    if (warp + kPoolWarps * i >= tiles) continue;
    sums[i].each(lane, [&](int row_in_tile, int column_in_tile, float product) {
      const int row = top[i] + row_in_tile, column = left[i] + column_in_tile;
      if (row >= count || column >= row) return;
      triangle.set(row * (row - 1) / 2 + column, scan.normalize != 0 ? cosine(product, inverses.get(row), inverses.get(column)) : product);
    });
  }
  sync_block<22>();
  if (warp == 0) pick_greedily(mmr, query, begin, count, relevances, triangle, ids);
}

}  // namespace prismem::cuda
