// mmr_select: relevance of one query to its segment, then the greedy loop; each pick is scored against what is left.
#include "simd/mmr.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

template <class T>
void select(const MmrTask& task, MmrResult& result, const MmrScratch& candidates, const Scratch& scratch) {
  const ScoreTask& score = task.score;
  const std::int64_t base = score.key_begin;
  const PackedQueries query = pack_queries(score, scratch);
  const std::uint8_t* allowed = task.mask.data != nullptr ? task.mask.data + score.query_ids[0] * task.mask.query_stride : nullptr;
  std::int64_t count = 0;
  for (std::int64_t begin = base; begin < score.key_end; begin += kKeyBlock) {
    const std::int64_t end = score.key_end - begin < kKeyBlock ? score.key_end : begin + kKeyBlock;
    std::int64_t block = 0;
    for (std::int64_t key = begin; key < end; ++key) {
      if (allowed == nullptr || allowed[key * task.mask.key_stride] != 0) scratch.key_ids[block++] = key;
    }
    score_keys_of<T>(query, score.keys, scratch.key_ids, 0, block, scratch.key_norms, scratch.tile, kKeyBlock);
    for (std::int64_t j = 0; j < block; ++j) {
      const float relevance = scratch.tile[j];
      const std::int64_t key = scratch.key_ids[j];
      if (!is_finite(relevance)) {
        if (result.first_bad < 0) result.first_bad = key - base;
        if (relevance != relevance) continue;
      }
      if (task.has_min_relevance && relevance < task.min_relevance) continue;
      candidates.ids[count] = key;
      candidates.relevance[count] = relevance;
      if (score.normalize) candidates.norms[key - base] = scratch.key_norms[j];
      ++count;
    }
  }
  const std::int64_t stride = padded_dim(score.keys.dim);
  mmr_greedy(count, task.k, task.relevance_weight, candidates, result, base,
             [&](std::int64_t picked, const std::int64_t* ids, std::int64_t others, float* out) {
               pack_row(row_at<T>(score.keys, picked), score.keys.dim, scratch.packed);
               const PackedQueries row{scratch.packed, stride, 1, score.normalize ? &candidates.norms[picked - base] : nullptr};
               if (score.normalize) {
                 for (std::int64_t j = 0; j < others; ++j) scratch.key_norms[j] = candidates.norms[ids[j] - base];
               }
               score_block<T>(row, score.keys, ids, 0, others, scratch.key_norms, out, kKeyBlock);
             });
}

}  // namespace

void mmr_select(const MmrTask& task, MmrResult& result, const MmrScratch& candidates, const Scratch& scratch) {
  switch (task.score.keys.kind) {
    case Kind::f32: select<float>(task, result, candidates, scratch); break;
    case Kind::f16: select<Half>(task, result, candidates, scratch); break;
    case Kind::bf16: select<Bfloat>(task, result, candidates, scratch); break;
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
