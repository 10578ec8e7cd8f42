// What the launchers of the two mmr ops share.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/launch.hpp"

namespace prismem {

// Candidate arrays of one thread, for segments of at most `longest` keys.
class MmrThreadScratch {
 public:
  explicit MmrThreadScratch(std::int64_t longest)
      : ids_(static_cast<std::size_t>(longest)),
        relevance_(static_cast<std::size_t>(longest)),
        penalty_(static_cast<std::size_t>(longest)),
        norms_(static_cast<std::size_t>(longest)) {}
  MmrScratch view() { return MmrScratch{ids_.data(), relevance_.data(), penalty_.data(), norms_.data()}; }

 private:
  std::vector<std::int64_t> ids_;
  std::vector<float> relevance_;
  std::vector<float> penalty_;
  std::vector<double> norms_;
};

inline std::vector<MmrThreadScratch> make_mmr_scratch(int threads, std::int64_t longest) {
  std::vector<MmrThreadScratch> scratch;
  scratch.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) scratch.emplace_back(longest);
  return scratch;
}

inline void fill_unused(const MmrResult& result, std::int64_t width) {
  std::fill(result.indices + result.count, result.indices + width, std::int64_t{-1});
  std::fill(result.scores + result.count, result.scores + width, -std::numeric_limits<float>::infinity());
}

}  // namespace prismem
