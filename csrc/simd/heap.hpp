// A bounded heap of hits: the worst of the best at the top.
#pragma once

#include "simd/op_table.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

// The total order of hits: score descending, then index ascending; -0 and 0 are equal, NaN never gets here.
inline bool better(float score, std::int64_t index, float other_score, std::int64_t other_index) {
  return score > other_score || (score == other_score && index < other_index);
}

// Restores the heap below `hole`, where (score, index) is to be placed; the worst hit is at the top.
inline void sift_down(Heap& heap, std::int64_t hole, std::int64_t size, float score, std::int64_t index) {
  for (;;) {
    std::int64_t child = 2 * hole + 1;
    if (child >= size) break;
    if (child + 1 < size && better(heap.scores[child], heap.indices[child], heap.scores[child + 1], heap.indices[child + 1])) ++child;
    if (!better(score, index, heap.scores[child], heap.indices[child])) break;
    heap.scores[hole] = heap.scores[child];
    heap.indices[hole] = heap.indices[child];
    hole = child;
  }
  heap.scores[hole] = score;
  heap.indices[hole] = index;
}

inline void push(Heap& heap, float score, std::int64_t index) {
  if (heap.size == heap.capacity) {
    if (heap.capacity > 0 && better(score, index, heap.scores[0], heap.indices[0])) sift_down(heap, 0, heap.size, score, index);
    return;
  }
  std::int64_t hole = heap.size++;
  while (hole > 0) {
    const std::int64_t parent = (hole - 1) / 2;
    if (!better(heap.scores[parent], heap.indices[parent], score, index)) break;
    heap.scores[hole] = heap.scores[parent];
    heap.indices[hole] = heap.indices[parent];
    hole = parent;
  }
  heap.scores[hole] = score;
  heap.indices[hole] = index;
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
