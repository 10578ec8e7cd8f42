// similarity: all scores of packed queries, written where they belong.
#include "simd/scan.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

void similarity(const ScanTask& task, float* out, std::int64_t out_stride, const ScanScratch& scratch) {
  const PackedPanels& queries = task.queries;
  const std::int64_t dim = task.keys.dim;
  scan_blocks(task, Mask{nullptr, 0, 0}, scratch, [&](std::int64_t query, const float* dots, const auto& block) {
    float* scores = out + query * out_stride + block.ids[0];
    const bool cosine = queries.norms != nullptr;
    const double norm = cosine ? queries.norms[query] : 1.0;
    const F8 query_scale = splat8(cosine ? scale_of(norm) : 1.0f);
    for (std::int64_t j = 0; j < block.count; j += 8) {
      const F8 eight = load8(dots + j);
      // The lanes that need more than the plain way to a score: dot products that overflowed, norms that are not safe.
      unsigned bits = outside8(cosine ? mul8(query_scale, load8(block.scales + j)) : eight, splat8(kFloatMax));
      float finished[8];
      store8(finished, cosine ? cosine8(eight, norm, block.norms + j) : eight);
      const std::int64_t lanes = block.count - j < 8 ? block.count - j : 8;
      for (; bits != 0; bits &= bits - 1) {
        const int lane = __builtin_ctz(bits);
        finished[lane] = score_of_dot(dots[j + lane], queries, query, block.rows[j + lane], block.norms[j + lane], dim, scratch.row);
      }
      if (lanes == 8) {
        store8(scores + j, load8(finished));
      } else {
        for (std::int64_t lane = 0; lane < lanes; ++lane) scores[j + lane] = finished[lane];
      }
    }
  });
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
