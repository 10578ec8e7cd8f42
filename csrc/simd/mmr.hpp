// The greedy loop of maximal marginal relevance, shared by mmr_select and mmr_select_from.
#pragma once

#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

// Picks from `count` candidates in scratch (ids ascending, with their relevance); ids count from `base`.
// similarities(picked, ids, count, out) writes the similarity of the picked candidate to each of at most kKeyBlock others.
template <class Similarities>
inline void mmr_greedy(std::int64_t count, std::int64_t k, double weight, const MmrScratch& scratch, MmrResult& result, std::int64_t base,
                       Similarities similarities) {
  result.count = 0;
  while (result.count < k && count > 0) {
    std::int64_t best = -1;
    double best_score = 0.0;
    for (std::int64_t c = 0; c < count; ++c) {
      const double relevance = static_cast<double>(scratch.relevance[c]);
      // The first pick is the most relevant one whatever the weight; NaN compares false and never wins.
      const double score = result.count == 0 ? relevance : weight * relevance - (1.0 - weight) * static_cast<double>(scratch.penalty[c]);
      if (score > best_score || (best < 0 && score == score)) {
        best = c;
        best_score = score;
      }
    }
    if (best < 0) return;
    const std::int64_t picked = scratch.ids[best];
    result.indices[result.count] = picked - base;
    result.scores[result.count] = static_cast<float>(result.count == 0 ? weight * best_score : best_score);
    const bool first = result.count == 0;
    ++result.count;
    --count;
    for (std::int64_t c = best; c < count; ++c) {
      scratch.ids[c] = scratch.ids[c + 1];
      scratch.relevance[c] = scratch.relevance[c + 1];
      scratch.penalty[c] = scratch.penalty[c + 1];
    }
    if (result.count == k) return;
    for (std::int64_t begin = 0; begin < count; begin += kKeyBlock) {
      const std::int64_t block = count - begin < kKeyBlock ? count - begin : kKeyBlock;
      float similarity_out[kKeyBlock];
      similarities(picked, scratch.ids + begin, block, similarity_out);
      for (std::int64_t j = 0; j < block; ++j) {
        const float now = similarity_out[j];
        float& penalty = scratch.penalty[begin + j];
        // A NaN similarity stays: such a candidate has no score any more.
        if (first || now > penalty || now != now) penalty = now;
      }
    }
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
