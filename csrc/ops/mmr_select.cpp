// mmr_select: relevance of one query to its segment, then the greedy loop; similarities are computed where they may matter.
#include "simd/mmr.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

constexpr int kRowTile = 4;   // candidates that are read side by side when all are read
constexpr int kPickTile = 6;  // picks that two candidates are multiplied with at once: their sums fill the registers

// Products of R rows with P packed rows (of padded_dim floats, `stride` apart); with Squares also the squares of the R rows.
template <class T, int R, int P, bool Squares>
inline void products(const T* const* rows, const float* packed, std::int64_t stride, std::int64_t dim, float (&dots)[P][R], double (&squares)[R]) {
  F8 sums[P][R];
  D8 square_sums[R];
  for (int r = 0; r < R; ++r) {
    if constexpr (Squares) square_sums[r] = zero_d8();
    for (int p = 0; p < P; ++p) sums[p][r] = zero8();
  }
  const auto step = [&](const F8 (&row)[R], std::int64_t i) {
    for (int p = 0; p < P; ++p) {
      const F8 pick = load8(packed + p * stride + i);
      for (int r = 0; r < R; ++r) sums[p][r] = fma8(pick, row[r], sums[p][r]);
    }
    if constexpr (Squares) {
      for (int r = 0; r < R; ++r) square_sums[r] = square_add(row[r], square_sums[r]);
    }
  };
  F8 row[R];
  std::int64_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    for (int r = 0; r < R; ++r) row[r] = load8(rows[r] + i);
    step(row, i);
  }
  if (i < dim) {
    for (int r = 0; r < R; ++r) row[r] = load8_tail(rows[r] + i, dim - i);
    step(row, i);
  }
  for (int r = 0; r < R; ++r) {
    if constexpr (Squares) squares[r] = sum_d8(square_sums[r]);
    for (int p = 0; p < P; ++p) dots[p][r] = sum8(sums[p][r]);
  }
}

// NaN where a cosine has to be computed in full: for norms that are zero or beyond what float sums bear.
inline double inverse_norm(double norm) { return norm >= kNormSafeLow && norm <= kNormSafeHigh ? 1.0 / norm : __builtin_nan(""); }

// The similarities of one segment's candidates, from their rows.
template <class T>
class RowSimilarities {
 public:
  RowSimilarities(const MmrTask& task, const MmrScratch& scratch)
      : keys_(task.score.keys), dim_(keys_.dim), stride_(padded_dim(dim_)), normalize_(task.score.normalize), scratch_(scratch) {}

  const T* row(std::int64_t candidate) const { return row_at<T>(keys_, scratch_.ids[candidate]); }

  void pick(std::int64_t candidate, std::int64_t number) {
    pack_row(row(candidate), dim_, scratch_.picks + number * stride_);
    if (!normalize_) return;
    scratch_.pick_norms[number] = scratch_.norms[candidate];
    scratch_.pick_inverse_norms[number] = scratch_.inverse_norms[candidate];
  }

  bool first(std::int64_t count) {
    for (std::int64_t c = 0; c < count; ++c) scratch_.penalty[c] = -kFloatMax;
    std::int64_t candidates[kRowTile];
    bool finite = true;
    std::int64_t c = 0;
    for (; c + kRowTile <= count; c += kRowTile) {
      for (int r = 0; r < kRowTile; ++r) candidates[r] = c + r;
      finite &= raise_tile<kRowTile, 1>(candidates, 0);
    }
    for (; c < count; ++c) finite &= raise_tile<1, 1>(&c, 0);
    return finite;
  }

  bool raise(std::int64_t one, std::int64_t other, std::int64_t from, std::int64_t to) {
    const std::int64_t candidates[2] = {one, other};
    return other < 0 ? raise_rows<1>(candidates, from, to) : raise_rows<2>(candidates, from, to);
  }

 private:
  template <int R>
  bool raise_rows(const std::int64_t* candidates, std::int64_t from, std::int64_t to) {
    bool finite = true;
    for (; to - from >= kPickTile; from += kPickTile) finite &= raise_tile<R, kPickTile>(candidates, from);
    switch (to - from) {
      case 1: return finite & raise_tile<R, 1>(candidates, from);
      case 2: return finite & raise_tile<R, 2>(candidates, from);
      case 3: return finite & raise_tile<R, 3>(candidates, from);
      case 4: return finite & raise_tile<R, 4>(candidates, from);
      case 5: return finite & raise_tile<R, 5>(candidates, from);
      default: return finite;
    }
  }

  // Raises the penalties of R candidates by the picks from .. from + P - 1.
  template <int R, int P>
  bool raise_tile(const std::int64_t* candidates, std::int64_t from) {
    const T* rows[R];
    for (int r = 0; r < R; ++r) rows[r] = row(candidates[r]);
    const float* picks = scratch_.picks + from * stride_;
    float dots[P][R];
    double no_squares[R];
    products<T, R, P, false>(rows, picks, stride_, dim_, dots, no_squares);
    bool finite = true;
    for (int r = 0; r < R; ++r) {
      const std::int64_t candidate = candidates[r];
      float penalty = scratch_.penalty[candidate];
      for (int p = 0; p < P; ++p) {
        if (normalize_) {
          // A product of rounded inverses is within 1e-15 of the cosine: what it shows to be smaller needs no division.
          const double near = static_cast<double>(dots[p][r]) * scratch_.pick_inverse_norms[from + p] * scratch_.inverse_norms[candidate];
          if (near + 1e-12 < static_cast<double>(penalty)) continue;
        }
        const float* pick = picks + p * stride_;
        const float similarity = normalize_ ? cosine_score(dots[p][r], scratch_.pick_norms[from + p], scratch_.norms[candidate], pick, rows[r], dim_)
                                            : plain_score(dots[p][r], pick, rows[r], dim_);
        finite &= is_finite(similarity);
        if (similarity > penalty) penalty = similarity;
      }
      scratch_.penalty[candidate] = penalty;
    }
    return finite;
  }

  const Rows& keys_;
  std::int64_t dim_;
  std::int64_t stride_;
  bool normalize_;
  const MmrScratch& scratch_;
};

// Fills the candidates of one query in the order of their keys; says whether all have a finite relevance.
template <class T>
class Candidates {
 public:
  Candidates(const MmrTask& task, MmrResult& result, const MmrScratch& scratch, double query_norm)
      : task_(task), result_(result), scratch_(scratch), query_norm_(query_norm) {}

  // Keys first .. of the task: those that the mask lets pass, R at a time.
  void scan() {
    const ScoreTask& score = task_.score;
    const std::uint8_t* allowed = task_.mask.data != nullptr ? task_.mask.data + score.query_ids[0] * task_.mask.query_stride : nullptr;
    std::int64_t keys[kRowTile];
    int waiting = 0;
    for (std::int64_t key = score.key_begin; key < score.key_end; ++key) {
      if (allowed != nullptr && allowed[key * task_.mask.key_stride] == 0) continue;
      keys[waiting++] = key;
      if (waiting < kRowTile) continue;
      add<kRowTile>(keys);
      waiting = 0;
    }
    for (int i = 0; i < waiting; ++i) add<1>(keys + i);
  }

  std::int64_t count() const { return count_; }
  bool finite() const { return finite_; }

 private:
  template <int R>
  void add(const std::int64_t* keys) {
    const ScoreTask& score = task_.score;
    const std::int64_t dim = score.keys.dim;
    const T* rows[R];
    for (int r = 0; r < R; ++r) rows[r] = row_at<T>(score.keys, keys[r]);
    float dots[1][R];
    double squares[R];
    if (score.normalize) {
      products<T, R, 1, true>(rows, scratch_.query, 0, dim, dots, squares);
    } else {
      products<T, R, 1, false>(rows, scratch_.query, 0, dim, dots, squares);
    }
    for (int r = 0; r < R; ++r) {
      const double norm = score.normalize ? __builtin_sqrt(squares[r]) : 0.0;
      const float relevance = score.normalize ? cosine_score(dots[0][r], query_norm_, norm, scratch_.query, rows[r], dim)
                                              : plain_score(dots[0][r], scratch_.query, rows[r], dim);
      accept(keys[r], relevance, norm);
    }
  }

  void accept(std::int64_t key, float relevance, double norm) {
    if (!is_finite(relevance)) {
      if (result_.first_bad < 0) result_.first_bad = key - task_.score.key_begin;
      if (relevance != relevance) return;
    }
    if (task_.has_min_relevance && relevance < task_.min_relevance) return;
    finite_ &= is_finite(relevance);
    scratch_.ids[count_] = key;
    scratch_.relevance[count_] = relevance;
    if (task_.score.normalize) {
      scratch_.norms[count_] = norm;
      scratch_.inverse_norms[count_] = inverse_norm(norm);
    }
    ++count_;
  }

  const MmrTask& task_;
  MmrResult& result_;
  const MmrScratch& scratch_;
  double query_norm_;
  std::int64_t count_ = 0;
  bool finite_ = true;
};

// The loop as it is defined, for candidates whose scores may become NaN or infinite.
template <class T>
void select_greedily(const MmrTask& task, std::int64_t count, MmrResult& result, const MmrScratch& scratch) {
  const ScoreTask& score = task.score;
  double norm = 0.0;
  const PackedQueries pick{scratch.picks, padded_dim(score.keys.dim), 1, score.normalize ? &norm : nullptr};
  mmr_greedy(count, task.k, task.relevance_weight, scratch, result, score.key_begin,
             [&](std::int64_t picked, const std::int64_t* ids, std::int64_t others, float* out) {
               const T* row = row_at<T>(score.keys, picked);
               pack_row(row, score.keys.dim, scratch.picks);
               if (score.normalize) norm = row_norm(row, score.keys.dim);
               double norms[kKeyBlock];
               score_keys_of<T>(pick, score.keys, ids, 0, others, norms, out, kKeyBlock);
             });
}

template <class T>
void select(const MmrTask& task, MmrResult& result, const MmrScratch& scratch) {
  double query_norm = 0.0;
  pack_queries(task.score, Scratch{scratch.query, nullptr, &query_norm, nullptr, nullptr});
  Candidates<T> candidates(task, result, scratch, query_norm);
  candidates.scan();
  const std::int64_t count = candidates.count();
  if (candidates.finite() && (task.k < count ? task.k : count) <= scratch.pick_capacity) {
    RowSimilarities<T> similarities(task, scratch);
    if (mmr_lazy(count, task.k, task.relevance_weight, scratch, result, task.score.key_begin, similarities)) return;
  }
  select_greedily<T>(task, count, result, scratch);
}

}  // namespace

void mmr_select(const MmrTask& task, MmrResult& result, const MmrScratch& scratch) {
  switch (task.score.keys.kind) {
    case Kind::f32: select<float>(task, result, scratch); break;
    case Kind::f16: select<Half>(task, result, scratch); break;
    case Kind::bf16: select<Bfloat>(task, result, scratch); break;
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
