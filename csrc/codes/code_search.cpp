#include "codes/code_search.hpp"

#include <algorithm>
#include <limits>
#include <memory>

#include "simd/dispatch.hpp"
#include "support/parallel.hpp"

namespace prismem {
namespace {

constexpr std::int64_t kFewestRows = 1024;      // below this the rows are scored before codes have been prepared
constexpr std::int64_t kRowsPerHit = 16;        // with more hits than this, too many rows pass
constexpr std::int64_t kSampleRows = 2048;
constexpr std::int64_t kRowsPerAllowed = 32;    // a mask that lets fewer pass leaves little to read
constexpr double kMostScored = 0.4;             // share of rows that may have to be scored before plain search is faster
constexpr double kCodeSpeed = 8.0;              // codes are searched about this many times as fast as rows

// The codes of queries and the packed queries themselves, with the memory they need.
class PreparedQueries {
 public:
  PreparedQueries(std::int64_t count, std::int64_t dim)
      : padded_(code_groups(dim) * 8),
        low_bytes_(low_row_bytes(dim)),
        rows_(new float[static_cast<std::size_t>(count * padded_)]),
        codes_(new std::int8_t[static_cast<std::size_t>(count * 2 * low_bytes_)]),
        queries_(static_cast<std::size_t>(count)) {}

  void prepare(const CodeTable& table, const Rows& queries, std::int64_t id, const CodeView& view, float threshold, std::int8_t* scratch) {
    CodeSearchQuery& query = queries_[static_cast<std::size_t>(id)];
    float* row = rows_.get() + id * padded_;
    std::int8_t* low = codes_.get() + id * 2 * low_bytes_;
    query = CodeSearchQuery{row, CodedQuery{low, low + low_bytes_, 0, BoundTerms{}, 0.0}, id, threshold, 0};
    table.prepare(queries, id, view, row, scratch, query.coded);
  }

  CodeSearchQuery* data() { return queries_.data(); }

 private:
  std::int64_t padded_;
  std::int64_t low_bytes_;
  std::unique_ptr<float[]> rows_;
  std::unique_ptr<std::int8_t[]> codes_;
  std::vector<CodeSearchQuery> queries_;
};

std::int64_t count_allowed(const Mask& mask, std::int64_t count) {
  std::int64_t allowed = 0;
  for (std::int64_t i = 0; i < count; ++i) allowed += mask.data[i * mask.key_stride] != 0;
  return allowed;
}

}  // namespace

Report coded_top_k(const Rows& queries, const Rows& keys, const CodeView& view, const Mask& mask, const TopKOptions& options,
                   std::int64_t width, float* scores, std::int64_t* indices, std::int64_t* counts, const RunOptions& run) {
  const auto plain = [&] {
    return top_k(queries, keys, Segments{nullptr, 0, nullptr}, mask, options, width, scores, indices, counts, run);
  };
  const bool useful = view.normalize == options.normalize && view.regular && keys.count >= kFewestRows && queries.count > 0 &&
                      options.k > 0 && options.k * kRowsPerHit <= keys.count;
  if (!useful) return plain();
  if (mask.data != nullptr && mask.query_stride == 0 && count_allowed(mask, keys.count) * kRowsPerAllowed < keys.count) return plain();

  const OpTable& table = op_table(run.isa);
  PreparedQueries prepared(queries.count, queries.dim);
  const float lowest = options.has_min_score ? options.min_score : -std::numeric_limits<float>::infinity();
  std::vector<std::int8_t> codes_of_query(static_cast<std::size_t>(code_groups(queries.dim) * 8));
  for (std::int64_t id = 0; id < queries.count; ++id) {
    prepared.prepare(table.codes, queries, id, view, lowest, codes_of_query.data());
    const double norm = prepared.data()[id].coded.norm;
    if (!(options.normalize ? norm <= std::numeric_limits<double>::max() : norm <= kMaxCodeNorm)) return plain();
  }

  const std::int64_t blocks = code_blocks(keys.count);
  const double work = static_cast<double>(queries.count) * static_cast<double>(keys.count) * static_cast<double>(queries.dim);
  const int threads = thread_count(run.threads, work / kCodeSpeed);
  const std::int64_t part_blocks = (blocks + threads - 1) / threads;

  std::vector<CodeCandidate> candidates(static_cast<std::size_t>(kMaxCandidates * threads));
  const auto scratch_of = [&](int worker) { return CodeSearchScratch{candidates.data() + kMaxCandidates * worker, nullptr}; };
  std::vector<Heap> heaps;
  for (std::int64_t id = 0; id < queries.count; ++id) heaps.push_back(Heap{scores + id * width, indices + id * width, options.k, 0, -1});

  // A sample raises the thresholds from the start, and tells where codes prove too little.
  const std::int64_t step = std::max<std::int64_t>(1, blocks * kCodeRows / kSampleRows);
  double scored = 0.0;
  for (std::int64_t id = 0; id < queries.count; ++id) {
    const CodeSearchTask task{keys, view, mask, 0, blocks};
    scored += table.codes.sample(task, step, prepared.data()[id], heaps[static_cast<std::size_t>(id)], scratch_of(0));
  }
  if (scored > kMostScored * static_cast<double>(queries.count)) return plain();

  // Each thread takes a range of rows and has queries and heaps of its own; the first fills the caller's arrays.
  const std::size_t num_queries = static_cast<std::size_t>(queries.count);
  const std::size_t others = static_cast<std::size_t>(threads - 1) * num_queries;
  std::vector<float> other_scores(others * static_cast<std::size_t>(options.k));
  std::vector<std::int64_t> other_indices(others * static_cast<std::size_t>(options.k));
  for (std::size_t i = 0; i < others; ++i) {
    const std::size_t offset = i * static_cast<std::size_t>(options.k);
    heaps.push_back(Heap{other_scores.data() + offset, other_indices.data() + offset, options.k, 0, -1});
  }
  parallel_for(threads, threads, [&](int worker, std::int64_t part) {
    const CodeSearchTask task{keys, view, mask, std::min(part * part_blocks, blocks), std::min((part + 1) * part_blocks, blocks)};
    std::vector<CodeSearchQuery> own(prepared.data(), prepared.data() + queries.count);
    table.codes.stream(task, own.data(), queries.count, heaps.data() + static_cast<std::size_t>(part) * num_queries, scratch_of(worker));
  });

  Report report;
  report.isa = table.isa;
  for (std::size_t id = 0; id < num_queries; ++id) {
    Heap& heap = heaps[id];
    for (std::size_t part = 1; part < static_cast<std::size_t>(threads); ++part) table.top_k_merge(heap, heaps[part * num_queries + id]);
    table.top_k_finish(heap);
    counts[id] = heap.size;
    std::fill(heap.scores + heap.size, heap.scores + width, -std::numeric_limits<float>::infinity());
    std::fill(heap.indices + heap.size, heap.indices + width, std::int64_t{-1});
  }
  return report;
}

}  // namespace prismem
