// What both ways of mmr_select share: the score of a candidate, and the first largest of several.
#pragma once

#include "scan.cuh"

namespace prismem::cuda {

struct Mmr {
  Scan scan;
  const std::int64_t* ranges;  // (queries, 2), null: all keys
  std::int64_t k;
  double weight;
  std::int64_t* indices;  // (queries, k)
  float* scores;
  std::int64_t* counts;
  float* state;  // (queries, 2, longest) for the way that computes similarities step by step
  std::int64_t longest;

  PRISMEM_DEVICE std::int64_t begin(std::int64_t query) const { return ranges == nullptr ? 0 : load_uniform(ranges + 2 * query); }
  PRISMEM_DEVICE std::int64_t end(std::int64_t query) const {
    return ranges == nullptr ? scan.keys.count : load_uniform(ranges + 2 * query + 1);
  }

  // In double, each step rounded as the definition rounds it.
  PRISMEM_DEVICE double score(float relevance, float penalty) const {
    return subtract(multiply(weight, static_cast<double>(relevance)), multiply(subtract(1.0, weight), static_cast<double>(penalty)));
  }
  PRISMEM_DEVICE void write_pick(std::int64_t query, std::int64_t step, std::int64_t index, double value) const {
    store(indices + query * k + step, index);
    store(scores + query * k + step, static_cast<float>(step == 0 ? multiply(weight, value) : value));
  }
  // Behind `count` picks; by `threads` threads of which this is one.
  PRISMEM_DEVICE void write_rest(std::int64_t query, std::int64_t count, int thread, int threads) const {
    for (std::int64_t step = count + thread; step < k; step += threads) {
      store(indices + query * k + step, std::int64_t{-1});
      store(scores + query * k + step, float_of_bits(0xff800000u));
    }
    if (thread == 0) store(counts + query, count);
  }
};

PRISMEM_DEVICE float not_a_number() { return float_of_bits(0x7fc00000u); }

// The larger, or NaN if one is: as a maximum over a set that holds NaN.
PRISMEM_DEVICE float spoilt_maximum(float a, float b) { return b > a || !is_number(b) ? b : a; }

// A candidate that may be picked: `index` -1 for none. Ties go to the lower index.
struct Pick {
  double value;
  std::int64_t index;

  PRISMEM_DEVICE void consider(double other_value, std::int64_t other_index) {
    if (other_index < 0 || !(other_value == other_value)) return;
    if (index < 0 || other_value > value || (other_value == value && other_index < index)) {
      value = other_value;
      index = other_index;
    }
  }
};

// The best pick of a warp, in all its lanes.
PRISMEM_DEVICE Pick warp_best(Pick pick) {
#pragma unroll
  for (int bit = 1; bit < kWarp; bit <<= 1) {
    const double value = shuffle_xor(pick.value, bit);
    const std::int64_t index = shuffle_xor(pick.index, bit);
    pick.consider(value, index);
  }
  return pick;
}

}  // namespace prismem::cuda
