// segment_max_similarity: the running maximum of a block of evidence over one segment of items (Eq. 8).
#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

void segment_max_similarity(const ScoreTask& task, float* values, std::int64_t* indices, std::int64_t* first_bad, const Scratch& scratch) {
  const PackedQueries queries = pack_queries(task, scratch);
  for (std::int64_t q = 0; q < task.query_count; ++q) {
    values[task.query_ids[q]] = 0.0f;
    indices[task.query_ids[q]] = -1;
    first_bad[q] = -1;
  }
  for (std::int64_t begin = task.key_begin; begin < task.key_end; begin += kKeyBlock) {
    const std::int64_t count = task.key_end - begin < kKeyBlock ? task.key_end - begin : kKeyBlock;
    score_keys(queries, task.keys, nullptr, begin, count, scratch.key_norms, scratch.tile, kKeyBlock);
    for (std::int64_t q = 0; q < task.query_count; ++q) {
      const float* scores = scratch.tile + q * kKeyBlock;
      float best = values[task.query_ids[q]];
      std::int64_t where = indices[task.query_ids[q]];
      for (std::int64_t j = 0; j < count; ++j) {
        const float score = scores[j];
        if (!is_finite(score) && first_bad[q] < 0) first_bad[q] = begin + j - task.key_begin;
        if (score > best || (where < 0 && score == score)) {
          best = score;
          where = begin + j - task.key_begin;
        }
      }
      values[task.query_ids[q]] = best;
      indices[task.query_ids[q]] = where;
    }
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
