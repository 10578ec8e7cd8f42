// Certified codes of rows: what a kernel needs to prove, from a quarter or an eighth of the bytes, that a score stays below a
// threshold. Plain structures; the arithmetic is in simd/code_bounds.hpp, the proof in docs/numerics.md.
//
// A row is taken relative to a centre: y = x - centre, or y = x / |x| - centre with `normalize` (a zero row has x / |x| = 0).
// With one scale a row, dimension j has the code c = round(y_j / scale) + 128, 1 <= c <= 255, and two reconstructions:
//
//   all 8 bits        y_j ~ scale * (c - 128)
//   the high 4 bits   y_j ~ scale * (16 * (c >> 4) - 120)
//
// Beside the codes stand upper bounds of the lengths of both residuals and of the reconstructions, as bfloat16 rounded up.
//
// Layout. Rows come in blocks of kCodeRows, dimensions in groups of 8 (missing ones have code 0 and a query code of 0):
//
//   block b    one header: scale, high_error, full_error, norm, each kCodeRows uint16 bits of bfloat16
//              groups lines of 64 bytes: line g holds for row r at byte 4 r + i the high halves of dimension 8 g + i (low
//              nibble) and of dimension 8 g + 4 + i (high nibble), i < 4
//   low row r  4 bytes a group, in the same order, with the low halves; padded to whole cache lines
//
// So a scan of the blocks reads 4 bits a dimension as one stream, sixteen rows at a time with rows as lanes; the few rows that
// pass the first bound read their own low row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "prismem/rows.hpp"

namespace prismem {

constexpr std::int64_t kCodeRows = 16;
constexpr std::int64_t kCodeHeaderBytes = 4 * kCodeRows * 2;
// Sums of products of codes stay below 2^31 up to here.
constexpr std::int64_t kMaxCodeDim = 16384;
// The largest size of a query code where one query at a time meets a row or a block.
constexpr std::int32_t kQueryLevels = 127;
// Inner products of rows and queries up to here cannot overflow; for longer ones, and where anything is not finite, no bound is
// given: such rows have infinite errors, such queries no codes.
constexpr double kMaxCodeNorm = 1e18;

static constexpr std::int64_t code_groups(std::int64_t dim) { return (dim + 7) / 8; }
static constexpr std::int64_t code_blocks(std::int64_t count) { return (count + kCodeRows - 1) / kCodeRows; }
static constexpr std::int64_t code_block_bytes(std::int64_t dim) { return kCodeHeaderBytes + 64 * code_groups(dim); }
static constexpr std::int64_t low_row_bytes(std::int64_t dim) { return (4 * code_groups(dim) + 63) / 64 * 64; }

// The codes of `count` rows. Memory exists for whole blocks: rows from `count` on are zeros and mean nothing.
struct CodeView {
  const std::uint8_t* blocks;      // code_blocks(count) of code_block_bytes(dim), 64-byte aligned
  const std::uint8_t* low;         // low_row_bytes(dim) a row, 64-byte aligned
  const std::uint16_t* mid_error;  // residual of the high 6 bits, as bfloat16 rounded up
  const float* centre;             // (dim)
  double centre_norm;              // at least the length of the centre
  std::int64_t count;
  std::int64_t dim;
  bool normalize;
  bool regular;  // whether every row is finite and short enough for the bounds to hold
};

// The same memory, to be written.
struct CodeStore {
  std::uint8_t* blocks;
  std::uint8_t* low;
  std::uint16_t* mid_error;
  const float* centre;
  double centre_norm;
  std::int64_t dim;
  bool normalize;
};

// bound = scale * dot * step + base + error * per_error + norm * per_norm, never below the canonical score.
struct BoundTerms {
  float step;
  float base;
  float per_error;
  float per_norm;
};

// A query in 8-bit codes: memory for 4 bytes a group, padded to whole cache lines, is lent by the caller.
struct CodedQuery {
  std::int8_t* low;   // dimensions 8 g + i at 4 g + i
  std::int8_t* high;  // dimensions 8 g + 4 + i at 4 g + i
  std::int32_t sum;   // of all codes
  BoundTerms terms;
  double norm;  // of the query as given; not finite: no bound holds, `terms` are useless
};

// Scratch of the encoder: padded_dim(dim) each.
struct CodeScratch {
  float* row;
  std::uint8_t* codes;
};

// Blocks of rows that a search goes through; `keys` are the rows behind the codes. A row is seen by query `id` if the mask says so.
struct CodeSearchTask {
  Rows keys;
  CodeView view;
  Mask mask;
  std::int64_t block_begin;
  std::int64_t block_end;
};

// A row that may be a hit: its sum of code products, or the number of its query, and its bound.
struct CodeCandidate {
  std::int64_t row;
  std::int32_t sum;
  float bound;
};

constexpr std::int64_t kMaxWaiting = 128;

// One query of a search: as packed floats, and as codes.
struct CodeSearchQuery {
  const float* row;
  CodedQuery coded;
  std::int64_t id;
  float threshold;  // a row whose score is below is no hit; rises while hits are found
  std::int32_t plain_runs;  // runs still to be scored without a look at the codes, because those proved nothing
  CodeCandidate* waiting;   // up to kMaxWaiting rows that may be hits and are not scored yet
  std::int64_t waiting_count;
};

constexpr std::int64_t kStreamRunBlocks = 64;  // blocks whose candidates are collected before they are looked at
constexpr std::int64_t kTileRunBlocks = 16;
constexpr std::int64_t kMaxTileQueries = 12;
constexpr std::int64_t kMaxCandidates = kMaxTileQueries * kTileRunBlocks * kCodeRows;
static_assert(kMaxCandidates >= kStreamRunBlocks * kCodeRows, "a run of either kind fits");

struct CodeSearchScratch {
  CodeCandidate* candidates;  // kMaxCandidates
  std::uint8_t* lines;        // kTileRunBlocks unpacked blocks of 128 bytes a group, 64-byte aligned
};

// Codes of a few queries for the batched product, packed for it: 4 bytes at (s * queries of a tile + q) for the dimensions 4 s ...
struct CodeTile {
  std::int8_t* packed;  // 8 bytes a group for each query of a tile, the missing ones too
  std::int32_t offsets[kMaxTileQueries];  // what makes the sums of codes sums of centred codes
  BoundTerms terms[kMaxTileQueries];
};

struct Heap;

// The kernels on codes of one instruction set; `top_k_...` of simd/op_table.hpp merge and finish the heaps.
struct CodeTable {
  void (*encode)(const Rows&, std::int64_t begin, std::int64_t end, const CodeStore&, const CodeScratch&);
  std::int64_t (*add_rows)(const Rows&, std::int64_t begin, std::int64_t end, std::int64_t step, bool normalize, float* row, double* sums);
  void (*prepare)(const Rows& queries, std::int64_t id, const CodeView&, float* row, std::int8_t* codes, CodedQuery&);
  double (*sample)(const CodeSearchTask&, std::int64_t step, bool batched, CodeSearchQuery&, Heap&, const CodeSearchScratch&);
  void (*stream)(const CodeSearchTask&, CodeSearchQuery* queries, std::int64_t count, Heap* heaps, const CodeSearchScratch&);
  // Bounds of one query for all rows, from the first `bits` of the codes: 4, 8, or those of the batched product (0).
  void (*bounds)(const CodeSearchTask&, const CodeSearchQuery&, int bits, const CodeTile&, const CodeSearchScratch&, float* out);
  // Queries of one tile; tile t holds the queries from t * tile_queries on.
  std::int64_t tile_queries;
  void (*prepare_tile)(const CodeView&, const CodeSearchQuery* queries, std::int64_t count, std::int8_t* codes, CodeTile&);
  void (*tiles)(const CodeSearchTask&, const CodeTile* tiles, CodeSearchQuery* queries, std::int64_t count, Heap* heaps,
                const CodeSearchScratch&);
};

}  // namespace prismem
