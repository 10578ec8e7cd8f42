// similarity: all scores of a block of queries, written where they belong.
#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

void similarity(const ScoreTask& task, float* out, std::int64_t out_stride, const Scratch& scratch) {
  const PackedQueries queries = pack_queries(task, scratch);
  for (std::int64_t begin = task.key_begin; begin < task.key_end; begin += kKeyBlock) {
    const std::int64_t count = task.key_end - begin < kKeyBlock ? task.key_end - begin : kKeyBlock;
    score_keys(queries, task.keys, nullptr, begin, count, scratch.key_norms, scratch.tile, kKeyBlock);
    for (std::int64_t q = 0; q < task.query_count; ++q) {
      float* row = out + task.query_ids[q] * out_stride + begin;
      for (std::int64_t j = 0; j < count; ++j) row[j] = scratch.tile[q * kKeyBlock + j];
    }
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
