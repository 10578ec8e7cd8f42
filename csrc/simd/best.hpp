// The first largest of a row of scores.
#pragma once

#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

struct Best {
  std::int64_t position;  // of the first largest score; -1 where every score is NaN
  bool all_finite;
};

// `scores` has room for a multiple of eight; what lies behind `count` > 0 scores is overwritten.
inline Best best_of(float* scores, std::int64_t count) {
  // A copy of the last score is never the first largest.
  std::int64_t padded = count;
  for (; padded % 8 != 0; ++padded) scores[padded] = scores[count - 1];
  F8 high = splat8(-__builtin_inff());
  F8 spoilt = zero8();
  for (std::int64_t j = 0; j < padded; j += 8) {
    const F8 score = load8(scores + j);
    high = max8(score, high);
    spoilt = fma8(score, zero8(), spoilt);  // stays 0 while scores are finite
  }
  float lanes[8];
  store8(lanes, high);
  float top = lanes[0];
  for (int lane = 1; lane < 8; ++lane) top = lanes[lane] > top ? lanes[lane] : top;
  Best best{-1, equal8(spoilt, zero8()) == 0xffu};
  for (std::int64_t j = 0; j < padded; j += 8) {
    const unsigned equal = equal8(load8(scores + j), splat8(top));
    if (equal != 0) {
      best.position = j + __builtin_ctz(equal);
      break;
    }
  }
  return best;
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
