// The ranking ops: callers allocate, these functions fill. Shapes, ties and NaN rules are those of prismem_core.ops.
//
// All sizes are 64-bit. Every result has the same bits whatever the number of threads: the order of additions in one score
// depends on the number of dimensions alone, and selections follow a total order (score descending, index ascending).
// Indices count from the start of the row's own segment. Unused cells get index -1 and score -infinity.
#pragma once

#include <string>
#include <vector>

#include "prismem/rows.hpp"

namespace prismem {

// How to run: an empty `isa` means PRISMEM_ISA or, without it, the best set of this CPU; threads <= 0 means all cores.
struct RunOptions {
  std::string isa;
  int threads = 0;
};

// What ran, and the first (query, key) pair whose score was not finite (-1, -1 where there is none).
struct Report {
  const char* isa = "";
  std::int64_t bad_query = -1;
  std::int64_t bad_key = -1;
};

struct TopKOptions {
  std::int64_t k = 0;
  bool normalize = false;
  bool has_min_score = false;
  float min_score = 0.0f;
};

struct MmrOptions {
  std::int64_t k = 0;
  double relevance_weight = 1.0;
  bool normalize = false;
  bool has_min_relevance = false;
  float min_relevance = 0.0f;
};

// out[i, j] = <x_i, y_j>, or their cosine; `out` is (x.count, y.count), contiguous.
Report similarity(const Rows& x, const Rows& y, bool normalize, float* out, const RunOptions& run);

// scores and indices are (queries.count, width) with width >= min(k, longest segment), counts (queries.count).
Report top_k(const Rows& queries, const Rows& keys, const Segments& segments, const Mask& mask, const TopKOptions& options,
             std::int64_t width, float* scores, std::int64_t* indices, std::int64_t* counts, const RunOptions& run);

Report mmr_select(const Rows& queries, const Rows& keys, const Segments& segments, const Mask& mask, const MmrOptions& options,
                  std::int64_t width, std::int64_t* indices, float* scores, std::int64_t* counts, const RunOptions& run);

// relevance is (m, n) f32; similarity of row i starts at similarity + i * batch_stride and its rows are row_stride apart.
// Row i has lengths[i] candidates; null lengths: all n.
Report mmr_select_from(const Rows& relevance, const float* similarity, std::int64_t batch_stride, std::int64_t row_stride,
                       const std::int64_t* lengths, const MmrOptions& options, std::int64_t width, std::int64_t* indices,
                       float* scores, std::int64_t* counts, const RunOptions& run);

// values[i] = the largest score of evidence i over its segment, indices[i] where it was; 0 and -1 for an empty segment.
Report segment_max_similarity(const Rows& evidence, const Rows& items, const Segments& segments, bool normalize, float* values,
                              std::int64_t* indices, const RunOptions& run);

// means[g] = mean of values[offsets[g] : offsets[g + 1]], NaN for an empty segment; values are double or float.
Report segment_mean(const void* values, bool values_are_double, const std::int64_t* offsets, std::int64_t count, double* means,
                    const RunOptions& run);

// The share of ids that query set i has in common with key set j, at out[out_offsets[i] + j], j counted from the start of the segment of i:
// |A & B| / |A|, or with `dice` 2 |A & B| / (|A| + |B|). Repeated ids count once; a quotient with nothing to divide by is 0.
Report token_overlap(const IdSets& queries, const IdSets& keys, const Segments& segments, bool dice, const std::int64_t* out_offsets,
                     double* out, const RunOptions& run);

// Instruction sets this CPU can run, worst first; the one a call with `isa` would use (throws where it is unknown or missing).
std::vector<std::string> available_isas();
std::string chosen_isa(const std::string& isa);

}  // namespace prismem
