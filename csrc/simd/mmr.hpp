// The greedy loop of maximal marginal relevance, shared by mmr_select and mmr_select_from: once as it is defined, and once lazily.
//
// Both pick the candidate with the largest weight * relevance - (1 - weight) * penalty, where the penalty is the largest similarity
// to a pick; ties go to the lowest candidate. More picks can only raise a penalty, so a score from fewer picks bounds the score
// from above, also as rounded: every step of the formula is monotonic. mmr_lazy brings a candidate up to date only while its
// bound is the largest of all; who is up to date and still the largest is the pick that mmr_greedy would have made.
#pragma once

#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

inline double mmr_score(double weight, float relevance, float penalty) {
  return weight * static_cast<double>(relevance) - (1.0 - weight) * static_cast<double>(penalty);
}

// Picks from `count` candidates in scratch (ids ascending, with their relevance); ids count from `base`. Eats the candidates.
// similarities(picked, ids, count, out) writes the similarity of the picked candidate to each of at most kKeyBlock others.
template <class Similarities>
inline void mmr_greedy(std::int64_t count, std::int64_t k, double weight, const MmrScratch& scratch, MmrResult& result, std::int64_t base,
                       Similarities similarities) {
  result.count = 0;
  while (result.count < k && count > 0) {
    std::int64_t best = -1;
    double best_score = 0.0;
    for (std::int64_t c = 0; c < count; ++c) {
      // The first pick is the most relevant one whatever the weight; NaN compares false and never wins.
      const double score = result.count == 0 ? static_cast<double>(scratch.relevance[c]) : mmr_score(weight, scratch.relevance[c], scratch.penalty[c]);
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

// Upper bounds of the scores of the candidates that are left, and the largest of every kBoundBlock of them.
class MmrBounds {
 public:
  MmrBounds(const MmrScratch& scratch, std::int64_t count)
      : values_(scratch.bounds), blocks_(scratch.block_bounds), block_count_((count + kBoundBlock - 1) / kBoundBlock) {
    for (std::int64_t c = count; c < block_count_ * kBoundBlock; ++c) values_[c] = kGone;
  }

  // Sets without looking at the block; settle() follows when all are set.
  void start(std::int64_t candidate, double bound) { values_[candidate] = bound; }
  void settle() {
    for (std::int64_t block = 0; block < block_count_; ++block) settle_block(block);
  }

  void set(std::int64_t candidate, double bound) {
    values_[candidate] = bound;
    settle_block(candidate / kBoundBlock);
  }
  void remove(std::int64_t candidate) { set(candidate, kGone); }

  double of(std::int64_t candidate) const { return values_[candidate]; }

  // The lowest candidate with the largest bound; -1 where none is left.
  std::int64_t largest() const {
    std::int64_t best = 0;
    for (std::int64_t block = 1; block < block_count_; ++block) {
      if (blocks_[block] > blocks_[best]) best = block;
    }
    if (blocks_[best] == kGone) return -1;
    std::int64_t candidate = best * kBoundBlock;
    while (values_[candidate] != blocks_[best]) ++candidate;
    return candidate;
  }

 private:
  static constexpr double kGone = -__builtin_inf();

  void settle_block(std::int64_t block) {
    const double* values = values_ + block * kBoundBlock;
    double largest[4] = {values[0], values[1], values[2], values[3]};
    for (std::int64_t i = 4; i < kBoundBlock; i += 4) {
      for (int lane = 0; lane < 4; ++lane) largest[lane] = values[i + lane] > largest[lane] ? values[i + lane] : largest[lane];
    }
    const double left = largest[0] > largest[2] ? largest[0] : largest[2];
    const double right = largest[1] > largest[3] ? largest[1] : largest[3];
    blocks_[block] = left > right ? left : right;
  }

  double* values_;
  double* blocks_;
  std::int64_t block_count_;
};

// As mmr_greedy, for candidates with finite relevance; leaves ids and relevance as they are. False, with no result, as soon as a
// similarity is not finite: then bounds prove nothing.
//
//   similarities.pick(candidate, number)           the candidate is the pick of this number, counted from 0
//   similarities.first(count)                      penalties of all candidates from pick 0 alone
//   similarities.raise(one, other, from, to)       raises the penalties of two candidates (other: -1 for none) by picks from .. to - 1
//
// The last two return false where a similarity is not finite.
template <class Similarities>
inline bool mmr_lazy(std::int64_t count, std::int64_t k, double weight, const MmrScratch& scratch, MmrResult& result, std::int64_t base,
                     Similarities& similarities) {
  result.count = 0;
  const std::int64_t most = k < count ? k : count;
  if (most == 0) return true;
  const auto take = [&](std::int64_t candidate, double score) {
    result.indices[result.count] = scratch.ids[candidate] - base;
    result.scores[result.count] = static_cast<float>(score);
    if (++result.count < most) similarities.pick(candidate, result.count - 1);
  };
  std::int64_t first = 0;
  for (std::int64_t c = 1; c < count; ++c) {
    if (scratch.relevance[c] > scratch.relevance[first]) first = c;
  }
  take(first, weight * static_cast<double>(scratch.relevance[first]));
  if (result.count == most) return true;
  if (!similarities.first(count)) return false;
  const auto score = [&](std::int64_t c) { return mmr_score(weight, scratch.relevance[c], scratch.penalty[c]); };
  MmrBounds bounds(scratch, count);
  for (std::int64_t c = 0; c < count; ++c) {
    bounds.start(c, score(c));
    scratch.seen[c] = 1;
  }
  bounds.settle();
  bounds.remove(first);
  while (result.count < most) {
    const std::int64_t one = bounds.largest();
    const double bound = bounds.of(one);
    bounds.remove(one);
    if (scratch.seen[one] == result.count) {
      take(one, bound);
      continue;
    }
    // The next candidate is likely to be asked for as well, and two share the reading of the picks.
    std::int64_t other = bounds.largest();
    if (other >= 0 && scratch.seen[other] == result.count) other = -1;
    std::int64_t from = scratch.seen[one];
    if (other >= 0 && scratch.seen[other] < from) from = scratch.seen[other];
    if (!similarities.raise(one, other, from, result.count)) return false;
    scratch.seen[one] = result.count;
    bounds.set(one, score(one));
    if (other < 0) continue;
    scratch.seen[other] = result.count;
    bounds.set(other, score(other));
  }
  return true;
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
