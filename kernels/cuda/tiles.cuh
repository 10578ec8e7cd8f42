// The scan with tensor cores: tiles of queries and keys pass through shared memory by asynchronous copies, three stages deep, and
// the scores of a tile leave the registers of mma.m16n8k16 straight into the selection.
#pragma once

#include "scan.cuh"

namespace prismem::cuda {

constexpr int kTileThreads = 256;
constexpr int kTileWarps = kTileThreads / kWarp;
constexpr int kTileDim = 64;               // elements of a row a stage
constexpr int kTilePitch = kTileDim + 8;   // rows lie so that eight of them cover all banks
constexpr int kTileStages = 3;

template <int kQueries>
struct Tiles {
  static constexpr int kKeys = kQueries == 64 ? 64 : 128;
  static constexpr int kRows = kQueries + kKeys;
  static constexpr int kStageBytes = kRows * kTilePitch * 2;
  static constexpr int kBytes = kTileStages * kStageBytes;
  static constexpr int kWarpRows = kQueries / 16;               // warps above each other
  static constexpr int kWarpKeys = kKeys / (kTileWarps / kWarpRows);  // keys of a warp
  static constexpr int kColumns = kWarpKeys / 8;                // fragments beside each other
};

// Brings elements from `from` on of a row to shared memory, `quad` saying which eight of them; zeros where there are none.
template <class T>
PRISMEM_DEVICE void bring(const RowsView& rows, bool real, std::int64_t row, std::int64_t from, std::int64_t dim, Shared<T> to) {
  const std::int64_t left = real && dim > from ? (dim - from < 8 ? dim - from : 8) : 0;
  if (rows.aligned != 0) {
    copy_async(to, left > 0 ? static_cast<const void*>(row_of<T>(rows, row) + from) : rows.data, static_cast<int>(left) * 2);
  } else {
    to.set_quad(0, load_elements(row_of<T>(rows, real ? row : 0) + (left > 0 ? from : 0), left));
  }
}

template <class T, int kQueries, class Selection>
PRISMEM_KERNEL(kTileThreads, 1) scan_tiles(const Scan scan, const typename Selection::Output out) {
  using Shape = Tiles<kQueries>;
  const Item item = scan.item();
  const int lane = thread_index() % kWarp, warp = thread_index() / kWarp;
  const int warp_row = warp % Shape::kWarpRows * 16, warp_key = warp / Shape::kWarpRows * Shape::kWarpKeys;
  Selection selection(out, Shape::kBytes);
  selection.clear();
  sync_block<9>();

  // The two queries whose scores this thread gets.
  int rows[2];
  std::int64_t queries[2];
  float inverses[2];
  std::uint64_t ceilings[2];
  std::uint32_t query_powers[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    rows[i] = warp_row + lane / 4 + 8 * i;
    const bool real = rows[i] < item.queries;
    queries[i] = real ? scan.query(item.first + rows[i]) : 0;
    inverses[i] = real && scan.normalize != 0 ? load(scan.queries.inverses + queries[i]) : 0.0f;
    ceilings[i] = real ? selection.ceiling(queries[i]) : 0;
    query_powers[i] = (bits_of_float(real ? scan.power(scan.queries, queries[i]) : 1.0f) >> 16) * 0x10001u;
  }
  const bool scaled = !kHalf<T> && scan.keys.powers != nullptr;

  const int chunks = static_cast<int>((scan.dim + kTileDim - 1) / kTileDim);
  const std::int64_t tiles = (item.end - item.begin + Shape::kKeys - 1) / Shape::kKeys;
  const auto stage_at = [&](int stage) { return Shared<T>::at(stage * Shape::kStageBytes); };
  std::int64_t issued_tile = 0;
  int issued_chunk = 0, issued_stage = 0;
  const auto issue = [&]() {
    if (issued_tile < tiles) {
      const Shared<T> stage = stage_at(issued_stage);
      const std::int64_t first_key = item.begin + issued_tile * Shape::kKeys;
      const int part = thread_index() % 8 * 8;
      const std::int64_t from = static_cast<std::int64_t>(issued_chunk) * kTileDim + part;
#pragma unroll
      for (int row = thread_index() / 8; row < Shape::kRows; row += kTileThreads / 8) {
        const Shared<T> to = stage + (row * kTilePitch + part);
        if (row < kQueries) {
          const bool real = row < item.queries;
          bring(scan.queries, real, real ? scan.query(item.first + row) : 0, from, scan.dim, to);
        } else {
          const std::int64_t key = first_key + row - kQueries;
          bring(scan.keys, key < item.end, key, from, scan.dim, to);
        }
      }
      issued_stage = issued_stage == kTileStages - 1 ? 0 : issued_stage + 1;
      if (++issued_chunk == chunks) {
        issued_chunk = 0;
        ++issued_tile;
      }
    }
    copy_commit();
  };

  for (int i = 0; i < kTileStages - 1; ++i) issue();
  int stage = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t tile_key = item.begin + tile * Shape::kKeys + warp_key;
    float sums[Shape::kColumns][4];
    std::uint32_t key_powers[Shape::kColumns];
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] = 0.0f;
      const std::int64_t key = tile_key + j * 8 + lane / 4;
      key_powers[j] = scaled && key < item.end ? (bits_of_float(load(scan.keys.powers + key)) >> 16) * 0x10001u : 0;
    }
    for (int chunk = 0; chunk < chunks; ++chunk) {
      copy_wait<10, kTileStages - 2>();
      sync_block<11>();
      issue();
      // Lane l gives the address of one of the rows of the four 8x8 matrices of a fragment.
      const Shared<T> left = stage_at(stage) + ((warp_row + lane % 16) * kTilePitch + lane / 16 * 8);
      const Shared<T> right = stage_at(stage) + ((kQueries + warp_key + lane % 8 + lane / 16 * 8) * kTilePitch + lane / 8 % 2 * 8);
#pragma unroll
      for (int k = 0; k < kTileDim; k += 16) {
        std::uint32_t a[4];
        load_matrices(a, left + k);
        if (scaled) {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[i] = scale_pair(a[i], query_powers[i % 2]);
        }
#pragma unroll
        for (int j = 0; j < Shape::kColumns; j += 2) {
          std::uint32_t b[4];
          load_matrices(b, right + (j * 8 * kTilePitch + k));
          if (scaled) {
#pragma unroll
            for (int i = 0; i < 4; ++i) b[i] = scale_pair(b[i], key_powers[j + i / 2]);
          }
          multiply_tiles(sums[j], a, b[0], b[1], T{});
          multiply_tiles(sums[j + 1], a, b[2], b[3], T{});
        }
      }
      stage = stage == kTileStages - 1 ? 0 : stage + 1;
    }
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const std::int64_t key = tile_key + j * 8 + lane % 4 * 2 + column;
        if (key >= item.end) continue;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (rows[i] >= item.queries) continue;
          const float score = scan.score(sums[j][2 * i + column], inverses[i], queries[i], key);
          selection.offer(scan, rows[i], i, queries[i], key, item.base, score, ceilings[i]);
        }
      }
    }
    selection.end_round(item);
  }
  selection.finish(scan, item, [&](int i) { return rows[i] < item.queries ? rows[i] : -1; }, 1, 2);
}

}  // namespace prismem::cuda
