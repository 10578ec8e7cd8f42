// The scan with tensor cores: tiles of queries and keys pass through shared memory by asynchronous copies, three stages deep, and
// the scores of a tile leave the registers of mma.m16n8k16 straight into the selection.
#pragma once

#include "scan.cuh"

namespace prismem::cuda {

constexpr int kTileThreads = 256;
constexpr int kTileWarps = kTileThreads / kWarp;
constexpr int kTileDim = 64;              // elements of a row a stage
constexpr int kTilePitch = kTileDim + 8;  // rows lie so that eight of them cover all banks
constexpr int kTileStages = 3;

template <int kQueries>
struct Tiles {
  static constexpr int kKeys = kQueries == 64 ? 64 : 128;
  static constexpr int kRows = kQueries + kKeys;
  static constexpr int kStageBytes = kRows * kTilePitch * 2;
  static constexpr int kBytes = kTileStages * kStageBytes;
  static constexpr int kWarpRows = kQueries / 16;                     // warps above each other
  static constexpr int kWarpKeys = kKeys / (kTileWarps / kWarpRows);  // keys of a warp
  static constexpr int kColumns = kWarpKeys / 8;                      // fragments beside each other
};

// Brings sixteen bytes of a row, from element `from` on, to shared memory; zeros where the row has no more.
template <class T>
PRISMEM_DEVICE void bring(const RowsView& rows, bool real, std::int64_t row, std::int64_t from, std::int64_t dim, Shared<T> to) {
  constexpr int kElements = kQuadElements<T>;
  const std::int64_t left = real && dim > from ? (dim - from < kElements ? dim - from : kElements) : 0;
  if (rows.aligned != 0) {
    const void* at = left > 0 ? static_cast<const void*>(row_of<T>(rows, row) + from) : rows.data;
    copy_async(to, at, static_cast<int>(left) * static_cast<int>(sizeof(T)));
  } else {
    to.set_quad(0, load_elements(row_of<T>(rows, real ? row : 0) + (left > 0 ? from : 0), left));
  }
}

// Sixteen bytes in shared memory that the thread has brought itself, times a power of two.
PRISMEM_DEVICE void scale_quad(Shared<BFloat16> at, float power) {
  const std::uint32_t twice = (bits_of_float(power) >> 16) * 0x10001u;
  Quad quad = at.get_quad(0);
#pragma unroll
  for (int i = 0; i < 4; ++i) quad.words[i] = scale_pair(quad.words[i], twice);
  at.set_quad(0, quad);
}
PRISMEM_DEVICE void scale_quad(Shared<float> at, float power) {
  Quad quad = at.get_quad(0);
#pragma unroll
  for (int i = 0; i < 4; ++i) quad.words[i] = bits_of_float(float_of_bits(quad.words[i]) * power);
  at.set_quad(0, quad);
}
PRISMEM_DEVICE void scale_quad(Shared<Half>, float) {}  // squares of halves are in range as they are

template <class T, int kQueries, class Selection>
PRISMEM_KERNEL(kTileThreads, 1)
scan_tiles(const Scan scan, const typename Selection::Output out) {
  using Shape = Tiles<kQueries>;
  const Item item = scan.item();
  const int lane = thread_index() % kWarp, warp = thread_index() / kWarp;
  const int warp_row = warp % Shape::kWarpRows * 16, warp_key = warp / Shape::kWarpRows * Shape::kWarpKeys;
  Selection selection(out, Shape::kBytes);
  selection.clear();

  // The two queries whose scores this thread gets.
  int rows[2];
  std::int64_t queries[2];
  float inverses[2];
  std::uint64_t ceilings[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    rows[i] = warp_row + lane / 4 + 8 * i;
    const bool real = rows[i] < item.queries;
    queries[i] = real ? scan.query(item.first + rows[i]) : 0;
    inverses[i] = real ? scan.inverse(scan.queries, queries[i]) : 0.0f;
    ceilings[i] = real ? selection.ceiling(queries[i]) : 0;
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

  if (tiles == 0) sync_block<9>();  // else one of the barriers below comes before the selection is used
  for (int i = 0; i < kTileStages - 1; ++i) issue();
  int stage = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t tile_key = item.begin + tile * Shape::kKeys + warp_key;
    float sums[Shape::kColumns][4];
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] = 0.0f;
    }
    for (int chunk = 0; chunk < chunks; ++chunk) {
      copy_wait<10, kTileStages - 2>();
      if (scaled) {
        for (int row = thread_index() / 8; row < Shape::kRows; row += kTileThreads / 8) {
          const std::int64_t key = item.begin + tile * Shape::kKeys + row - kQueries;
          const bool real = row < kQueries ? row < item.queries : key < item.end;
          if (!real) continue;
          const float power = row < kQueries ? scan.power(scan.queries, scan.query(item.first + row)) : scan.power(scan.keys, key);
          scale_quad(stage_at(stage) + (row * kTilePitch + thread_index() % 8 * 8), power);
        }
      }
      sync_block<11>();
      issue();
      // Lane l gives the address of one of the rows of the four 8x8 matrices of a fragment.
      const Shared<T> left = stage_at(stage) + ((warp_row + lane % 16) * kTilePitch + lane / 16 * 8);
      const Shared<T> right = stage_at(stage) + ((kQueries + warp_key + lane % 8 + lane / 16 * 8) * kTilePitch + lane / 8 % 2 * 8);
#pragma unroll
      for (int k = 0; k < kTileDim; k += 16) {
        std::uint32_t a[4];
        load_matrices(a, left + k);
#pragma unroll
        for (int j = 0; j < Shape::kColumns; j += 2) {
          std::uint32_t b[4];
          load_matrices(b, right + (j * 8 * kTilePitch + k));
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
          const float score = scan.score(sums[j][2 * i + column], scan.queries, inverses[i], queries[i], key);
          selection.offer(scan, rows[i], i, queries[i], key, item.base, score, ceilings[i]);
        }
      }
    }
    selection.end_round(item);
  }
  selection.finish(scan, item, [&](int i) { return rows[i] < item.queries ? rows[i] : -1; }, 1, 2);
}

}  // namespace prismem::cuda
