// Merging the lists of best keys that the pieces of a range have left: a block a query.
#pragma once

#include "best.cuh"

namespace prismem::cuda {

constexpr int kMergeThreads = 256;

// Lists of `list_width` keys each, in any order, 0 for none. Query number i has the lists from offsets[i] to offsets[i + 1], or
// `lists_a_query` where offsets is null; its hits go to row order[i].
struct Merge {
  const std::uint64_t* keys;
  const std::int64_t* offsets;
  const std::int64_t* order;
  std::int64_t lists_a_query;
  std::int32_t list_width;
  BestOutput hits;
};

int launch_merge(const Merge& merge, std::int64_t queries, void* stream);

}  // namespace prismem::cuda
