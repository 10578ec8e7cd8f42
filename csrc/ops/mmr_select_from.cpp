// mmr_select_from: the greedy loop over relevance and similarities that the caller computed.
#include "simd/mmr.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

void mmr_select_from(const MmrFromTask& task, MmrResult& result, const MmrScratch& candidates) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < task.count; ++i) {
    const float relevance = task.relevance[i];
    if (relevance != relevance || (task.has_min_relevance && relevance < task.min_relevance)) continue;
    candidates.ids[count] = i;
    candidates.relevance[count] = relevance;
    ++count;
  }
  mmr_greedy(count, task.k, task.relevance_weight, candidates, result, 0,
             [&](std::int64_t picked, const std::int64_t* ids, std::int64_t others, float* out) {
               // Row of the candidate, column of the pick: sim_ij of the definition, also where the matrix is not symmetric.
               for (std::int64_t j = 0; j < others; ++j) out[j] = task.similarity[ids[j] * task.row_stride + picked];
             });
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
