#include "ops/launch.hpp"

#include <algorithm>

namespace prismem {

QueryPlan plan_queries(std::int64_t num_queries, std::int64_t num_keys, std::int64_t dim, const Segments& segments, std::int64_t block) {
  QueryPlan plan;
  plan.order.resize(static_cast<std::size_t>(num_queries));
  const std::int64_t num_segments = segments.ranges != nullptr ? segments.count : 1;
  const auto segment_of = [&](std::int64_t row) {
    return segments.groups != nullptr ? segments.groups[row] : (segments.ranges != nullptr ? row : 0);
  };
  // A counting sort keeps rows of one segment in their order.
  std::vector<std::int64_t> starts(static_cast<std::size_t>(num_segments) + 1, 0);
  for (std::int64_t row = 0; row < num_queries; ++row) ++starts[static_cast<std::size_t>(segment_of(row)) + 1];
  for (std::size_t s = 1; s < starts.size(); ++s) starts[s] += starts[s - 1];
  std::vector<std::int64_t> next(starts.begin(), starts.end() - 1);
  for (std::int64_t row = 0; row < num_queries; ++row) {
    plan.order[static_cast<std::size_t>(next[static_cast<std::size_t>(segment_of(row))]++)] = row;
  }
  plan.work = plan_work(num_queries, num_keys, dim, segments);
  for (std::int64_t s = 0; s < num_segments; ++s) {
    const std::int64_t begin = segments.ranges != nullptr ? segments.ranges[2 * s] : 0;
    const std::int64_t end = segments.ranges != nullptr ? segments.ranges[2 * s + 1] : num_keys;
    const std::int64_t last = starts[static_cast<std::size_t>(s) + 1];
    for (std::int64_t first = starts[static_cast<std::size_t>(s)]; first < last; first += block) {
      const std::int64_t count = std::min(block, last - first);
      plan.blocks.push_back(QueryBlock{first, count, begin, end});
    }
  }
  return plan;
}

double plan_work(std::int64_t num_queries, std::int64_t num_keys, std::int64_t dim, const Segments& segments) {
  if (segments.ranges == nullptr) return static_cast<double>(num_queries) * static_cast<double>(num_keys) * static_cast<double>(dim);
  double pairs = 0.0;
  for (std::int64_t row = 0; row < num_queries; ++row) {
    const std::int64_t* range = segments.ranges + 2 * (segments.groups != nullptr ? segments.groups[row] : row);
    pairs += static_cast<double>(range[1] - range[0]);
  }
  return pairs * static_cast<double>(dim);
}

std::int64_t block_size(std::int64_t num_queries, int threads) {
  const std::int64_t share = (num_queries + threads - 1) / threads;
  return std::clamp<std::int64_t>((share + 2) / 3 * 3, 3, kQueryBlock);
}

ThreadScratch::ThreadScratch(std::int64_t dim)
    : floats_(new float[static_cast<std::size_t>(kQueryBlock * (padded_dim(dim) + kKeyBlock))]),
      doubles_(new double[static_cast<std::size_t>(kQueryBlock + kKeyBlock)]),
      ids_(new std::int64_t[static_cast<std::size_t>(kKeyBlock)]),
      packed_size_(kQueryBlock * padded_dim(dim)) {}

Scratch ThreadScratch::view() {
  return Scratch{floats_.get(), floats_.get() + packed_size_, doubles_.get(), doubles_.get() + kQueryBlock, ids_.get()};
}

std::vector<ThreadScratch> make_scratch(int threads, std::int64_t dim) {
  std::vector<ThreadScratch> scratch;
  scratch.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) scratch.emplace_back(dim);
  return scratch;
}

std::int64_t packed_queries_limit(std::int64_t dim) {
  constexpr std::int64_t kFloats = std::int64_t{1} << 21;
  return std::max(whole_units(kQueryBlock), kFloats / std::max<std::int64_t>(padded_dim(dim), 1) / kQueryUnit * kQueryUnit);
}

PackedPanels QueryPacker::pack(const OpTable& table, const Rows& queries, const std::int64_t* ids, std::int64_t count, bool normalize) {
  rows_.resize(static_cast<std::size_t>(packed_rows(count) * padded_dim(queries.dim)) * sizeof(float));
  if (normalize) norms_.resize(static_cast<std::size_t>(count));
  table.pack_queries(queries, ids, count, rows_.as<float>(), normalize ? norms_.data() : nullptr);
  return PackedPanels{rows_.as<float>(), normalize ? norms_.data() : nullptr, count};
}

ScanMemory::ScanMemory(std::int64_t queries, std::int64_t dim)
    // A single query reads the keys where they lie.
    : key_floats_(queries > 1 ? scan_keys(dim) * padded_dim(dim) : 0),
      floats_(static_cast<std::size_t>(key_floats_ + padded_dim(dim)) * sizeof(float)) {}

ScanScratch ScanMemory::view() { return ScanScratch{floats_.as<float>(), floats_.as<float>() + key_floats_}; }

std::vector<ScanMemory> make_scan_memory(int threads, std::int64_t queries, std::int64_t dim) {
  std::vector<ScanMemory> memory;
  memory.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) memory.emplace_back(queries, dim);
  return memory;
}

void note_bad(Report& report, std::int64_t query, std::int64_t key) {
  if (report.bad_query >= 0 && report.bad_query <= query) return;
  report.bad_query = query;
  report.bad_key = key;
}

}  // namespace prismem
