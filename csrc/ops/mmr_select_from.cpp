// mmr_select_from: the greedy loop over relevance and similarities that the caller computed.
#include "simd/mmr.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

// Row of the candidate, column of the pick: sim_ij of the definition, also where the matrix is not symmetric.
class GivenSimilarities {
 public:
  GivenSimilarities(const MmrFromTask& task, const MmrScratch& scratch) : task_(task), scratch_(scratch) {}

  void pick(std::int64_t candidate, std::int64_t number) { scratch_.picked[number] = scratch_.ids[candidate]; }

  bool first(std::int64_t count) {
    bool finite = true;
    for (std::int64_t c = 0; c < count; ++c) {
      scratch_.penalty[c] = -kFloatMax;
      finite &= raise_one(c, 0, 1);
    }
    return finite;
  }

  bool raise(std::int64_t one, std::int64_t other, std::int64_t from, std::int64_t to) {
    return raise_one(one, from, to) & (other < 0 || raise_one(other, from, to));
  }

 private:
  bool raise_one(std::int64_t candidate, std::int64_t from, std::int64_t to) {
    const float* row = task_.similarity + scratch_.ids[candidate] * task_.row_stride;
    float penalty = scratch_.penalty[candidate];
    bool finite = true;
    for (std::int64_t pick = from; pick < to; ++pick) {
      const float similarity = row[scratch_.picked[pick]];
      finite &= is_finite(similarity);
      if (similarity > penalty) penalty = similarity;
    }
    scratch_.penalty[candidate] = penalty;
    return finite;
  }

  const MmrFromTask& task_;
  const MmrScratch& scratch_;
};

}  // namespace

void mmr_select_from(const MmrFromTask& task, MmrResult& result, const MmrScratch& scratch) {
  std::int64_t count = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < task.count; ++i) {
    const float relevance = task.relevance[i];
    if (relevance != relevance || (task.has_min_relevance && relevance < task.min_relevance)) continue;
    finite &= is_finite(relevance);
    scratch.ids[count] = i;
    scratch.relevance[count] = relevance;
    ++count;
  }
  GivenSimilarities similarities(task, scratch);
  if (finite && mmr_lazy(count, task.k, task.relevance_weight, scratch, result, 0, similarities)) return;
  mmr_greedy(count, task.k, task.relevance_weight, scratch, result, 0,
             [&](std::int64_t picked, const std::int64_t* ids, std::int64_t others, float* out) {
               for (std::int64_t j = 0; j < others; ++j) out[j] = task.similarity[ids[j] * task.row_stride + picked];
             });
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
