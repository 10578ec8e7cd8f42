// From candidates to hits: the canonical scores of the rows that the codes could not rule out.
#pragma once

#include "simd/codes.hpp"
#include "simd/heap.hpp"
#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

constexpr std::int32_t kPlainRuns = 8;  // after a run whose codes proved nothing

// The rows of a block that exist and that a mask for all queries lets pass.
inline std::uint32_t allowed_lanes(const CodeSearchTask& task, std::int64_t block) {
  const std::int64_t first = block * kCodeRows;
  const std::int64_t left = task.view.count - first;
  const std::int64_t rows = left < kCodeRows ? left : kCodeRows;
  const Mask& mask = task.mask;
  if (mask.data == nullptr || mask.query_stride != 0) return (1u << rows) - 1;
  std::uint32_t lanes = 0;
  for (std::int64_t i = 0; i < rows; ++i) lanes |= static_cast<std::uint32_t>(mask.data[(first + i) * mask.key_stride] != 0) << i;
  return lanes;
}

// Whether a mask with a row for each query lets a pair pass.
inline bool allowed_pair(const Mask& mask, std::int64_t query, std::int64_t row) {
  return mask.data == nullptr || mask.query_stride == 0 || mask.data[query * mask.query_stride + row * mask.key_stride] != 0;
}

inline void prefetch_row(const Rows& keys, std::int64_t row) {
  const std::int64_t size = keys.kind == Kind::f32 ? 4 : 2;
  const auto* bytes = static_cast<const std::uint8_t*>(keys.data) + row * keys.stride * size;
  for (std::int64_t i = 0; i < keys.dim * size; i += 64) __builtin_prefetch(bytes + i);
}

// Packs a query and returns its norm.
inline double pack_with_norm(const Rows& queries, std::int64_t id, float* row) {
  switch (queries.kind) {
    case Kind::f32: pack_row(row_at<float>(queries, id), queries.dim, row); break;
    case Kind::f16: pack_row(row_at<Half>(queries, id), queries.dim, row); break;
    case Kind::bf16: pack_row(row_at<Bfloat>(queries, id), queries.dim, row); break;
  }
  return row_norm(row, queries.dim);
}

inline PackedQueries packed_query(const CodeSearchTask& task, const CodeSearchQuery& query) {
  return PackedQueries{query.row, padded_dim(task.view.dim), 1, task.view.normalize ? &query.coded.norm : nullptr};
}

inline void offer(CodeSearchQuery& query, Heap& heap, float score, std::int64_t row) {
  if (score < query.threshold) return;
  push(heap, score, row);
  if (heap.size == heap.capacity && heap.scores[0] > query.threshold) query.threshold = heap.scores[0];
}

// Scores every allowed row of begin .. end for one query.
inline void score_rows(const CodeSearchTask& task, std::int64_t begin, std::int64_t end, CodeSearchQuery& query, Heap& heap) {
  std::int64_t ids[kKeyBlock];
  double norms[kKeyBlock];
  float scores[kKeyBlock];
  const bool shared_mask = task.mask.data != nullptr && task.mask.query_stride == 0;
  for (std::int64_t row = begin; row < end;) {
    std::int64_t count = 0;
    for (; row < end && count < kKeyBlock; ++row) {
      if (shared_mask ? task.mask.data[row * task.mask.key_stride] != 0 : allowed_pair(task.mask, query.id, row)) ids[count++] = row;
    }
    score_keys(packed_query(task, query), task.keys, ids, 0, count, norms, scores, kKeyBlock);
    for (std::int64_t i = 0; i < count; ++i) offer(query, heap, scores[i], ids[i]);
  }
}

// Scores every row of begin .. end for the queries of a tile, whose packed rows follow each other.
inline void score_rows_of_tile(const CodeSearchTask& task, std::int64_t begin, std::int64_t end, CodeSearchQuery* queries, std::int64_t count, Heap* heaps) {
  double query_norms[kMaxTileQueries];
  for (std::int64_t q = 0; q < count; ++q) query_norms[q] = queries[q].coded.norm;
  const PackedQueries packed{queries[0].row, padded_dim(task.view.dim), count, task.view.normalize ? query_norms : nullptr};
  const bool shared_mask = task.mask.data != nullptr && task.mask.query_stride == 0;
  double norms[kKeyBlock];
  float scores[kMaxTileQueries * kKeyBlock];
  for (; begin < end; begin += kKeyBlock) {
    const std::int64_t rows = end - begin < kKeyBlock ? end - begin : kKeyBlock;
    score_keys(packed, task.keys, nullptr, begin, rows, norms, scores, kKeyBlock);
    for (std::int64_t q = 0; q < count; ++q) {
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t row = begin + i;
        const bool allowed = shared_mask ? task.mask.data[row * task.mask.key_stride] != 0 : allowed_pair(task.mask, queries[q].id, row);
        if (allowed) offer(queries[q], heaps[q], scores[q * kKeyBlock + i], row);
      }
    }
  }
}

// Forgets the waiting rows whose bounds the threshold has passed.
inline void drop_waiting(CodeSearchQuery& query) {
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < query.waiting_count; ++i) {
    if (!(query.waiting[i].bound < query.threshold)) query.waiting[kept++] = query.waiting[i];
  }
  query.waiting_count = kept;
}

// Takes the waiting row with the highest bound out.
inline std::int64_t take_best_waiting(CodeSearchQuery& query) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < query.waiting_count; ++i) {
    if (!(query.waiting[i].bound <= query.waiting[best].bound)) best = i;
  }
  const std::int64_t row = query.waiting[best].row;
  query.waiting[best] = query.waiting[--query.waiting_count];
  return row;
}

// Scores waiting rows, the highest bounds first, until at most `keep` wait. The order raises the threshold soonest, and the later a
// row is looked at, the likelier it has fallen below.
inline void score_waiting(const CodeSearchTask& task, CodeSearchQuery& query, Heap& heap, std::int64_t keep) {
  constexpr std::int64_t kAtOnce = 8;
  std::int64_t ids[kAtOnce];
  double norms[kAtOnce];
  float scores[kAtOnce];
  for (drop_waiting(query); query.waiting_count > keep; drop_waiting(query)) {
    std::int64_t taken = 0;
    for (; taken < kAtOnce && query.waiting_count > keep; ++taken) {
      ids[taken] = take_best_waiting(query);
      prefetch_row(task.keys, ids[taken]);
    }
    score_keys(packed_query(task, query), task.keys, ids, 0, taken, norms, scores, kAtOnce);
    for (std::int64_t i = 0; i < taken; ++i) offer(query, heap, scores[i], ids[i]);
  }
}

inline void add_waiting(const CodeSearchTask& task, CodeSearchQuery& query, Heap& heap, const CodeCandidate& candidate) {
  query.waiting[query.waiting_count++] = candidate;
  if (query.waiting_count == kMaxWaiting) score_waiting(task, query, heap, kMaxWaiting / 2);
}

// The heap holds rows with their bounds: scores them, raises the threshold to the worst of them if there are enough, and leaves
// the heap empty. Returns the rank-th best score, or the worst where there are fewer.
inline float raise_threshold(const CodeSearchTask& task, CodeSearchQuery& query, Heap& heap, std::int64_t rank) {
  const std::int64_t found = heap.size;
  float worst = query.threshold;
  Heap best = heap;  // in the same memory: a score replaces a row that has been read
  best.size = 0;
  best.capacity = rank;
  for (std::int64_t begin = 0; begin < found; begin += kKeyBlock) {
    const std::int64_t count = found - begin < kKeyBlock ? found - begin : kKeyBlock;
    double norms[kKeyBlock];
    float scores[kKeyBlock];
    score_keys(packed_query(task, query), task.keys, heap.indices + begin, 0, count, norms, scores, kKeyBlock);
    for (std::int64_t i = 0; i < count; ++i) {
      worst = begin + i == 0 || scores[i] < worst ? scores[i] : worst;
      push(best, scores[i], begin + i);
    }
  }
  heap.size = 0;
  if (found == heap.capacity && found > 0 && worst > query.threshold) query.threshold = worst;
  return best.size > 0 ? best.scores[0] : query.threshold;
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
