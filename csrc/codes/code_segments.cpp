// segment_max_similarity over items with certified codes (simd/codes.hpp): bounds from the codes say which items can be the best
// of their segment, and only those are scored.
//
// Every item of a span gets an upper bound. Then the one with the largest bound is scored, and after it those whose bounds reach
// the best score known by then. A step is taken for all spans of a task before the next one, so that there are always several
// scores to compute side by side. (Asking for rows or codes ahead of their use was measured: it never helped.)
#include "simd/code_panels.hpp"
#include "simd/code_query.hpp"
#include "simd/code_segments.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

void segment_max_similarity(const ScoreTask& task, float* values, std::int64_t* indices, std::int64_t* first_bad, const Scratch& scratch);

namespace {

constexpr std::int64_t kLeastForPanel = 3;  // pieces of evidence that make filling a panel worth while
constexpr int kPairs = 4;                   // independent chains of additions
constexpr std::int64_t kPairList = kSegmentRows;  // room for the first candidates of all spans
constexpr std::int64_t kPlainTasks = 15;  // after a task whose codes proved too little

// A piece of evidence and an item to be scored.
struct Pair {
  std::int64_t evidence;
  std::int64_t item;
};

template <class T>
inline const float* packed_row(const T* row, std::int64_t dim, float* packed) {
  pack_row(row, dim, packed);
  return packed;
}

// Floats that need no padding are read where they are.
inline const float* packed_row(const float* row, std::int64_t dim, float* packed) {
  if (dim % 8 == 0) return row;
  pack_row(row, dim, packed);
  return packed;
}

template <class T>
void prepare(const Rows& rows, std::int64_t id, const CodeView& codes, std::int32_t levels, float* packed, std::int8_t* bytes, CodedEvidence& into) {
  const T* row = row_at<T>(rows, id);
  into.row = packed_row(row, rows.dim, packed);
  const double norm = codes.normalize ? row_norm(row, rows.dim) : -1.0;
  if (codes.normalize && !is_coded(norm, true)) {
    into.coded.norm = norm;
  } else if (!quantise_in_floats(into.row, norm, codes, levels, into.coded)) {
    quantise_query(into.row, row_norm(row, rows.dim), codes, levels, bytes, into.coded);
  }
}

void prepare(const Rows& rows, std::int64_t id, const CodeView& codes, std::int32_t levels, float* packed, std::int8_t* bytes, CodedEvidence& into) {
  switch (rows.kind) {
    case Kind::f32: prepare<float>(rows, id, codes, levels, packed, bytes, into); break;
    case Kind::f16: prepare<Half>(rows, id, codes, levels, packed, bytes, into); break;
    case Kind::bf16: prepare<Bfloat>(rows, id, codes, levels, packed, bytes, into); break;
  }
}

inline void note_score(CodedEvidence& evidence, std::int64_t item, float score) {
  const std::int64_t index = item - evidence.segment_begin;
  if (!is_finite(score)) {
    if (evidence.first_bad < 0 || index < evidence.first_bad) evidence.first_bad = index;
    if (score != score) return;
  }
  if (evidence.index < 0 || score > evidence.score || (score == evidence.score && index < evidence.index)) {
    evidence.score = score;
    evidence.index = index;
  }
}

template <class T, int P>
inline void score_pairs(const CodedSegmentTask& task, CodedEvidence* evidence, const Pair* pairs) {
  const std::int64_t dim = task.items.dim;
  const float* queries[P];
  const T* keys[P];
  F8 sums[P];
  for (int p = 0; p < P; ++p) {
    queries[p] = evidence[pairs[p].evidence].row;
    keys[p] = row_at<T>(task.items, pairs[p].item);
    sums[p] = zero8();
  }
  std::int64_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    for (int p = 0; p < P; ++p) sums[p] = fma8(load8(queries[p] + i), load8(keys[p] + i), sums[p]);
  }
  if (i < dim) {
    for (int p = 0; p < P; ++p) sums[p] = fma8(load8(queries[p] + i), load8_tail(keys[p] + i, dim - i), sums[p]);
  }
  for (int p = 0; p < P; ++p) {
    CodedEvidence& own = evidence[pairs[p].evidence];
    const float dot = sum8(sums[p]);
    const float score = task.codes.normalize ? cosine_score(dot, own.coded.norm, row_norm(keys[p], dim), queries[p], keys[p], dim)
                                             : plain_score(dot, queries[p], keys[p], dim);
    note_score(own, pairs[p].item, score);
  }
}

template <class T>
void score_pairs(const CodedSegmentTask& task, CodedEvidence* evidence, const Pair* pairs, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kPairs <= count; i += kPairs) score_pairs<T, kPairs>(task, evidence, pairs + i);
  for (; i < count; ++i) score_pairs<T, 1>(task, evidence, pairs + i);
}

// Scores what the bounds of the spans do not rule out; returns how many items that were.
template <class T>
std::int64_t settle_spans(const CodedSegmentTask& task, const CodedSegmentScratch& scratch, std::int64_t span_count) {
  CodedEvidence* evidence = scratch.evidence;
  Pair pairs[kPairList] = {};
  std::int64_t listed = 0;
  std::int64_t scored = 0;
  const auto score_listed = [&] {
    score_pairs<T>(task, evidence, pairs, listed);
    scored += listed;
    listed = 0;
  };
  for (std::int64_t s = 0; s < span_count; ++s) {
    const BoundedSpan& span = scratch.spans[s];
    if (span.candidate >= 0) pairs[listed++] = Pair{span.evidence, span.begin + span.candidate};
  }
  score_listed();
  for (std::int64_t s = 0; s < span_count; ++s) {
    const BoundedSpan& span = scratch.spans[s];
    const CodedEvidence& own = evidence[span.evidence];
    for (std::int64_t j = 0; j < span.count; j += kCodeRows) {
      std::uint32_t open = not_below16(load16(span.bounds + j), own.index < 0 ? -__builtin_inff() : own.score);
      if (span.count - j < kCodeRows) open &= (1u << (span.count - j)) - 1u;
      if (span.candidate >= j && span.candidate < j + kCodeRows) open &= ~(1u << (span.candidate - j));
      for (; open != 0; open &= open - 1) {
        const std::int64_t item = span.begin + j + __builtin_ctz(open);
        pairs[listed++] = Pair{span.evidence, item};
        if (listed == kPairList) score_listed();
      }
    }
  }
  score_listed();
  return scored;
}

std::int64_t settle(const CodedSegmentTask& task, const CodedSegmentScratch& scratch, std::int64_t span_count) {
  switch (task.items.kind) {
    case Kind::f32: return settle_spans<float>(task, scratch, span_count);
    case Kind::f16: return settle_spans<Half>(task, scratch, span_count);
    case Kind::bf16: return settle_spans<Bfloat>(task, scratch, span_count);
  }
  return 0;
}

// Sums of query code * code for the rows of a block.
inline I16 full_dots(const CodeView& codes, std::int64_t block, const CodedQuery& query) {
  const std::int64_t bytes = low_row_bytes(codes.dim);
  const I16 high = high_dots(block_at(codes, block) + kCodeHeaderBytes, code_groups(codes.dim), query.low, query.high);
  return add16(high, low_dots(codes.low + block * kCodeRows * bytes, bytes, bytes, query.low, query.high));
}

// Bounds for a few pieces of evidence, read straight from the codes. Item `begin` has its bound at begin % kCodeRows of each row.
void scan_span(const CodeView& codes, std::int64_t begin, std::int64_t end, const CodedEvidence* evidence, std::int64_t count, float* rows) {
  const std::int64_t first = begin / kCodeRows;
  for (std::int64_t block = first; block * kCodeRows < end; ++block) {
    const CodeHeader header = header_at(codes, block);
    const F16 scale = load_bfloats16(header.scale);
    const F16 error = load_bfloats16(header.full_error);
    const F16 norm = load_bfloats16(header.norm);
    for (std::int64_t q = 0; q < count; ++q) {
      const CodedQuery& query = evidence[q].coded;
      const I16 sums = add16(full_dots(codes, block, query), -128 * query.sum);
      store16(rows + q * kSpanFloats + (block - first) * kCodeRows, bounds(sums, scale, error, norm, query.terms));
    }
  }
}

template <int Q>
void panel_bounds(const CodeView& codes, const CodedSegmentScratch& scratch, std::int64_t item, const CodedEvidence* evidence, float* rows) {
  I16 sums[Q];
  code_panel_dots<Q>(scratch.panel, code_groups(codes.dim), evidence[0].coded.low, 2 * low_row_bytes(codes.dim), sums);
  const F16 scale = load16(scratch.terms + item);
  const F16 error = load16(scratch.terms + kSpanFloats + item);
  const F16 norm = load16(scratch.terms + 2 * kSpanFloats + item);
  for (int q = 0; q < Q; ++q) {
    const CodedQuery& query = evidence[q].coded;
    store16(rows + q * kSpanFloats, bounds(add16(sums[q], -128 * query.sum), scale, error, norm, query.terms));
  }
}

template <int Q>
void panel_bounds_of(std::int64_t count, const CodeView& codes, const CodedSegmentScratch& scratch, std::int64_t item,
                     const CodedEvidence* evidence, float* rows) {
  if constexpr (Q > 1) {
    if (count < Q) return panel_bounds_of<Q - 1>(count, codes, scratch, item, evidence, rows);
  }
  panel_bounds<Q>(codes, scratch, item, evidence, rows);
}

// Bounds for many pieces of evidence, through panels. Item `begin` has its bound at the start of each row.
void multiply_span(const CodeView& codes, std::int64_t begin, std::int64_t end, const CodedEvidence* evidence, std::int64_t count,
                   const CodedSegmentScratch& scratch, float* rows) {
  const std::int64_t first = begin / kCodeRows;
  for (std::int64_t block = first; block * kCodeRows < end; ++block) {
    const CodeHeader header = header_at(codes, block);
    float* terms = scratch.terms + (block - first) * kCodeRows;
    store16(terms, load_bfloats16(header.scale));
    store16(terms + kSpanFloats, load_bfloats16(header.full_error));
    store16(terms + 2 * kSpanFloats, load_bfloats16(header.norm));
  }
  // As many products as needed, of nearly the same size: small ones leave the multipliers waiting.
  const std::int64_t products = (count + kCodePanelQueries - 1) / kCodePanelQueries;
  for (std::int64_t item = begin; item < end; item += kCodeRows) {
    fill_code_panel(codes, item, scratch.panel);
    for (std::int64_t p = 0; p < products; ++p) {
      const std::int64_t q = count * p / products;
      panel_bounds_of<kCodePanelQueries>(count * (p + 1) / products - q, codes, scratch, item - first * kCodeRows, evidence + q,
                                     rows + q * kSpanFloats + (item - begin));
    }
  }
}

// The position of the largest bound or of one that is no number; -1 where there is none above -infinity.
inline std::int64_t largest_bound(const float* bounds, std::int64_t count) {
  F16 high = broadcast16(-__builtin_inff());
  std::int64_t j = 0;
  for (; j + kCodeRows <= count; j += kCodeRows) high = max16(load16(bounds + j), high);
  float top = largest_of(high);
  for (; j < count; ++j) top = bounds[j] > top ? bounds[j] : top;
  for (j = 0; j < count; j += kCodeRows) {
    const std::uint32_t reached = not_below16(load16(bounds + j), top);
    if (reached != 0) return j + __builtin_ctz(reached) < count ? j + __builtin_ctz(reached) : -1;
  }
  return -1;
}

void bound_span(const CodedSegmentTask& task, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t count,
                const CodedSegmentScratch& scratch, std::int64_t span_count) {
  const CodedEvidence* evidence = scratch.evidence + first;
  float* rows = scratch.bounds + span_count * kSpanFloats;
  const bool few = count < kLeastForPanel;
  if (few) scan_span(task.codes, begin, end, evidence, count, rows);
  else multiply_span(task.codes, begin, end, evidence, count, scratch, rows);
  for (std::int64_t q = 0; q < count; ++q) {
    float* bounds = rows + q * kSpanFloats + (few ? begin % kCodeRows : 0);
    if (!is_coded(evidence[q].coded.norm, task.codes.normalize)) {
      for (std::int64_t j = 0; j < end - begin; ++j) bounds[j] = __builtin_inff();
    }
    const std::int64_t candidate = largest_bound(bounds, end - begin);
    scratch.spans[span_count + q] = BoundedSpan{first + q, begin, end - begin, candidate, bounds};
  }
}

}  // namespace

void code_segment_max(const CodedSegmentTask& task, float* values, std::int64_t* indices, std::int64_t* first_bad,
                                  CodedSegmentScratch& scratch) {
  const QueryBlock* blocks = task.blocks;
  const std::int64_t start = blocks[0].first;
  if (scratch.plain_tasks > 0) {
    --scratch.plain_tasks;
    for (std::int64_t b = 0; b < task.block_count; ++b) {
      for (std::int64_t q = 0; q < blocks[b].count; q += kQueryBlock) {
        const std::int64_t first = blocks[b].first + q;
        const std::int64_t count = blocks[b].count - q < kQueryBlock ? blocks[b].count - q : kQueryBlock;
        const ScoreTask plain{task.evidence, task.order + first, count, task.items, blocks[b].begin, blocks[b].end, task.codes.normalize};
        segment_max_similarity(plain, values, indices, first_bad + (first - start), scratch.plain);
      }
    }
    return;
  }
  const std::int64_t row_bytes = 2 * low_row_bytes(task.codes.dim);
  std::int64_t seen = 0;
  std::int64_t scored = 0;
  std::int64_t span_count = 0;
  std::int64_t slot = 0;
  for (std::int64_t b = 0; b < task.block_count; ++b) {
    const QueryBlock& block = blocks[b];
    for (std::int64_t q = 0; q < block.count; ++q) {
      CodedEvidence& evidence = scratch.evidence[slot + q];
      evidence.coded.low = scratch.codes + (slot + q) * row_bytes;
      evidence.coded.high = evidence.coded.low + row_bytes / 2;
      evidence.segment_begin = block.begin;
      evidence.score = 0.0f;
      evidence.index = evidence.first_bad = -1;
      if (block.begin < block.end) {
        prepare(task.evidence, task.order[block.first + q], task.codes, block.count < kLeastForPanel ? 127 : kCodePanelLevels,
                scratch.packed + (slot + q) * padded_dim(task.codes.dim), scratch.row_codes, evidence);
      }
    }
    for (std::int64_t begin = block.begin; begin < block.end; begin += kSpanItems) {
      const std::int64_t end = block.end - begin < kSpanItems ? block.end : begin + kSpanItems;
      if (span_count + block.count > kSegmentRows) {
        scored += settle(task, scratch, span_count);
        span_count = 0;
      }
      bound_span(task, begin, end, slot, block.count, scratch, span_count);
      span_count += block.count;
      seen += block.count * (end - begin);
    }
    slot += block.count;
  }
  scored += settle(task, scratch, span_count);
  for (std::int64_t i = 0; i < slot; ++i) {
    values[task.order[start + i]] = scratch.evidence[i].score;
    indices[task.order[start + i]] = scratch.evidence[i].index;
    first_bad[i] = scratch.evidence[i].first_bad;
  }
  if (2 * scored > seen + 4 * slot) scratch.plain_tasks = kPlainTasks;
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
