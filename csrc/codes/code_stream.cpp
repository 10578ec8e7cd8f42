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
    const std::int64_t left = check_candidates();
    if (2 * left > last_row() - begin_ * kCodeRows) query_.plain_runs = kPlainRuns;
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

  // Those that may reach it by their whole codes wait for their scores; returns how many those are.
  std::int64_t check_candidates() {
    std::int64_t left = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      CodeCandidate candidate = candidates_[i];
      candidate.bound = full_bound(task_.view, candidate.row, candidate.sum, query_.coded);
      if (candidate.bound < query_.threshold) continue;
      add_waiting(task_, query_, heap_, candidate);
      ++left;
    }
    return left;
  }

  const CodeSearchTask& task_;
  const std::int64_t begin_;
  const std::int64_t end_;
  CodeSearchQuery& query_;
  Heap& heap_;
  CodeCandidate* candidates_;
  std::int64_t count_ = 0;
};

// About how much higher the bound of a row is when it is taken from the fewer bits of a tile.
inline float lost_by_tiles(const CodeView& view, std::int64_t row, const CodedQuery& query) {
  const CodeHeader header = header_at(view, row / kCodeRows);
  const std::int64_t lane = row % kCodeRows;
  const float error = bfloat_at(view.mid_error + row) - bfloat_at(header.full_error + lane);
  const float coarser = static_cast<float>(kQueryLevels) / static_cast<float>(kTileLevels) - 1.0f;
  return error * query.terms.per_error + bfloat_at(header.norm + lane) * query.terms.per_norm * coarser;
}

}  // namespace

void code_prepare(const Rows& queries, std::int64_t id, const CodeView& view, float* row, std::int8_t* codes, CodedQuery& into) {
  quantise_query(row, pack_with_norm(queries, id, row), view, kQueryLevels, codes, into);
}

// Raises the threshold to what the best of every step-th block prove, and returns an estimate of the share of rows that will have
// to be scored: those of the sample that could still reach the score that is, in the sample, as rare as a hit.
// At most kMaxCandidates rows are looked at; the heap is used and left empty.
double code_sample(const CodeSearchTask& task, std::int64_t step, bool batched, CodeSearchQuery& query, Heap& heap,
                   const CodeSearchScratch& scratch) {
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
    float bound = full_bound(view, candidate.row, candidate.sum, query.coded);
    if (batched && kTileBits < 8) bound += lost_by_tiles(view, candidate.row, query.coded);
    if (!(bound < likely)) ++passed;
  }
  return static_cast<double>(passed) / static_cast<double>(seen);
}

void code_stream(const CodeSearchTask& task, CodeSearchQuery* queries, std::int64_t count, Heap* heaps, const CodeSearchScratch& scratch) {
  for (std::int64_t begin = task.block_begin; begin < task.block_end; begin += kStreamRunBlocks) {
    const std::int64_t end = task.block_end - begin < kStreamRunBlocks ? task.block_end : begin + kStreamRunBlocks;
    for (std::int64_t q = 0; q < count; ++q) StreamRun(task, begin, end, queries[q], heaps[q], scratch.candidates).search();
  }
  for (std::int64_t q = 0; q < count; ++q) score_waiting(task, queries[q], heaps[q], 0);
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
