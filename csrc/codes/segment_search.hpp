// segment_max_similarity over items that have codes.
#pragma once

#include "codes/row_codes.hpp"
#include "prismem/ops.hpp"

namespace prismem {

// What segment_max_similarity (prismem/ops.hpp) gives, bit for bit and with the same report, in less time. `codes` are those of
// exactly these items. Where they are made for another metric, and for a while where they have proved too little, items are scored
// without them.
Report coded_segment_max_similarity(const Rows& evidence, const Rows& items, const RowCodes& codes, const Segments& segments,
                                    bool normalize, float* values, std::int64_t* indices, const RunOptions& run);

}  // namespace prismem
