// Few queries against many rows: 4 bits a dimension for every row, 8 bits for the rows that pass, the rows themselves for what is
// left. A hit is always scored as simd/scores.hpp does, so codes change the time and nothing else.
#include "simd/code_bounds.hpp"
#include "simd/code_hits.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

// Blocks begin .. end of one run for one query.
class StreamRun {
 public:
  StreamRun(const CodeSearchTask& task, std::int64_t begin, std::int64_t end, CodeSearchQuery& query, Heap& heap, CodeCandidate* candidates)
      : task_(task), begin_(begin), end_(end), query_(query), heap_(heap), candidates_(candidates) {}

  void search() {
    if (query_.plain_runs > 0) {
      --query_.plain_runs;
      score_rows(task_, begin_ * kCodeRows, last_row(), query_, heap_);
      return;
    }
    find_candidates();
    check_candidates();
    const std::int64_t scored = score_candidates(task_, candidates_, count_, &query_, &heap_);
    if (2 * scored > last_row() - begin_ * kCodeRows) query_.plain_runs = kPlainRuns;
  }

 private:
  std::int64_t last_row() const { return end_ * kCodeRows < task_.view.count ? end_ * kCodeRows : task_.view.count; }

  // The rows that may reach the threshold by their high halves.
  void find_candidates() {
    const CodeView& view = task_.view;
    const std::int64_t low_bytes = low_row_bytes(view.dim);
    // Nothing is fetched ahead: the hardware follows one stream at full speed, and hints cost a fifth of it.
    for (std::int64_t block = begin_; block < end_; ++block) {
      const std::uint32_t allowed = allowed_lanes(task_, block);
      if (allowed == 0) continue;
      const I16 sums = high_sums(view, block, query_.coded);
      std::uint32_t lanes = not_below16(high_bounds(view, block, sums, query_.coded), query_.threshold) & allowed;
      if (lanes == 0) continue;
      std::int32_t sum[kCodeRows];
      store16(sum, sums);
      for (; lanes != 0; lanes &= lanes - 1) {
        const std::int64_t lane = __builtin_ctz(lanes);
        const std::int64_t row = block * kCodeRows + lane;
        if (!allowed_pair(task_.mask, query_.id, row)) continue;
        for (std::int64_t i = 0; i < low_bytes; i += 64) __builtin_prefetch(view.low + row * low_bytes + i);
        candidates_[count_++] = CodeCandidate{row, sum[lane], 0.0f};
      }
    }
  }

  // Keeps those that may reach it by their whole codes.
  void check_candidates() {
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      const CodeCandidate& candidate = candidates_[i];
      const float bound = full_bound(task_.view, candidate.row, candidate.sum, query_.coded);
      if (bound < query_.threshold) continue;
      prefetch_row(task_.keys, candidate.row);
      candidates_[kept++] = CodeCandidate{candidate.row, 0, bound};
    }
    count_ = kept;
  }

  const CodeSearchTask& task_;
  const std::int64_t begin_;
  const std::int64_t end_;
  CodeSearchQuery& query_;
  Heap& heap_;
  CodeCandidate* candidates_;
  std::int64_t count_ = 0;
};

}  // namespace

void code_prepare(const Rows& queries, std::int64_t id, const CodeView& view, float* row, std::int8_t* codes, CodedQuery& into) {
  quantise_query(row, pack_with_norm(queries, id, row), view, kQueryLevels, codes, into);
}

// Raises the threshold to what the best of every step-th block prove, and returns an estimate of the share of rows that will have
// to be scored: those of the sample that could still reach the score that is, in the sample, as rare as a hit.
// At most kMaxCandidates rows are looked at; the heap is used and left empty.
double code_sample(const CodeSearchTask& task, std::int64_t step, CodeSearchQuery& query, Heap& heap, const CodeSearchScratch& scratch) {
  const CodeView& view = task.view;
  std::int64_t seen = 0;
  for (std::int64_t block = task.block_begin; block < task.block_end && seen + kCodeRows <= kMaxCandidates; block += step) {
    std::uint32_t lanes = allowed_lanes(task, block);
    if (lanes == 0) continue;
    const I16 sums = high_sums(view, block, query.coded);
    std::int32_t sum[kCodeRows];
    float bound[kCodeRows];
    store16(sum, sums);
    store16(bound, high_bounds(view, block, sums, query.coded));
    for (; lanes != 0; lanes &= lanes - 1) {
      const std::int64_t lane = __builtin_ctz(lanes);
      const std::int64_t row = block * kCodeRows + lane;
      if (!allowed_pair(task.mask, query.id, row)) continue;
      scratch.candidates[seen++] = CodeCandidate{row, sum[lane], bound[lane]};
      push(heap, bound[lane], row);
    }
  }
  if (seen == 0) return 0.0;
  const double share = static_cast<double>(seen) / static_cast<double>(view.count);
  const std::int64_t rank = static_cast<std::int64_t>(share * static_cast<double>(heap.capacity)) + 1;
  float likely = raise_threshold(task, query, heap, rank < heap.capacity ? rank : heap.capacity);
  if (likely < query.threshold) likely = query.threshold;
  std::int64_t passed = 0;
  for (std::int64_t i = 0; i < seen; ++i) {
    const CodeCandidate& candidate = scratch.candidates[i];
    if (candidate.bound < likely) continue;
    if (!(full_bound(view, candidate.row, candidate.sum, query.coded) < likely)) ++passed;
  }
  return static_cast<double>(passed) / static_cast<double>(seen);
}

void code_stream(const CodeSearchTask& task, CodeSearchQuery* queries, std::int64_t count, Heap* heaps, const CodeSearchScratch& scratch) {
  for (std::int64_t begin = task.block_begin; begin < task.block_end; begin += kStreamRunBlocks) {
    const std::int64_t end = task.block_end - begin < kStreamRunBlocks ? task.block_end : begin + kStreamRunBlocks;
    for (std::int64_t q = 0; q < count; ++q) StreamRun(task, begin, end, queries[q], heaps[q], scratch.candidates).search();
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
