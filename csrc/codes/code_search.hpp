// Exact top-k over rows that have codes.
#pragma once

#include "prismem/ops.hpp"
#include "simd/codes.hpp"

namespace prismem {

// What top_k (prismem/ops.hpp) gives for one segment of all keys, bit for bit and with the same report, in less time. `view`
// shows the codes of exactly these keys. Where codes cannot help, top_k runs: other metric than theirs, rows or queries that are
// not finite or too long, few keys, many hits, masks that leave few keys, data whose bounds prove too little.
Report coded_top_k(const Rows& queries, const Rows& keys, const CodeView& view, const Mask& mask, const TopKOptions& options,
                   std::int64_t width, float* scores, std::int64_t* indices, std::int64_t* counts, const RunOptions& run);

// out (queries, view.count): the upper bounds that a search would go by, from the first `bits` of the codes: 4, 8, or those of
// the batched product (0). Infinite for queries and rows without bounds. For tests and for those who want to see how sharp they are.
void code_bounds(const Rows& queries, const CodeView& view, int bits, float* out, const RunOptions& run);

}  // namespace prismem
