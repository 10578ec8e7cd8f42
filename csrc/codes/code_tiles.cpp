// Many queries against many rows: the product of their codes a tile at a time, in integers, with the bounds taken from the sums while
// they are in registers; then the rows themselves, as in code_stream.cpp.
#include "simd/code_bounds.hpp"
#include "simd/code_hits.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

constexpr std::int64_t kRunBytes = 128 * 1024;  // of unpacked codes, which stay in the second-level cache for all queries
constexpr std::int64_t kDenseShare = 8;         // from one candidate in so many pairs on, all pairs are scored

// Unpacked blocks begin .. end and what the bounds of their rows need.
struct UnpackedRun {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t block_bytes;
  const std::uint8_t* lines;
  std::uint32_t allowed[kTileRunBlocks];
};

inline F16 tile_errors(const CodeView& view, std::int64_t block) {
  return load_bfloats16(kTileBits == 8 ? header_at(view, block).full_error : view.mid_error + block * kCodeRows);
}

// The pairs of a tile and a run that may be hits.
inline std::int64_t find_pairs(const CodeView& view, const UnpackedRun& run, const CodeTile& tile, const CodeSearchQuery* queries,
                               std::int64_t count, CodeCandidate* candidates) {
  const std::int64_t steps = 2 * code_groups(view.dim);
  std::int64_t found = 0;
  for (std::int64_t block = run.begin; block < run.end; block += kTileBlocks) {
    const std::int64_t blocks = run.end - block < kTileBlocks ? run.end - block : kTileBlocks;
    I16 sums[kTileBlocks * kTileQueries];
    // A tile that reaches past the last block takes that block twice.
    tile_dots(run.lines + (block - run.begin) * run.block_bytes, blocks == kTileBlocks ? run.block_bytes : 0, steps, tile.packed, count, tile.offsets, sums);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const CodeHeader header = header_at(view, block + b);
      const F16 scale = load_bfloats16(header.scale);
      const F16 error = tile_errors(view, block + b);
      const F16 norm = load_bfloats16(header.norm);
      const std::uint32_t allowed = run.allowed[block + b - run.begin];
      for (std::int64_t q = 0; q < count; ++q) {
        const F16 bound = bounds(sums[b * kTileQueries + q], scale, error, norm, tile.terms[q]);
        std::uint32_t lanes = not_below16(bound, queries[q].threshold) & allowed;
        if (lanes == 0) continue;
        float values[kCodeRows];
        store16(values, bound);
        for (; lanes != 0; lanes &= lanes - 1) {
          const std::int64_t lane = __builtin_ctz(lanes);
          candidates[found++] = CodeCandidate{(block + b) * kCodeRows + lane, static_cast<std::int32_t>(q), values[lane]};
        }
      }
    }
  }
  return found;
}

inline void keep_pairs(const CodeSearchTask& task, const CodeCandidate* candidates, std::int64_t count, CodeSearchQuery* queries, Heap* heaps) {
  for (std::int64_t i = 0; i < count; ++i) {
    const CodeCandidate& candidate = candidates[i];
    CodeSearchQuery& query = queries[candidate.sum];
    if (candidate.bound < query.threshold || !allowed_pair(task.mask, query.id, candidate.row)) continue;
    add_waiting(task, query, heaps[candidate.sum], candidate);
  }
}

}  // namespace

void code_prepare_tile(const CodeView& view, const CodeSearchQuery* queries, std::int64_t count, std::int8_t* codes, CodeTile& tile) {
  const std::int64_t steps = 2 * code_groups(view.dim);
  for (std::int64_t i = 0; i < 4 * steps * kTileQueries; ++i) tile.packed[i] = 0;
  for (std::int64_t q = 0; q < kTileQueries; ++q) tile.offsets[q] = 0;
  for (std::int64_t q = 0; q < count; ++q) {
    std::int32_t sum;
    tile.terms[q] = quantise_floats(queries[q].row, queries[q].coded.norm, view, kTileLevels, codes, &sum);
    tile.offsets[q] = -kTileMiddle * sum;
    // Sums are in units of scale * 2^(8 - bits) / factor.
    tile.terms[q].step *= static_cast<float>((1 << (8 - kTileBits)) / kTileFactor);
    for (std::int64_t s = 0; s < steps; ++s) __builtin_memcpy(tile.packed + 4 * (s * kTileQueries + q), codes + 4 * s, 4);
  }
}

void code_tiles(const CodeSearchTask& task, const CodeTile* tiles, CodeSearchQuery* queries, std::int64_t count, Heap* heaps,
                const CodeSearchScratch& scratch) {
  const CodeView& view = task.view;
  const std::int64_t groups = code_groups(view.dim);
  const std::int64_t low_bytes = low_row_bytes(view.dim);
  UnpackedRun run;
  run.block_bytes = 128 * groups;
  run.lines = scratch.lines;
  std::int64_t run_blocks = kRunBytes / run.block_bytes / kTileBlocks * kTileBlocks;
  run_blocks = run_blocks < kTileBlocks ? kTileBlocks : (run_blocks > kTileRunBlocks ? kTileRunBlocks : run_blocks);
  for (run.begin = task.block_begin; run.begin < task.block_end; run.begin = run.end) {
    run.end = task.block_end - run.begin < run_blocks ? task.block_end : run.begin + run_blocks;
    for (std::int64_t block = run.begin; block < run.end; ++block) {
      run.allowed[block - run.begin] = allowed_lanes(task, block);
      unpack_tile_lines(block_at(view, block) + kCodeHeaderBytes, view.low + block * kCodeRows * low_bytes, low_bytes, groups,
                        scratch.lines + (block - run.begin) * run.block_bytes);
    }
    const std::int64_t row_begin = run.begin * kCodeRows;
    const std::int64_t row_end = run.end * kCodeRows < view.count ? run.end * kCodeRows : view.count;
    for (std::int64_t first = 0; first < count; first += kTileQueries) {
      const std::int64_t in_tile = count - first < kTileQueries ? count - first : kTileQueries;
      CodeSearchQuery* own = queries + first;
      if (own->plain_runs > 0) {
        --own->plain_runs;
        score_rows_of_tile(task, row_begin, row_end, own, in_tile, heaps + first);
        continue;
      }
      const std::int64_t found = find_pairs(view, run, tiles[first / kTileQueries], own, in_tile, scratch.candidates);
      if (found * kDenseShare > (row_end - row_begin) * in_tile) {
        own->plain_runs = kPlainRuns;
        score_rows_of_tile(task, row_begin, row_end, own, in_tile, heaps + first);
      } else {
        keep_pairs(task, scratch.candidates, found, own, heaps + first);
      }
    }
  }
  for (std::int64_t q = 0; q < count; ++q) score_waiting(task, queries[q], heaps[q], 0);
}

void code_bounds(const CodeSearchTask& task, const CodeSearchQuery& query, int bits, const CodeTile& tile, const CodeSearchScratch& scratch,
                 float* out) {
  const CodeView& view = task.view;
  const std::int64_t groups = code_groups(view.dim);
  const std::int64_t low_bytes = low_row_bytes(view.dim);
  for (std::int64_t block = task.block_begin; block < task.block_end; ++block) {
    std::int32_t sum[kCodeRows];
    float bound[kCodeRows];
    if (bits == 0) {
      I16 sums[kTileBlocks * kTileQueries];
      unpack_tile_lines(block_at(view, block) + kCodeHeaderBytes, view.low + block * kCodeRows * low_bytes, low_bytes, groups, scratch.lines);
      tile_dots(scratch.lines, 0, 2 * groups, tile.packed, 1, tile.offsets, sums);
      const CodeHeader header = header_at(view, block);
      store16(bound, bounds(sums[0], load_bfloats16(header.scale), tile_errors(view, block), load_bfloats16(header.norm), tile.terms[0]));
    } else {
      const I16 sums = high_sums(view, block, query.coded);
      store16(sum, sums);
      store16(bound, high_bounds(view, block, sums, query.coded));
    }
    const std::int64_t first = block * kCodeRows;
    const std::int64_t rows = view.count - first < kCodeRows ? view.count - first : kCodeRows;
    for (std::int64_t i = 0; i < rows; ++i) out[first + i] = bits == 8 ? full_bound(view, first + i, sum[i], query.coded) : bound[i];
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
