// What one instruction set offers: a table of plain functions, filled once in csrc/simd/table.cpp for each set.
//
// Kernels work on one block at a time and never allocate: the launchers in csrc/ops/*_launch.cpp cut the job into blocks,
// lend scratch memory and spread the blocks over threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "prismem/rows.hpp"
#include "simd/codes.hpp"

namespace prismem {

constexpr std::int64_t kQueryBlock = 48;  // rows of packed queries that stay in the second-level cache
constexpr std::int64_t kKeyBlock = 128;   // keys scored before their scores are looked at

// Rows order[first .. first + count) of some order of the queries see keys begin .. end.
struct QueryBlock {
  std::int64_t first;
  std::int64_t count;
  std::int64_t begin;
  std::int64_t end;
};

// Up to kQueryBlock query rows against one contiguous range of keys.
struct ScoreTask {
  Rows queries;
  const std::int64_t* query_ids;
  std::int64_t query_count;
  Rows keys;
  std::int64_t key_begin;
  std::int64_t key_end;
  bool normalize;
};

// Memory of one thread; scratch_floats() says how many floats `packed` has.
struct Scratch {
  float* packed;          // kQueryBlock rows of padded_dim(dim)
  float* tile;            // kQueryBlock rows of kKeyBlock scores
  double* query_norms;    // kQueryBlock
  double* key_norms;      // kKeyBlock
  std::int64_t* key_ids;  // kKeyBlock
};

// Static: a copy compiled for one instruction set must not serve the others.
static constexpr std::int64_t padded_dim(std::int64_t dim) { return (dim + 7) / 8 * 8; }

// The best `size` <= `capacity` hits of one query; a heap with the worst at position 0 until top_k_finish sorts it.
// first_bad: the lowest key (local index) whose score was not finite, -1 if none.
struct Heap {
  float* scores;
  std::int64_t* indices;
  std::int64_t capacity;
  std::int64_t size;
  std::int64_t first_bad;
};

// Queries packed by OpTable::pack_queries, in a layout that only the same instruction set reads; norms are null without normalize.
struct PackedPanels {
  const float* rows;
  const double* norms;
  std::int64_t count;
};

// Rows that `count` packed queries take, of padded_dim floats each; no instruction set needs more.
static constexpr std::int64_t packed_rows(std::int64_t count) { return (count + 1) / 2 * 2; }

// Keys scored at a time: as many as fit into half of a second-level cache as floats, a multiple of 8.
static constexpr std::int64_t scan_keys(std::int64_t dim) {
  const std::int64_t most = dim > 0 ? (std::int64_t{1} << 16) / padded_dim(dim) / 8 * 8 : kKeyBlock;
  return most < 8 ? 8 : (most > kKeyBlock ? kKeyBlock : most);
}

// Memory of one thread for a scan: room for scan_keys rows, and for one, of padded_dim floats; aligned to a cache line.
struct ScanScratch {
  float* keys;
  float* row;
};

// Packed queries against keys key_begin .. key_end.
struct ScanTask {
  PackedPanels queries;
  Rows keys;
  std::int64_t key_begin;
  std::int64_t key_end;
};

struct TopKFilter {
  Mask mask;
  const std::int64_t* mask_rows;  // row of the mask that each query of the task has
  bool has_min_score;
  float min_score;
};

struct MmrTask {
  ScoreTask score;  // one query; key_begin and key_end are its segment
  Mask mask;
  std::int64_t k;
  double relevance_weight;
  bool has_min_relevance;
  float min_relevance;
};

struct MmrFromTask {
  const float* relevance;
  const float* similarity;
  std::int64_t row_stride;
  std::int64_t count;
  std::int64_t k;
  double relevance_weight;
  bool has_min_relevance;
  float min_relevance;
};

constexpr std::int64_t kSketchRows = 16;  // candidates of one block of a sketch
constexpr std::int64_t kSketchMostOpen = 8;  // candidates that are scored together
constexpr std::int64_t kSketchLine = 64;  // bytes: four dimensions of such a block
constexpr std::int64_t kSketchLeastCandidates = 128;  // below these no instruction set gains by a sketch
constexpr std::int64_t kSketchLeastPicks = 16;
constexpr std::int64_t kSketchMostDim = 16384;
static constexpr std::int64_t sketch_width(std::int64_t dim) { return (dim + 15) / 16 * 16; }
static constexpr std::int64_t sketch_groups(std::int64_t dim) { return sketch_width(dim) / 4; }

// A candidate and the number of a pick that are multiplied.
struct SketchJob {
  std::int64_t candidate;
  std::int64_t pick;
};

// Memory of the sketch of simd/mmr_sketch.hpp, for whole blocks of candidates; null lines: there is none.
struct MmrSketchScratch {
  std::int8_t* lines;       // a block: sketch_groups(dim) lines
  float* scale;
  float* error;
  float* length;
  float* base;   // weighted relevance, rounded up
  float* low;    // lower bounds of penalties
  float* bound;  // upper bounds of scores
  float* near;   // similarities as the sketch has them: for each block a row of kSketchRows for each pick
  float* block_bound;        // the largest bound of a block
  std::int64_t* block_seen;  // how many picks the bounds of a block know
  std::int8_t* pick_codes;   // sketch_width(dim) a pick
  std::int32_t* pick_sum;    // of its codes, one a pick
  float* pick_error;   // one a pick
  float* pick_length;  // one a pick
  SketchJob* jobs;     // kSketchMostOpen times as many as picks
  float* rows;         // 4 of sketch_width(dim)
};

constexpr std::int64_t kBoundBlock = 16;  // candidates of which the largest bound is kept

// Memory of one selection: arrays of the longest segment unless another length is said; floats and doubles start cache lines.
struct MmrScratch {
  std::int64_t* ids;
  float* relevance;
  float* penalty;
  double* norms;
  float* inverse_norms;
  double* bounds;        // and up to kBoundBlock more
  double* block_bounds;  // one for kBoundBlock bounds
  std::int64_t* seen;    // how many picks a penalty knows
  std::int64_t* picked;  // ids of the picks
  float* query;                // padded_dim(dim)
  float* picks;                // pick_capacity rows, at least one, of padded_dim(dim), pick_stride apart
  double* pick_norms;          // pick_capacity
  float* pick_inverse_norms;   // pick_capacity
  std::int64_t pick_capacity;
  std::int64_t pick_stride;
  MmrSketchScratch sketch;
};

struct MmrResult {
  std::int64_t* indices;
  float* scores;
  std::int64_t count;
  std::int64_t first_bad;
};

// Keys whose shares token_overlap counts at once, one byte each.
constexpr std::int64_t kOverlapLanes = 64;

// Row r of `members` is one id: its byte `lane` is 1 where key `lane` holds that id; aligned to kOverlapLanes bytes. Query q has the
// ids query_rows[query_offsets[q] .. query_offsets[q + 1]). Dice divides by both sizes; null key_sizes: coverage, by the query's.
struct OverlapTask {
  const std::uint8_t* members;
  const std::int32_t* query_rows;
  const std::int64_t* query_offsets;
  std::int64_t query_count;
  const double* key_sizes;  // kOverlapLanes
  std::int64_t key_count;   // <= kOverlapLanes
  double* const* out;       // out[q][out_begin + lane] for lane < key_count
  std::int64_t out_begin;
};

struct CodedSegmentTask;
struct CodedSegmentScratch;

struct OpTable {
  const char* isa;
  void (*pack_queries)(const Rows& queries, const std::int64_t* ids, std::int64_t count, float* rows, double* norms);
  void (*similarity)(const ScanTask&, float* out, std::int64_t out_stride, const ScanScratch&);
  void (*top_k_scan)(const ScanTask&, const TopKFilter&, std::int64_t segment_begin, Heap* heaps, const ScanScratch&);
  void (*top_k_merge)(Heap& into, const Heap& from);
  void (*top_k_finish)(Heap&);
  void (*mmr_select)(const MmrTask&, MmrResult&, const MmrScratch&);
  void (*mmr_select_from)(const MmrFromTask&, MmrResult&, const MmrScratch&);
  void (*segment_max_similarity)(const ScoreTask&, float* values, std::int64_t* indices, std::int64_t* first_bad, const Scratch&);
  double (*segment_mean_f32)(const float* values, std::int64_t count);
  double (*segment_mean_f64)(const double* values, std::int64_t count);
  void (*token_overlap)(const OverlapTask&);
  CodeTable codes;
  void (*code_segment_max)(const CodedSegmentTask&, float* values, std::int64_t* indices, std::int64_t* first_bad, CodedSegmentScratch&);
};

}  // namespace prismem
