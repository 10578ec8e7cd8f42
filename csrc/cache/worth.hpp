// What an entry is worth keeping: the one measure of both tiers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace prismem::cache {

// The worth per byte of an entry whose cost nobody gave. All such entries weigh the same, so that among themselves the
// one unused for longest goes first.
constexpr double kUnknownWorth = 1e-6;
constexpr double kLargestWorth = 1e12;

// The cost of recomputing an entry for every byte it takes. A cost of 0 (not given), below 0 or not a number counts as unknown.
inline double worth(double cost, std::uint64_t bytes) {
  if (!(cost > 0)) return kUnknownWorth;
  return std::min(cost / static_cast<double>(std::max<std::uint64_t>(bytes, 1)), kLargestWorth);
}

// On disk the inflation also creeps by this part of an entry's worth at each put, so that among entries of one worth, whose priorities would
// be equal between two evictions, the one put or used longest ago goes first. A billion puts add a thousandth of the worth.
constexpr double kCreep = 1.0 / (std::uint64_t{1} << 40);

// GreedyDual-Size (Cao and Irani 1997): an entry's priority is set at each use; the lowest goes first, and its priority
// becomes the inflation, which ages all that are not used again.
inline double priority(double inflation, double cost, std::uint64_t bytes) { return inflation + worth(cost, bytes); }

}  // namespace prismem::cache
