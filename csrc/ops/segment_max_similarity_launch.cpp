#include "ops/launch.hpp"

namespace prismem {

Report segment_max_similarity(const Rows& evidence, const Rows& items, const Segments& segments, bool normalize, float* values,
                              std::int64_t* indices, const RunOptions& run) {
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  const double work = plan_queries(evidence.count, items.count, evidence.dim, segments, kQueryBlock).work;
  const int threads = thread_count(run.threads, work);
  const QueryPlan plan = plan_queries(evidence.count, items.count, evidence.dim, segments, block_size(evidence.count, threads));
  std::vector<std::int64_t> first_bad(plan.order.size(), -1);
  std::vector<ThreadScratch> scratch = make_scratch(threads, evidence.dim);
  parallel_for(static_cast<std::int64_t>(plan.blocks.size()), threads, [&](int worker, std::int64_t index) {
    const QueryBlock& block = plan.blocks[static_cast<std::size_t>(index)];
    const ScoreTask task{evidence, plan.order.data() + block.first, block.count, items, block.begin, block.end, normalize};
    table.segment_max_similarity(task, values, indices, first_bad.data() + block.first, scratch[static_cast<std::size_t>(worker)].view());
  });
  for (std::size_t position = 0; position < first_bad.size(); ++position) {
    if (first_bad[position] >= 0) note_bad(report, plan.order[position], first_bad[position]);
  }
  return report;
}

}  // namespace prismem
