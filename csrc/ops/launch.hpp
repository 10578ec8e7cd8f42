// What the launchers share: blocks of queries that see the same keys, scratch memory for each thread, reports.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "prismem/ops.hpp"
#include "simd/dispatch.hpp"
#include "support/huge_buffer.hpp"
#include "support/parallel.hpp"

namespace prismem {

struct QueryPlan {
  std::vector<std::int64_t> order;
  std::vector<QueryBlock> blocks;
  double work = 0.0;  // multiplications
};

// Multiplications that all rows take together.
double plan_work(std::int64_t num_queries, std::int64_t num_keys, std::int64_t dim, const Segments& segments);

// Puts rows of the same segment together, in blocks of at most `block` rows, so that they share the reading of the keys.
QueryPlan plan_queries(std::int64_t num_queries, std::int64_t num_keys, std::int64_t dim, const Segments& segments, std::int64_t block);

// A block size that still gives every thread something to do.
std::int64_t block_size(std::int64_t num_queries, int threads);

// Scratch memory of one thread. It is not cleared: to do so would cost more than a small call.
class ThreadScratch {
 public:
  explicit ThreadScratch(std::int64_t dim);
  Scratch view();

 private:
  std::unique_ptr<float[]> floats_;
  std::unique_ptr<double[]> doubles_;
  std::unique_ptr<std::int64_t[]> ids_;
  std::int64_t packed_size_;
};

// One per thread.
std::vector<ThreadScratch> make_scratch(int threads, std::int64_t dim);

// Pieces of packed queries start at a multiple of this, which is one of the panels of every instruction set.
constexpr std::int64_t kQueryUnit = 6;

constexpr std::int64_t whole_units(std::int64_t queries) { return (queries + kQueryUnit - 1) / kQueryUnit * kQueryUnit; }

// How many queries are packed at once: what stays in a third-level cache beside the keys.
std::int64_t packed_queries_limit(std::int64_t dim);

// Queries packed for the scans of one instruction set.
class QueryPacker {
 public:
  PackedPanels pack(const OpTable& table, const Rows& queries, const std::int64_t* ids, std::int64_t count, bool normalize);

 private:
  HugeBuffer rows_;
  std::vector<double> norms_;
};

// What one thread needs for the scans of at most `queries` queries at a time.
class ScanMemory {
 public:
  ScanMemory(std::int64_t queries, std::int64_t dim);
  ScanScratch view();

 private:
  std::int64_t key_floats_;
  HugeBuffer floats_;
};

std::vector<ScanMemory> make_scan_memory(int threads, std::int64_t queries, std::int64_t dim);

// Takes note of the bad pair if its query comes earlier than the one known.
void note_bad(Report& report, std::int64_t query, std::int64_t key);

}  // namespace prismem
