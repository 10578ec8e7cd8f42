// mmr_select: relevance of one query to its segment, then the greedy loop; similarities are computed where they may matter.
#if defined(PRISMEM_TARGET_AVX2) || defined(PRISMEM_TARGET_AVX512)
#include "simd/mmr_sketch.hpp"
#else
#include "simd/mmr.hpp"
#endif

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

constexpr int kRowTile = 4;   // candidates that are read side by side when all are read
#if defined(PRISMEM_TARGET_AVX512)
constexpr int kPickTile = 8;  // picks that two candidates are multiplied with at once: their sums fill the registers
#else
constexpr int kPickTile = 6;
#endif

// Asks for what a row that lies `distance` elements further has at this place. Rows that are read for the first time come as many
// short streams, of which the hardware would notice each too late.
template <class T>
inline void fetch(const T* place, std::int64_t distance) {
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(place) + static_cast<std::uintptr_t>(distance) * sizeof(T);
  __builtin_prefetch(reinterpret_cast<const void*>(address));
}

// Products, lane by lane, of R rows with P packed rows, and with Squares the squares of the R rows. With Fetch the rows `distance`
// elements further are asked for.
template <class T, int R, int P, bool Squares, bool Fetch = false>
inline void multiply(const T* const (&rows)[R], const float* const (&packed)[P], std::int64_t dim, F8 (&sums)[R][P], D8 (&squares)[R],
                     std::int64_t distance = 0) {
  for (int r = 0; r < R; ++r) {
    if constexpr (Squares) squares[r] = zero_d8();
    for (int p = 0; p < P; ++p) sums[r][p] = zero8();
  }
  const auto step = [&](const F8 (&row)[R], std::int64_t i) {
    for (int p = 0; p < P; ++p) {
      const F8 other = load8(packed[p] + i);
      for (int r = 0; r < R; ++r) sums[r][p] = fma8(other, row[r], sums[r][p]);
    }
    if constexpr (Squares) {
      for (int r = 0; r < R; ++r) squares[r] = square_add(row[r], squares[r]);
    }
  };
  F8 row[R];
  std::int64_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    for (int r = 0; r < R; ++r) row[r] = load8(rows[r] + i);
    if constexpr (Fetch) {
      constexpr int kStepsOfALine = static_cast<int>(64 / sizeof(T) / 8);
      for (int r = static_cast<int>(i / 8 % kStepsOfALine); r < R; r += kStepsOfALine) fetch(rows[r] + i, distance);
    }
    step(row, i);
  }
  if (i < dim) {
    for (int r = 0; r < R; ++r) row[r] = load8_tail(rows[r] + i, dim - i);
    step(row, i);
  }
}

template <int R, int P>
inline void add_lanes(const F8 (&sums)[R][P], float (&dots)[R][P]) {
  const F8* from = &sums[0][0];
  float* to = &dots[0][0];
  int i = 0;
  for (; i + 4 <= R * P; i += 4) sum8_of4({from[i], from[i + 1], from[i + 2], from[i + 3]}, to + i);
  for (; i < R * P; ++i) to[i] = sum8(from[i]);
}

// NaN where a cosine has to be computed in full: for norms that are zero or beyond what float sums bear.
inline float inverse_norm(double norm) { return norm >= kNormSafeLow && norm <= kNormSafeHigh ? static_cast<float>(1.0 / norm) : __builtin_nanf(""); }

// A cosine without its divisions, and more than the roundings of its factors and products come to: what this shows to be smaller
// than another cosine is smaller. NaN where a norm has no inverse.
inline float near_cosine(float dot, float inverse, float other_inverse) { return dot * inverse * other_inverse; }
constexpr float kNearCosine = 1e-6f;

// The similarities of one segment's candidates, from their rows.
template <class T>
class RowSimilarities {
 public:
  RowSimilarities(const MmrTask& task, const MmrScratch& scratch)
      : keys_(task.score.keys), dim_(keys_.dim), normalize_(task.score.normalize), scratch_(scratch) {}

  const T* row(std::int64_t candidate) const { return row_at<T>(keys_, scratch_.ids[candidate]); }

  void pick(std::int64_t candidate, std::int64_t number) {
    pack_row(row(candidate), dim_, pick_row(number));
    if (!normalize_) return;
    scratch_.pick_norms[number] = scratch_.norms[candidate];
    scratch_.pick_inverse_norms[number] = scratch_.inverse_norms[candidate];
  }

  bool first(std::int64_t count) {
    for (std::int64_t c = 0; c < count; ++c) scratch_.penalty[c] = -kFloatMax;
    bool finite = true;
    std::int64_t c = 0;
    for (; c + kRowTile <= count; c += kRowTile) finite &= first_of<kRowTile>(c);
    for (; c < count; ++c) finite &= first_of<1>(c);
    return finite;
  }

  bool raise(std::int64_t one, std::int64_t other, std::int64_t from, std::int64_t to) {
    return other < 0 ? raise_by<1>({one}, from, to) : raise_by<2>({one, other}, from, to);
  }

 private:
  // Pick 0 and R neighbouring candidates.
  template <int R>
  bool first_of(std::int64_t candidate) {
    const T* rows[R];
    for (int r = 0; r < R; ++r) rows[r] = row(candidate + r);
    F8 sums[R][1];
    D8 no_squares[R];
    multiply<T, R, 1, false>(rows, {pick_row(0)}, dim_, sums, no_squares);
    float dots[R][1];
    add_lanes(sums, dots);
    bool finite = true;
    for (int r = 0; r < R; ++r) finite &= raise_by_dot(candidate + r, 0, dots[r][0]);
    return finite;
  }

  template <int R>
  bool raise_by(const std::int64_t (&candidates)[R], std::int64_t from, std::int64_t to) {
    bool finite = true;
    for (; to - from >= kPickTile; from += kPickTile) finite &= raise_by_tile<R, kPickTile>(candidates, from);
    return finite & raise_by_rest<R, kPickTile - 1>(candidates, from, to - from);
  }

  template <int R, int P>
  bool raise_by_rest(const std::int64_t (&candidates)[R], std::int64_t from, std::int64_t count) {
    if constexpr (P > 0) return count == P ? raise_by_tile<R, P>(candidates, from) : raise_by_rest<R, P - 1>(candidates, from, count);
    return true;
  }

  // Picks from .. from + P - 1 and R candidates.
  template <int R, int P>
  bool raise_by_tile(const std::int64_t (&candidates)[R], std::int64_t from) {
    const T* rows[R];
    for (int r = 0; r < R; ++r) rows[r] = row(candidates[r]);
    const float* picks[P];
    for (int p = 0; p < P; ++p) picks[p] = pick_row(from + p);
    F8 sums[R][P];
    D8 no_squares[R];
    multiply<T, R, P, false>(rows, picks, dim_, sums, no_squares);
    float dots[R][P];
    add_lanes(sums, dots);
    bool finite = true;
    for (int r = 0; r < R; ++r) {
      if (!raises(candidates[r], from, dots[r])) continue;
      for (int p = 0; p < P; ++p) finite &= raise_by_dot(candidates[r], from + p, dots[r][p]);
    }
    return finite;
  }

  // False where none of these dots can raise the penalty: most tiles end here.
  template <int P>
  bool raises(std::int64_t candidate, std::int64_t from, const float (&dots)[P]) const {
    const float penalty = scratch_.penalty[candidate];
    bool below = true;
    if (normalize_) {
      const float inverse = scratch_.inverse_norms[candidate];
      const float* inverses = scratch_.pick_inverse_norms + from;
      for (int p = 0; p < P; ++p) below &= near_cosine(dots[p], inverses[p], inverse) + kNearCosine < penalty;
    } else {
      for (int p = 0; p < P; ++p) below &= (dots[p] <= penalty) & (dots[p] >= -kFloatMax);
    }
    return !below;
  }

  bool raise_by_dot(std::int64_t candidate, std::int64_t number, float dot) {
    float& penalty = scratch_.penalty[candidate];
    float similarity;
    if (normalize_) {
      if (near_cosine(dot, scratch_.pick_inverse_norms[number], scratch_.inverse_norms[candidate]) + kNearCosine < penalty) return true;
      similarity = cosine_score(dot, scratch_.pick_norms[number], scratch_.norms[candidate], pick_row(number), row(candidate), dim_);
    } else {
      similarity = plain_score(dot, pick_row(number), row(candidate), dim_);
    }
    if (similarity > penalty) penalty = similarity;
    return is_finite(similarity);
  }

  float* pick_row(std::int64_t number) const { return scratch_.picks + number * scratch_.pick_stride; }

  const Rows& keys_;
  std::int64_t dim_;
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
    F8 sums[R][1];
    D8 squares[R];
    if (score.normalize) {
      multiply<T, R, 1, true, true>(rows, {scratch_.query}, dim, sums, squares, R * score.keys.stride);
    } else {
      multiply<T, R, 1, false, true>(rows, {scratch_.query}, dim, sums, squares, R * score.keys.stride);
    }
    float dots[R][1];
    add_lanes(sums, dots);
    for (int r = 0; r < R; ++r) {
      const double norm = score.normalize ? __builtin_sqrt(sum_d8(squares[r])) : 0.0;
      const float relevance = score.normalize ? cosine_score(dots[r][0], query_norm_, norm, scratch_.query, rows[r], dim)
                                              : plain_score(dots[r][0], scratch_.query, rows[r], dim);
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
  const PackedQueries pick{scratch.picks, scratch.pick_stride, 1, score.normalize ? &norm : nullptr};
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
  const std::int64_t picks = task.k < count ? task.k : count;
#if defined(PRISMEM_TARGET_AVX2) || defined(PRISMEM_TARGET_AVX512)
  const bool sketched = scratch.sketch.lines != nullptr && repays_sketch(count, picks, task.score.keys.dim);
  if (sketched && candidates.finite() && MmrSketch<T>(task, scratch, count).select(result)) return;
#endif
  if (candidates.finite() && picks <= scratch.pick_capacity) {
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
