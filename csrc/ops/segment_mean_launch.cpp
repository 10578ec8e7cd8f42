#include "ops/launch.hpp"

namespace prismem {

Report segment_mean(const void* values, bool values_are_double, const std::int64_t* offsets, std::int64_t count, double* means,
                    const RunOptions& run) {
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  const double work = count > 0 ? static_cast<double>(offsets[count] - offsets[0]) : 0.0;
  parallel_for(count, thread_count(run.threads, work), [&](int, std::int64_t g) {
    const std::int64_t length = offsets[g + 1] - offsets[g];
    means[g] = values_are_double ? table.segment_mean_f64(static_cast<const double*>(values) + offsets[g], length)
                                 : table.segment_mean_f32(static_cast<const float*>(values) + offsets[g], length);
  });
  return report;
}

}  // namespace prismem
