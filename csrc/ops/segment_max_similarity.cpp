// segment_max_similarity: the running maximum of a block of evidence over one segment of items (Eq. 8).
#include "simd/best.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

void segment_max_similarity(const ScoreTask& task, float* values, std::int64_t* indices, std::int64_t* first_bad, const Scratch& scratch) {
  for (std::int64_t q = 0; q < task.query_count; ++q) {
    values[task.query_ids[q]] = 0.0f;
    indices[task.query_ids[q]] = -1;
    first_bad[q] = -1;
  }
  if (task.key_begin == task.key_end) return;
  const PackedQueries queries = pack_queries(task, scratch);
  for (std::int64_t begin = task.key_begin; begin < task.key_end; begin += kKeyBlock) {
    const std::int64_t count = task.key_end - begin < kKeyBlock ? task.key_end - begin : kKeyBlock;
    score_keys(queries, task.keys, nullptr, begin, count, scratch.key_norms, scratch.tile, kKeyBlock);
    const std::int64_t local = begin - task.key_begin;
    for (std::int64_t q = 0; q < task.query_count; ++q) {
      float* scores = scratch.tile + q * kKeyBlock;
      const Best best = best_of(scores, count);
      if (!best.all_finite && first_bad[q] < 0) {
        std::int64_t bad = 0;
        while (is_finite(scores[bad])) ++bad;
        first_bad[q] = local + bad;
      }
      float& value = values[task.query_ids[q]];
      std::int64_t& index = indices[task.query_ids[q]];
      if (best.position >= 0 && (index < 0 || scores[best.position] > value)) {
        value = scores[best.position];
        index = local + best.position;
      }
    }
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
