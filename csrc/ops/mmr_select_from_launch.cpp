#include "ops/mmr_launch.hpp"

namespace prismem {

Report mmr_select_from(const Rows& relevance, const float* similarity, std::int64_t batch_stride, std::int64_t row_stride,
                       const std::int64_t* lengths, const MmrOptions& options, std::int64_t width, std::int64_t* indices,
                       float* scores, std::int64_t* counts, const RunOptions& run) {
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  const double picks = static_cast<double>(std::min(options.k, relevance.dim));
  const double work = static_cast<double>(relevance.count) * static_cast<double>(relevance.dim) * picks;
  const int threads = thread_count(run.threads, work);
  const std::vector<MmrThreadScratch> scratch = make_mmr_scratch(threads, relevance.dim, options.k, 0);
  parallel_for(relevance.count, threads, [&](int worker, std::int64_t row) {
    MmrResult result{indices + row * width, scores + row * width, 0, -1};
    if (options.k > 0) {
      const MmrFromTask task{static_cast<const float*>(relevance.data) + row * relevance.stride,
                             similarity + row * batch_stride,
                             row_stride,
                             lengths != nullptr ? lengths[row] : relevance.dim,
                             options.k,
                             options.relevance_weight,
                             options.has_min_relevance,
                             options.min_relevance};
      table.mmr_select_from(task, result, scratch[static_cast<std::size_t>(worker)].view());
    }
    fill_unused(result, width);
    counts[row] = result.count;
  });
  return report;
}

}  // namespace prismem
