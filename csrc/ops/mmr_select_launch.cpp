#include "ops/mmr_launch.hpp"

namespace prismem {

Report mmr_select(const Rows& queries, const Rows& keys, const Segments& segments, const Mask& mask, const MmrOptions& options,
                  std::int64_t width, std::int64_t* indices, float* scores, std::int64_t* counts, const RunOptions& run) {
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  const QueryPlan plan = plan_queries(queries.count, keys.count, queries.dim, segments, 1);
  std::int64_t longest = 0;
  for (const QueryBlock& block : plan.blocks) longest = std::max(longest, block.end - block.begin);
  const int threads = thread_count(run.threads, plan.work * static_cast<double>(1 + std::min(options.k, longest)));
  const std::vector<MmrThreadScratch> scratch = make_mmr_scratch(threads, longest, options.k, queries.dim);
  std::vector<std::int64_t> first_bad(plan.order.size(), -1);
  parallel_for(static_cast<std::int64_t>(plan.blocks.size()), threads, [&](int worker, std::int64_t index) {
    const QueryBlock& block = plan.blocks[static_cast<std::size_t>(index)];
    const std::int64_t* row = plan.order.data() + block.first;
    MmrResult result{indices + *row * width, scores + *row * width, 0, -1};
    if (options.k > 0) {
      const ScoreTask score{queries, row, 1, keys, block.begin, block.end, options.normalize};
      const MmrTask task{score, mask, options.k, options.relevance_weight, options.has_min_relevance, options.min_relevance};
      table.mmr_select(task, result, scratch[static_cast<std::size_t>(worker)].view());
    }
    fill_unused(result, width);
    counts[*row] = result.count;
    first_bad[static_cast<std::size_t>(block.first)] = result.first_bad;
  });
  for (std::size_t position = 0; position < first_bad.size(); ++position) {
    if (first_bad[position] >= 0) note_bad(report, plan.order[position], first_bad[position]);
  }
  return report;
}

}  // namespace prismem
