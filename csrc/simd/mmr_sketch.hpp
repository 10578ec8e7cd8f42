// mmr_select on a sketch: the candidates' rows rounded to 8 bits, once a call. A sketch says of every similarity between which two
// numbers it lies; only the few candidates that could be the next pick, and the few picks that could be most like them, are then
// multiplied in full. Picks and scores are those of mmr_greedy.
//
// A row x has codes c and a scale s with x = s c + r. For a candidate x and a pick y, by the inequality of Cauchy and Schwarz,
//
//   |<x, y> - s_x s_y <c_x, c_y>| = |<r_x, s_y c_y> + <x, r_y>| <= |r_x| (|y| + |r_y|) + |x| |r_y|
//
// and a score as computed differs from <x, y> by at most roundings() |x| |y|. For cosines the rows count as divided by their
// lengths. Lengths of residuals are raised by a thousandth, more than the roundings of their own sums of at most kSketchMostDim
// terms come to.
//
// Candidates lie in blocks of kSketchRows, one a lane. A block is brought up to date, with all picks it has missed, only while the
// largest bound in it may still win.
#pragma once

#include "simd/mmr.hpp"
#include "simd/mmr_lanes.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

constexpr float kAbove = 1.001f;

// Between these lengths squares of residuals lose nothing that counts to the smallest numbers, and products stay finite.
constexpr double kSketchLeastLength = 1e-10;
constexpr double kSketchMostLength = 1e10;

// What rounding may cost, in units of |x| |y|: a product passes dim / 8 + 4 additions on its way into a canonical score, the cosine
// three roundings more, and the bounds fewer than thirty; each costs at most 2^-24 < 6e-8.
inline float roundings(std::int64_t dim) { return (static_cast<float>(dim) / 8.0f + 64.0f) * 6e-8f; }

// Whether rounding all rows is likely to cost less than it spares; where the lines cross was measured, with and without VNNI.
inline bool repays_sketch(std::int64_t count, std::int64_t picks, std::int64_t dim) {
#if defined(PRISMEM_TARGET_AVX512)
  return count >= kSketchLeastCandidates && picks >= kSketchLeastPicks + dim / 64;
#else
  return count >= 4 * kSketchLeastCandidates && picks >= 3 * kSketchLeastPicks + dim / 64;
#endif
}

template <class T>
class MmrSketch {
 public:
  MmrSketch(const MmrTask& task, const MmrScratch& scratch, std::int64_t count)
      : task_(task),
        keys_(task.score.keys),
        normalize_(task.score.normalize),
        scratch_(scratch),
        s_(scratch.sketch),
        count_(count),
        blocks_((count + kSketchRows - 1) / kSketchRows),
        groups_(sketch_groups(keys_.dim)),
        most_(task.k < count ? task.k : count),
        weight_(task.relevance_weight),
        penalty_weight_(static_cast<float>(1.0 - task.relevance_weight)) {}

  // False, with no result, where the sketch cannot bound the scores or does not spare enough work.
  bool select(MmrResult& result) {
    if (!encode()) return false;
    const std::int64_t base = task_.score.key_begin;
    std::int64_t pick = 0;
    for (std::int64_t c = 1; c < count_; ++c) {
      if (scratch_.relevance[c] > scratch_.relevance[pick]) pick = c;
    }
    double score = weight_ * static_cast<double>(scratch_.relevance[pick]);
    std::int64_t budget = 2 * count_;
    for (result.count = 0;;) {
      result.indices[result.count] = scratch_.ids[pick] - base;
      result.scores[result.count] = static_cast<float>(score);
      scratch_.picked[result.count] = pick;
      if (++result.count == most_) return true;
      take(result.count - 1);
      pick = next(result.count, score);
      budget += count_ / 4 - dots_done_;
      if (budget < 0) return false;
      dots_done_ = 0;
    }
  }

 private:
  const T* row(std::int64_t candidate) const { return row_at<T>(keys_, scratch_.ids[candidate]); }
  std::int8_t* lines(std::int64_t block) const { return s_.lines + block * groups_ * kSketchLine; }

  // Codes, scales and errors of all candidates; what the bounds start from.
  bool encode() {
    for (std::int64_t c = count_; c < blocks_ * kSketchRows; ++c) s_.scale[c] = s_.error[c] = s_.length[c] = 0.0f;
    if (count_ % kSketchRows != 0) {
      for (std::int64_t i = 0; i < groups_ * kSketchLine; ++i) lines(blocks_ - 1)[i] = 0;
    }
    for (std::int64_t c = 0; c < count_; c += 4) encode_rows(c);
    float longest = 0.0f;
    for (std::int64_t c = 0; c < count_; ++c) {
      if (!is_finite(s_.length[c])) return false;
      longest = s_.length[c] > longest ? s_.length[c] : longest;
    }
    for (std::int64_t c = 0; c < count_; ++c) {
      const float relevance = scratch_.relevance[c];
      const float margin = 1e-6f * (__builtin_fabsf(relevance) + s_.length[c] * longest);
      s_.base[c] = static_cast<float>(weight_ * static_cast<double>(relevance)) + margin;
      s_.low[c] = -kFloatMax;
      s_.bound[c] = kFloatMax;
      scratch_.penalty[c] = -kFloatMax;
      scratch_.seen[c] = 0;
    }
    for (std::int64_t c = count_; c < blocks_ * kSketchRows; ++c) {
      s_.base[c] = s_.bound[c] = -__builtin_inff();
      s_.low[c] = 0.0f;
    }
    for (std::int64_t block = 0; block < blocks_; ++block) {
      s_.block_seen[block] = 0;
      s_.block_bound[block] = kFloatMax;
    }
    return true;
  }

  // The row as floats, with zeros up to whole groups of sixteen.
  const float* floats_of(std::int64_t candidate, int slot) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      if (keys_.dim % kSketchRows == 0) return row(candidate);
    }
    float* packed = s_.rows + slot * sketch_width(keys_.dim);
    for (std::int64_t i = padded_dim(keys_.dim); i < sketch_width(keys_.dim); ++i) packed[i] = 0.0f;
    pack_row(row(candidate), keys_.dim, packed);
    return packed;
  }

  // Candidates first .. first + 3 of one block; beyond the last candidate the last one again.
  void encode_rows(std::int64_t first) {
    // Adding and taking away 1.5 * 2^23 (and an offset) rounds to a whole number, and leaves it in the low bits between the two.
    const lanes::Floats rounder = lanes::splat(12582912.0f + static_cast<float>(lanes::kCodeOffset));
    const std::int64_t width = sketch_width(keys_.dim);
    const float* rows[4];
    float scale[4];
    lanes::Floats step[4];
    lanes::Floats inverse[4];
    lanes::Floats squares[4];
    float length[4];
    for (int r = 0; r < 4; ++r) {
      const std::int64_t candidate = first + r < count_ ? first + r : count_ - 1;
      rows[r] = floats_of(candidate, r);
      lanes::Floats high = lanes::splat(0.0f);
      lanes::Floats square = lanes::splat(0.0f);
      for (std::int64_t i = 0; i < width; i += kSketchRows) {
        const lanes::Floats x = lanes::load(rows[r] + i);
        high = lanes::larger(high, lanes::size(x));
        if (!normalize_) square = lanes::times_plus(x, x, square);
      }
      const float highest = lanes::largest(high);
      scale[r] = highest / 127.0f;
      step[r] = lanes::splat(scale[r]);
      inverse[r] = lanes::splat(scale[r] > 0.0f ? 1.0f / scale[r] : 0.0f);
      squares[r] = lanes::splat(0.0f);
      length[r] = normalize_ ? 0.0f : __builtin_sqrtf(lanes::total(square));
    }
    std::int8_t* line = lines(first / kSketchRows) + first % kSketchRows * 4;
    for (std::int64_t i = 0; i < width; i += kSketchRows) {
      __m128i codes[4];
      for (int r = 0; r < 4; ++r) {
        const lanes::Floats x = lanes::load(rows[r] + i);
        const lanes::Floats shifted = lanes::times_plus(x, inverse[r], rounder);
        const lanes::Floats rest = lanes::minus_times(x, lanes::minus(shifted, rounder), step[r]);
        squares[r] = lanes::times_plus(rest, rest, squares[r]);
        codes[r] = lanes::low_bytes(shifted);
      }
      lanes::store_turned(codes, line + i / 4 * kSketchLine);
    }
    for (int r = 0; r < 4 && first + r < count_; ++r) {
      const std::int64_t candidate = first + r;
      const double norm = normalize_ ? scratch_.norms[candidate] : static_cast<double>(length[r]);
      const bool zero = scale[r] == 0.0f && norm == 0.0;
      const bool fits = zero || (norm >= kSketchLeastLength && norm <= kSketchMostLength);
      const float unit = zero ? 0.0f : (normalize_ ? static_cast<float>(1.0 / norm) : 1.0f);
      s_.scale[candidate] = scale[r] * unit;
      s_.error[candidate] = __builtin_sqrtf(lanes::total(squares[r])) * unit * kAbove;
      s_.length[candidate] = fits ? static_cast<float>(norm) * unit * kAbove : __builtin_nanf("");
    }
  }

  // The codes of the pick of this number, and what its similarities may be off by.
  void take(std::int64_t number) {
    const std::int64_t pick = scratch_.picked[number];
    s_.pick_error[number] = s_.error[pick] + roundings(keys_.dim) * s_.length[pick];
    s_.pick_length[number] = s_.length[pick] + s_.error[pick];
    const std::int8_t* from = lines(pick / kSketchRows) + pick % kSketchRows * 4;
    std::int8_t* codes = s_.pick_codes + number * groups_ * 4;
    for (std::int64_t g = 0; g < groups_; ++g) __builtin_memcpy(codes + 4 * g, from + g * kSketchLine, 4);
    s_.pick_sum[number] = lanes::centre(codes, 4 * groups_);
    s_.base[pick] = s_.bound[pick] = -__builtin_inff();
    settle(pick / kSketchRows);
  }

  void settle(std::int64_t block) { s_.block_bound[block] = lanes::largest(lanes::load(s_.bound + block * kSketchRows)); }

  // Narrows the bounds of a block by the picks it has not seen.
  void narrow(std::int64_t block, std::int64_t picks) {
    const std::int64_t at = block * kSketchRows;
    lanes::Floats low = lanes::load(s_.low + at);
    std::int64_t number = s_.block_seen[block];
    for (; number + 4 <= picks; number += 4) low = narrow_by<4, 1>(block, number, low);
    if (picks - number == 3) low = narrow_by<3, 1>(block, number, low);
    if (picks - number == 2) low = narrow_by<2, 2>(block, number, low);
    if (picks - number == 1) low = narrow_by<1, 4>(block, number, low);
    s_.block_seen[block] = picks;
    lanes::store(s_.low + at, low);
    lanes::store(s_.bound + at, lanes::minus_times(lanes::load(s_.base + at), lanes::splat(penalty_weight_), low));
    settle(block);
  }

  // The lower bounds after P picks more. Their sums are kept in U parts, so that enough of them are under way at once.
  template <int P, int U>
  lanes::Floats narrow_by(std::int64_t block, std::int64_t number, lanes::Floats low) {
    const std::int64_t at = block * kSketchRows;
    const std::int64_t width = 4 * groups_;
    const std::int8_t* line = lines(block);
    const std::int8_t* codes = s_.pick_codes + number * width;
    lanes::Sums sums[P][U];
    for (auto& parts : sums)
      for (lanes::Sums& part : parts) part = lanes::no_sums();
    for (std::int64_t g = 0; g < groups_; g += U) {
      for (int u = 0; u < U; ++u) {
        for (int p = 0; p < P; ++p) sums[p][u] = lanes::add_products(sums[p][u], line + (g + u) * kSketchLine, codes + p * width + 4 * (g + u));
      }
    }
    const lanes::Floats scale = lanes::load(s_.scale + at);
    const lanes::Floats error = lanes::load(s_.error + at);
    const lanes::Floats length = lanes::load(s_.length + at);
    for (int p = 0; p < P; ++p) {
      for (int u = 1; u < U; ++u) sums[p][0] = lanes::add(sums[p][0], sums[p][u]);
      const std::int64_t pick = number + p;
      const lanes::Floats dot = lanes::as_floats(sums[p][0], lanes::kCodeOffset * s_.pick_sum[pick]);
      const lanes::Floats near = lanes::times(lanes::times(dot, scale), lanes::splat(s_.scale[scratch_.picked[pick]]));
      lanes::store(near_of(at, pick), near);
      const lanes::Floats off = lanes::times_plus(error, lanes::splat(s_.pick_length[pick]), lanes::times(length, lanes::splat(s_.pick_error[pick])));
      low = lanes::larger(low, lanes::minus(near, off));
    }
    return low;
  }

  // Where the similarities of a candidate stand: kSketchRows apart for one pick after the other.
  float* near_of(std::int64_t candidate, std::int64_t pick) const {
    return s_.near + (candidate / kSketchRows * most_ + pick) * kSketchRows + candidate % kSketchRows;
  }

  // The candidate with the largest score after `picks` picks, and that score.
  std::int64_t next(std::int64_t picks, double& score) {
    best_ = -1;
    open(likely(picks), picks);
    close();
    for (std::int64_t block = 0; block < blocks_; ++block) {
      if (s_.block_bound[block] < threshold_) continue;
      if (s_.block_seen[block] != picks) narrow(block, picks);
      const std::int64_t at = block * kSketchRows;
      std::uint32_t may_win = lanes::not_below(lanes::load(s_.bound + at), lanes::splat(threshold_));
      for (; may_win != 0; may_win &= may_win - 1) {
        const std::int64_t candidate = at + __builtin_ctz(may_win);
        if (scratch_.seen[candidate] == picks || s_.bound[candidate] < threshold_) continue;
        open(candidate, picks);
        if (jobs_ >= kJobTile || open_ == kSketchMostOpen) close();
      }
    }
    close();
    score = best_score_;
    return best_;
  }

  // A candidate with the largest bound of all, whose block has seen all picks.
  std::int64_t likely(std::int64_t picks) {
    for (;;) {
      std::int64_t block = 0;
      for (std::int64_t b = 1; b < blocks_; ++b) {
        if (s_.block_bound[b] > s_.block_bound[block]) block = b;
      }
      if (s_.block_seen[block] != picks) {
        narrow(block, picks);
        continue;
      }
      const std::int64_t at = block * kSketchRows;
      return at + __builtin_ctz(lanes::not_below(lanes::load(s_.bound + at), lanes::splat(s_.block_bound[block])));
    }
  }

  // Lists the picks whose similarity may be the candidate's penalty.
  void open(std::int64_t candidate, std::int64_t picks) {
    open_candidates_[open_++] = candidate;
    const float known = scratch_.penalty[candidate];
    const float low = s_.low[candidate];
    const float least = known > low ? known : low;
    const float error = s_.error[candidate];
    const float length = s_.length[candidate];
    const float* near = near_of(candidate, 0);
    for (std::int64_t p = scratch_.seen[candidate]; p < picks; ++p) {
      s_.jobs[jobs_] = SketchJob{candidate, p};
      const float high = near[p * kSketchRows] + (error * s_.pick_length[p] + length * s_.pick_error[p]) * kAbove;
      jobs_ += high >= least ? 1 : 0;
    }
    scratch_.seen[candidate] = picks;
  }

  // Scores the listed candidates.
  void close() {
    for (std::int64_t j = 0; j < jobs_; j += kJobTile) multiply_jobs(s_.jobs + j, jobs_ - j < kJobTile ? jobs_ - j : kJobTile);
    dots_done_ += jobs_;
    jobs_ = 0;
    for (std::int64_t i = 0; i < open_; ++i) {
      const std::int64_t candidate = open_candidates_[i];
      const float penalty = scratch_.penalty[candidate];
      if (penalty > s_.low[candidate]) {
        s_.low[candidate] = penalty;
        s_.bound[candidate] = s_.base[candidate] - penalty_weight_ * penalty;
        settle(candidate / kSketchRows);
      }
      const double score = mmr_score(weight_, scratch_.relevance[candidate], penalty);
      if (best_ >= 0 && (score < best_score_ || (score == best_score_ && candidate > best_))) continue;
      best_ = candidate;
      best_score_ = score;
    }
    open_ = 0;
    threshold_ = below(best_score_);
  }

  // A float that is not above a number: one that is rounded up has its neighbour below within 1.2e-7 of its size.
  static float below(double value) {
    const float near = static_cast<float>(value);
    return static_cast<double>(near) <= value ? near : near - __builtin_fabsf(near) * 1.2e-7f - 1e-37f;
  }

  void multiply_jobs(const SketchJob* jobs, std::int64_t count) {
    const T* rows[kJobTile];
    const T* picks[kJobTile];
    for (std::int64_t j = 0; j < kJobTile; ++j) {
      const SketchJob& job = jobs[j < count ? j : count - 1];
      rows[j] = row(job.candidate);
      picks[j] = row(scratch_.picked[job.pick]);
    }
    F8 sums[kJobTile];
    for (F8& sum : sums) sum = zero8();
    const std::int64_t dim = keys_.dim;
    std::int64_t i = 0;
    for (; i + 8 <= dim; i += 8) {
      for (int j = 0; j < kJobTile; ++j) sums[j] = fma8(load8(picks[j] + i), load8(rows[j] + i), sums[j]);
    }
    if (i < dim) {
      for (int j = 0; j < kJobTile; ++j) sums[j] = fma8(load8_tail(picks[j] + i, dim - i), load8_tail(rows[j] + i, dim - i), sums[j]);
    }
    float dots[kJobTile];
    sum8_of4(sums, dots);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t candidate = jobs[j].candidate;
      float similarity = dots[j];
      // Norms were found to be safe or zero, so the rows themselves are not needed again.
      if (normalize_) similarity = cosine_score<T>(dots[j], scratch_.norms[scratch_.picked[jobs[j].pick]], scratch_.norms[candidate], nullptr, nullptr, 0);
      if (similarity > scratch_.penalty[candidate]) scratch_.penalty[candidate] = similarity;
    }
  }

  static constexpr int kJobTile = 4;

  const MmrTask& task_;
  const Rows& keys_;
  bool normalize_;
  const MmrScratch& scratch_;
  const MmrSketchScratch& s_;
  std::int64_t count_;
  std::int64_t blocks_;
  std::int64_t groups_;
  std::int64_t most_;
  double weight_;
  float penalty_weight_;
  std::int64_t open_candidates_[kSketchMostOpen];
  std::int64_t open_ = 0;
  std::int64_t jobs_ = 0;
  std::int64_t dots_done_ = 0;
  std::int64_t best_ = -1;
  double best_score_ = 0.0;
  float threshold_ = 0.0f;
};

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
