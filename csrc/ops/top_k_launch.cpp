#include <algorithm>
#include <limits>

#include "ops/launch.hpp"

namespace prismem {
namespace {

// Heaps of `count` queries, away from the caller's arrays, for a thread that sees some of the keys.
class OwnHeaps {
 public:
  OwnHeaps(std::int64_t count, std::int64_t capacity)
      : scores_(new float[static_cast<std::size_t>(count * capacity)]), indices_(new std::int64_t[static_cast<std::size_t>(count * capacity)]) {
    heaps_.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) heaps_.push_back(Heap{scores_.get() + i * capacity, indices_.get() + i * capacity, capacity, 0, -1});
  }
  Heap* heaps() { return heaps_.data(); }

 private:
  std::unique_ptr<float[]> scores_;
  std::unique_ptr<std::int64_t[]> indices_;
  std::vector<Heap> heaps_;
};

// One call: what its scans share.
class Search {
 public:
  Search(const OpTable& table, const Rows& queries, const Rows& keys, const Mask& mask, const TopKOptions& options, int threads,
         std::int64_t most_queries)
      : table_(table),
        queries_(queries),
        keys_(keys),
        filter_{mask, nullptr, options.has_min_score, options.min_score},
        normalize_(options.normalize),
        threads_(threads),
        packers_(static_cast<std::size_t>(threads)),
        memory_(make_scan_memory(threads, most_queries, queries.dim)) {}

  // Queries `rows` against all keys of their block, in one thread.
  void scan_whole(int worker, const QueryBlock& block, const std::int64_t* rows, Heap* heaps) {
    scan(worker, pack(worker, block, rows), block, rows, block.begin, block.end, heaps);
  }

  // The same with the keys shared out: each thread fills heaps of its own, which are merged. That changes nothing, as the order of
  // hits is total, and each heap takes its keys in ascending order.
  void scan_shared(const QueryBlock& block, const std::int64_t* rows, Heap* heaps) {
    const PackedPanels queries = pack(0, block, rows);
    const std::int64_t unit = scan_keys(keys_.dim);
    const std::int64_t units = (block.end - block.begin + unit - 1) / unit;
    const std::int64_t step = std::max<std::int64_t>(1, units / (8 * threads_)) * unit;
    std::vector<OwnHeaps> others;
    for (int worker = 1; worker < threads_; ++worker) others.emplace_back(block.count, heaps->capacity);
    parallel_for((block.end - block.begin + step - 1) / step, threads_, [&](int worker, std::int64_t index) {
      const std::int64_t begin = block.begin + index * step;
      Heap* into = worker == 0 ? heaps : others[static_cast<std::size_t>(worker - 1)].heaps();
      scan(worker, queries, block, rows, begin, std::min(begin + step, block.end), into);
    });
    for (OwnHeaps& other : others) {
      for (std::int64_t i = 0; i < block.count; ++i) table_.top_k_merge(heaps[i], other.heaps()[i]);
    }
  }

 private:
  PackedPanels pack(int worker, const QueryBlock& block, const std::int64_t* rows) {
    return packers_[static_cast<std::size_t>(worker)].pack(table_, queries_, rows, block.count, normalize_);
  }

  void scan(int worker, const PackedPanels& queries, const QueryBlock& block, const std::int64_t* rows, std::int64_t begin, std::int64_t end,
            Heap* heaps) {
    TopKFilter filter = filter_;
    filter.mask_rows = rows;
    table_.top_k_scan(ScanTask{queries, keys_, begin, end}, filter, block.begin, heaps, memory_[static_cast<std::size_t>(worker)].view());
  }

  const OpTable& table_;
  const Rows& queries_;
  const Rows& keys_;
  const TopKFilter filter_;
  const bool normalize_;
  const int threads_;
  std::vector<QueryPacker> packers_;
  std::vector<ScanMemory> memory_;
};

// Room for the heaps of all threads but the first stays below this.
constexpr std::int64_t kOwnHeapHits = std::int64_t{1} << 22;

std::int64_t most_queries_at_once(const Rows& queries, std::int64_t hits, int threads) {
  const std::int64_t packed = std::min(packed_queries_limit(queries.dim), queries.count);
  if (threads == 1) return packed;
  return std::min(packed, std::max(kQueryUnit, kOwnHeapHits / std::max<std::int64_t>(hits * (threads - 1), 1)));
}

}  // namespace

Report top_k(const Rows& queries, const Rows& keys, const Segments& segments, const Mask& mask, const TopKOptions& options,
             std::int64_t width, float* scores, std::int64_t* indices, std::int64_t* counts, const RunOptions& run) {
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  const int threads = thread_count(run.threads, plan_work(queries.count, keys.count, queries.dim, segments));
  const std::int64_t most = most_queries_at_once(queries, std::min(options.k, keys.count), threads);
  const QueryPlan plan = plan_queries(queries.count, keys.count, queries.dim, segments, most);

  std::vector<Heap> heaps;  // in the order of the plan, straight in the caller's arrays
  heaps.reserve(plan.order.size());
  for (const QueryBlock& block : plan.blocks) {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t row = plan.order[static_cast<std::size_t>(block.first + i)];
      const std::int64_t capacity = std::min(options.k, block.end - block.begin);
      heaps.push_back(Heap{scores + row * width, indices + row * width, capacity, 0, -1});
    }
  }

  if (options.k > 0) {
    Search search(table, queries, keys, mask, options, threads, most);
    std::vector<QueryBlock> whole;
    for (const QueryBlock& block : plan.blocks) {
      const double work = static_cast<double>(block.count) * static_cast<double>(block.end - block.begin) * static_cast<double>(queries.dim);
      if (threads == 1 || work * 4 * threads < plan.work) {
        whole.push_back(block);
      } else if (block.end - block.begin >= 4 * threads * scan_keys(queries.dim)) {
        search.scan_shared(block, &plan.order[static_cast<std::size_t>(block.first)], &heaps[static_cast<std::size_t>(block.first)]);
      } else {
        const std::int64_t part = whole_units((block.count + 4 * threads - 1) / (4 * threads));
        for (std::int64_t first = 0; first < block.count; first += part) {
          whole.push_back(QueryBlock{block.first + first, std::min(part, block.count - first), block.begin, block.end});
        }
      }
    }
    parallel_for(static_cast<std::int64_t>(whole.size()), threads, [&](int worker, std::int64_t index) {
      const QueryBlock& block = whole[static_cast<std::size_t>(index)];
      search.scan_whole(worker, block, &plan.order[static_cast<std::size_t>(block.first)], &heaps[static_cast<std::size_t>(block.first)]);
    });
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
