// What the launchers of the two mmr ops share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "ops/launch.hpp"

namespace prismem {

// Memory of one thread, not cleared, for segments of at most `longest` keys of which at most k are picked; dim 0: no rows.
class MmrThreadScratch {
 public:
  MmrThreadScratch(std::int64_t longest, std::int64_t k, std::int64_t dim) {
    const std::int64_t picks = std::min(k, longest);
    const std::int64_t row = padded_dim(dim);
    // One cache line more than a row, so that rows of a power of two do not fall on each other's places in the cache.
    const std::int64_t stride = (row + 15) / 16 * 16 + 16;
    // Beyond this the picks are not kept as rows, and the kernel takes the plain loop.
    const std::int64_t capacity = std::clamp<std::int64_t>(kMostPickFloats / stride, 1, std::max<std::int64_t>(picks, 1));
    const std::int64_t blocks = (longest + kBoundBlock - 1) / kBoundBlock;
    // Measured first, with no memory, then carved from what was measured.
    for (const bool carving : {false, true}) {
      if (carving) memory_.reset(new std::byte[used_ + kLine]);
      used_ = 0;
      carve(view_.ids, longest);
      carve(view_.relevance, longest);
      carve(view_.penalty, longest);
      carve(view_.norms, longest);
      carve(view_.inverse_norms, longest);
      carve(view_.bounds, blocks * kBoundBlock);
      carve(view_.block_bounds, blocks);
      carve(view_.seen, longest);
      carve(view_.picked, picks);
      carve(view_.query, row);
      carve(view_.picks, capacity * stride);
      carve(view_.pick_norms, capacity);
      carve(view_.pick_inverse_norms, capacity);
      if (has_sketch(longest, picks, dim)) carve_sketch((longest + kSketchRows - 1) / kSketchRows * kSketchRows, picks, dim);
    }
    view_.pick_capacity = capacity;
    view_.pick_stride = stride;
  }
  const MmrScratch& view() const { return view_; }

 private:
  static constexpr std::int64_t kMostPickFloats = std::int64_t{1} << 26;
  static constexpr std::size_t kLine = 64;
  static constexpr std::int64_t kSketchMostBytes = std::int64_t{1} << 26;

  // Few candidates or picks do not repay the rounding of all rows; very many would need too much memory.
  static bool has_sketch(std::int64_t longest, std::int64_t picks, std::int64_t dim) {
    if (longest < kSketchLeastCandidates || picks < kSketchLeastPicks || dim < 1 || dim > kSketchMostDim) return false;
    return longest <= kSketchMostBytes / sketch_width(dim) && longest <= kSketchMostBytes / 4 / picks;
  }

  void carve_sketch(std::int64_t rows, std::int64_t picks, std::int64_t dim) {
    MmrSketchScratch& sketch = view_.sketch;
    carve(sketch.lines, rows * sketch_width(dim));
    carve(sketch.scale, rows);
    carve(sketch.error, rows);
    carve(sketch.length, rows);
    carve(sketch.base, rows);
    carve(sketch.low, rows);
    carve(sketch.bound, rows);
    carve(sketch.near, rows * picks);
    carve(sketch.block_bound, rows / kSketchRows);
    carve(sketch.block_seen, rows / kSketchRows);
    carve(sketch.pick_codes, picks * sketch_width(dim));
    carve(sketch.pick_sum, picks);
    carve(sketch.pick_error, picks);
    carve(sketch.pick_length, picks);
    carve(sketch.jobs, kSketchMostOpen * picks);
    carve(sketch.rows, 4 * sketch_width(dim));
  }

  template <class T>
  void carve(T*& part, std::int64_t count) {
    if (memory_ != nullptr) {
      const auto start = (reinterpret_cast<std::uintptr_t>(memory_.get()) + kLine - 1) / kLine * kLine;
      part = reinterpret_cast<T*>(start + used_);
    }
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + kLine - 1) / kLine * kLine;
  }

  std::unique_ptr<std::byte[]> memory_;
  std::size_t used_ = 0;
  MmrScratch view_{};
};

inline std::vector<MmrThreadScratch> make_mmr_scratch(int threads, std::int64_t longest, std::int64_t k, std::int64_t dim) {
  std::vector<MmrThreadScratch> scratch;
  scratch.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) scratch.emplace_back(longest, k, dim);
  return scratch;
}

inline void fill_unused(const MmrResult& result, std::int64_t width) {
  std::fill(result.indices + result.count, result.indices + width, std::int64_t{-1});
  std::fill(result.scores + result.count, result.scores + width, -std::numeric_limits<float>::infinity());
}

}  // namespace prismem
