// top_k: scores of a block of keys, then one bounded heap a query; no score is written to memory beyond the block.
#include "simd/heap.hpp"
#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

void top_k_scan(const ScoreTask& task, const TopKFilter& filter, std::int64_t segment_begin, Heap* heaps, const Scratch& scratch) {
  const PackedQueries queries = pack_queries(task, scratch);
  const Mask& mask = filter.mask;
  const bool shared_mask = mask.data != nullptr && mask.query_stride == 0;
  const bool own_masks = mask.data != nullptr && mask.query_stride != 0;
  for (std::int64_t begin = task.key_begin; begin < task.key_end; begin += kKeyBlock) {
    const std::int64_t end = task.key_end - begin < kKeyBlock ? task.key_end : begin + kKeyBlock;
    std::int64_t count = 0;
    for (std::int64_t key = begin; key < end; ++key) {
      if (!shared_mask || mask.data[key * mask.key_stride] != 0) scratch.key_ids[count++] = key;
    }
    if (count == 0) continue;
    score_keys(queries, task.keys, scratch.key_ids, 0, count, scratch.key_norms, scratch.tile, kKeyBlock);
    for (std::int64_t q = 0; q < task.query_count; ++q) {
      Heap& heap = heaps[q];
      const float* scores = scratch.tile + q * kKeyBlock;
      const std::uint8_t* allowed = own_masks ? mask.data + task.query_ids[q] * mask.query_stride : nullptr;
      for (std::int64_t j = 0; j < count; ++j) {
        const float score = scores[j];
        const std::int64_t key = scratch.key_ids[j];
        if (allowed != nullptr && allowed[key * mask.key_stride] == 0) continue;
        if (!is_finite(score)) {
          if (heap.first_bad < 0) heap.first_bad = key - segment_begin;
          if (score != score) continue;
        }
        if (filter.has_min_score && score < filter.min_score) continue;
        push(heap, score, key - segment_begin);
      }
    }
  }
}

void top_k_merge(Heap& into, const Heap& from) {
  for (std::int64_t i = 0; i < from.size; ++i) push(into, from.scores[i], from.indices[i]);
  if (from.first_bad >= 0 && (into.first_bad < 0 || from.first_bad < into.first_bad)) into.first_bad = from.first_bad;
}

void top_k_finish(Heap& heap) {
  for (std::int64_t last = heap.size - 1; last > 0; --last) {
    const float score = heap.scores[last];
    const std::int64_t index = heap.indices[last];
    heap.scores[last] = heap.scores[0];
    heap.indices[last] = heap.indices[0];
    sift_down(heap, 0, last, score, index);
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
