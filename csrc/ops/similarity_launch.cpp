#include <algorithm>

#include "ops/launch.hpp"

namespace prismem {

Report similarity(const Rows& x, const Rows& y, bool normalize, float* out, const RunOptions& run) {
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  const double work = static_cast<double>(x.count) * static_cast<double>(y.count) * static_cast<double>(x.dim);
  const int threads = thread_count(run.threads, work);
  const QueryPlan plan = plan_queries(x.count, y.count, x.dim, Segments{nullptr, 0, nullptr}, block_size(x.count, threads));
  // Few queries and many keys: threads take ranges of keys as well.
  constexpr std::int64_t kKeysPerJob = 64 * kKeyBlock;
  const std::int64_t ranges = std::max<std::int64_t>(1, (y.count + kKeysPerJob - 1) / kKeysPerJob);
  std::vector<ThreadScratch> scratch = make_scratch(threads, x.dim);
  parallel_for(static_cast<std::int64_t>(plan.blocks.size()) * ranges, threads, [&](int worker, std::int64_t index) {
    const QueryBlock& block = plan.blocks[static_cast<std::size_t>(index / ranges)];
    const std::int64_t begin = index % ranges * kKeysPerJob;
    const std::int64_t end = std::min(begin + kKeysPerJob, y.count);
    const ScoreTask task{x, plan.order.data() + block.first, block.count, y, begin, end, normalize};
    table.similarity(task, out, y.count, scratch[static_cast<std::size_t>(worker)].view());
  });
  return report;
}

}  // namespace prismem
