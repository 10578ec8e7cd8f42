#include <algorithm>
#include <limits>

#include "ops/launch.hpp"

namespace prismem {
namespace {

// A heap of its own for one range of keys; ranges are merged in order, which changes nothing: the order of hits is total.
struct RangeHeap {
  std::vector<float> scores;
  std::vector<std::int64_t> indices;
  Heap heap;

  explicit RangeHeap(std::int64_t capacity)
      : scores(static_cast<std::size_t>(capacity)),
        indices(static_cast<std::size_t>(capacity)),
        heap{scores.data(), indices.data(), capacity, 0, -1} {}
};

}  // namespace

Report top_k(const Rows& queries, const Rows& keys, const Segments& segments, const Mask& mask, const TopKOptions& options,
             std::int64_t width, float* scores, std::int64_t* indices, std::int64_t* counts, const RunOptions& run) {
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  const TopKFilter filter{mask, options.has_min_score, options.min_score};
  const double whole = plan_queries(queries.count, keys.count, queries.dim, segments, kQueryBlock).work;
  const int threads = thread_count(run.threads, whole);
  const QueryPlan plan = plan_queries(queries.count, keys.count, queries.dim, segments, block_size(queries.count, threads));

  std::vector<Heap> heaps;  // in the order of the plan, straight in the caller's arrays
  heaps.reserve(plan.order.size());
  for (const QueryBlock& block : plan.blocks) {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t row = plan.order[static_cast<std::size_t>(block.first + i)];
      const std::int64_t capacity = std::min(options.k, block.end - block.begin);
      heaps.push_back(Heap{scores + row * width, indices + row * width, capacity, 0, -1});
    }
  }

  std::vector<ThreadScratch> scratch = make_scratch(threads, queries.dim);
  const auto scan = [&](int worker, const QueryBlock& block, std::int64_t begin, std::int64_t end, Heap* into) {
    const ScoreTask task{queries, plan.order.data() + block.first, block.count, keys, begin, end, options.normalize};
    table.top_k_scan(task, filter, block.begin, into, scratch[static_cast<std::size_t>(worker)].view());
  };
  if (options.k > 0) {
    if (static_cast<std::int64_t>(plan.blocks.size()) >= threads) {
      parallel_for(static_cast<std::int64_t>(plan.blocks.size()), threads, [&](int worker, std::int64_t index) {
        const QueryBlock& block = plan.blocks[static_cast<std::size_t>(index)];
        scan(worker, block, block.begin, block.end, &heaps[static_cast<std::size_t>(block.first)]);
      });
    } else {
      for (const QueryBlock& block : plan.blocks) {
        const std::int64_t share = (block.end - block.begin + threads - 1) / threads;
        std::vector<RangeHeap> partial;
        partial.reserve(static_cast<std::size_t>(threads * block.count));
        for (std::int64_t i = 0; i < threads * block.count; ++i) partial.emplace_back(std::min(options.k, share));
        std::vector<Heap> views;
        for (RangeHeap& range : partial) views.push_back(range.heap);
        parallel_for(threads, threads, [&](int worker, std::int64_t index) {
          const std::int64_t begin = std::min(block.begin + index * share, block.end);
          scan(worker, block, begin, std::min(begin + share, block.end), &views[static_cast<std::size_t>(index * block.count)]);
        });
        for (int part = 0; part < threads; ++part) {
          for (std::int64_t i = 0; i < block.count; ++i) {
            table.top_k_merge(heaps[static_cast<std::size_t>(block.first + i)], views[static_cast<std::size_t>(part * block.count + i)]);
          }
        }
      }
    }
  }

  for (std::size_t position = 0; position < heaps.size(); ++position) {
    Heap& heap = heaps[position];
    const std::int64_t row = plan.order[position];
    table.top_k_finish(heap);
    counts[row] = heap.size;
    std::fill(heap.scores + heap.size, heap.scores + width, -std::numeric_limits<float>::infinity());
    std::fill(heap.indices + heap.size, heap.indices + width, std::int64_t{-1});
    if (heap.first_bad >= 0) note_bad(report, row, heap.first_bad);
  }
  return report;
}

}  // namespace prismem
