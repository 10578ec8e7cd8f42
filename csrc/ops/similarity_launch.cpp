#include <algorithm>
#include <numeric>

#include "ops/launch.hpp"

namespace prismem {

Report similarity(const Rows& x, const Rows& y, bool normalize, float* out, const RunOptions& run) {
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  if (x.count == 0 || y.count == 0) return report;
  const int threads = thread_count(run.threads, static_cast<double>(x.count) * static_cast<double>(y.count) * static_cast<double>(x.dim));
  const std::int64_t most = std::min(packed_queries_limit(x.dim), x.count);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(most));
  QueryPacker packed;
  std::vector<ScanMemory> memory = make_scan_memory(threads, most, x.dim);
  for (std::int64_t first = 0; first < x.count; first += most) {
    const std::int64_t count = std::min(most, x.count - first);
    std::iota(ids.begin(), ids.begin() + count, first);
    const PackedPanels queries = packed.pack(table, x, ids.data(), count, normalize);
    // Threads take ranges of keys, and parts of the queries where there are too few keys for that.
    const std::int64_t wanted = threads > 1 ? 8 * threads : 1;
    const std::int64_t keys = std::max(scan_keys(x.dim), (y.count / wanted + 7) / 8 * 8);
    const std::int64_t ranges = (y.count + keys - 1) / keys;
    const std::int64_t part = whole_units((count * std::min(ranges, wanted) + wanted - 1) / wanted);
    const std::int64_t parts = (count + part - 1) / part;
    parallel_for(ranges * parts, threads, [&](int worker, std::int64_t job) {
      const std::int64_t begin = job / parts * keys;
      const std::int64_t query = job % parts * part;
      const PackedPanels own{queries.rows + query * padded_dim(x.dim), normalize ? queries.norms + query : nullptr, std::min(part, count - query)};
      const ScanTask task{own, y, begin, std::min(begin + keys, y.count)};
      table.similarity(task, out + (first + query) * y.count, y.count, memory[static_cast<std::size_t>(worker)].view());
    });
  }
  return report;
}

}  // namespace prismem
