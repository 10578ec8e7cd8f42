// How a call is cut into blocks and where its scratch lies: host code that needs no CUDA.
#pragma once

#include <cstdint>

#include "prismem/cuda.h"

namespace prismem::cuda {

// Hits of a query that one pass finds; more take several passes.
constexpr std::int64_t kWidestPass = 256;
// Beyond so many hits, lists of 64 queries do not fit into shared memory.
constexpr std::int64_t kWidestTiles = 64;
// Candidates whose similarities to each other fit into shared memory.
constexpr std::int64_t kLargestPool = 256;

// Byte offsets into the workspace.
struct Layout {
  std::int64_t query_powers, query_inverses, key_powers, key_inverses, partial, ceilings, state, bytes;
};
Layout layout_of(const prismem_cuda_search& search, int op, const prismem_cuda_plan& plan);

}  // namespace prismem::cuda
