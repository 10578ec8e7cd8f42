// token_overlap: queries that see the same keys are counted together. Their ids are numbered; 64 keys at a time mark in a table
// which of those ids they hold; the kernel adds up the rows of the table.
#include <algorithm>
#include <functional>
#include <vector>

#include "ops/launch.hpp"

namespace prismem {
namespace {

constexpr std::int64_t kQueriesAtOnce = 256;
constexpr std::int64_t kIdsAtOnce = 4096;   // distinct ids of one group: their table of marks stays in the second-level cache
constexpr std::int64_t kKeysAtOnce = 4096;  // keys of one job: enough to number the queries' ids once more in each job

struct alignas(kOverlapLanes) MarkRow {
  std::uint8_t lanes[kOverlapLanes];
};

const std::int32_t* ids_of(const IdSets& sets, std::int64_t set) { return sets.ids + sets.offsets[set]; }
std::int64_t length_of(const IdSets& sets, std::int64_t set) { return sets.offsets[set + 1] - sets.offsets[set]; }

// How many different ids a set has; `scratch` is there to save allocations.
std::int64_t distinct_ids(const std::int32_t* ids, std::int64_t length, std::vector<std::int32_t>& scratch) {
  const std::int32_t* end = ids + length;
  if (std::adjacent_find(ids, end, std::greater_equal<>()) == end) return length;
  scratch.assign(ids, end);
  std::sort(scratch.begin(), scratch.end());
  return std::unique(scratch.begin(), scratch.end()) - scratch.begin();
}

// Numbers different ids from 1 in the order they come; 0 is the number of all that were not entered.
class Numbering {
 public:
  struct Cell {
    std::int32_t id;
    std::int32_t number;  // 0: empty
  };

  // Open addressing in few of many cells: most ids that were not entered are told from one look at an empty cell.
  struct Table {
    const Cell* cells;
    std::uint32_t mask;
    int shift;

    // One number for "not empty" and "another id", because two branches on what cannot be predicted would cost more than the look.
    static bool taken_by_another(const Cell& cell, std::int32_t id) { return ((cell.id ^ id) & (-cell.number >> 31)) != 0; }

    // The cell of an id, or the empty one where it would go.
    std::uint32_t place_of(std::int32_t id) const {
      std::uint32_t place = (static_cast<std::uint32_t>(id) * 2654435769u) >> shift;
      while (taken_by_another(cells[place], id)) place = (place + 1) & mask;
      return place;
    }
    std::int32_t find(std::int32_t id) const { return cells[place_of(id)].number; }
  };

  void start(std::int64_t most_ids) {
    int bits = 10;
    while ((std::int64_t{1} << bits) < 4 * most_ids) ++bits;
    cells_.assign(std::size_t{1} << bits, Cell{0, 0});
    table_ = Table{cells_.data(), (std::uint32_t{1} << bits) - 1, 32 - bits};
    count_ = 0;
  }
  std::int32_t enter(std::int32_t id) {
    Cell& cell = cells_[table_.place_of(id)];
    if (cell.number == 0) cell = Cell{id, ++count_};
    return cell.number;
  }
  std::int32_t count() const { return count_; }
  const Table& table() const { return table_; }

 private:
  std::vector<Cell> cells_;
  Table table_{};
  std::int32_t count_ = 0;
};

// What one thread works with.
class Counter {
 public:
  // Numbers the ids of queries order[0 .. count).
  void take_queries(const IdSets& queries, const std::int64_t* order, std::int64_t count) {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < count; ++i) most += length_of(queries, order[i]);
    numbering_.start(most);
    rows_.clear();
    offsets_.assign(1, 0);
    seen_in_.assign(static_cast<std::size_t>(most) + 1, -1);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t* ids = ids_of(queries, order[i]);
      for (std::int64_t t = 0; t < length_of(queries, order[i]); ++t) {
        const std::int32_t number = numbering_.enter(ids[t]);
        std::int64_t& seen = seen_in_[static_cast<std::size_t>(number)];
        if (seen == i) continue;
        seen = i;
        rows_.push_back(number);
      }
      offsets_.push_back(static_cast<std::int64_t>(rows_.size()));
    }
    marks_.assign(static_cast<std::size_t>(numbering_.count()) + 1, MarkRow{});
  }

  // Fills out[i][at + lane] with the share of query i and key begin + lane.
  void count(const OpTable& table, const IdSets& keys, std::int64_t begin, std::int64_t end, const double* key_sizes, double* const* out,
             std::int64_t at) {
    mark(keys, begin, end);
    double sizes[kOverlapLanes] = {};
    if (key_sizes != nullptr) std::copy(key_sizes + begin, key_sizes + end, sizes);
    table.token_overlap(OverlapTask{marks_.data()->lanes, rows_.data(), offsets_.data(), static_cast<std::int64_t>(offsets_.size()) - 1,
                                    key_sizes != nullptr ? sizes : nullptr, end - begin, out, at});
    unmark();
  }

 private:
  void mark(const IdSets& keys, std::int64_t begin, std::int64_t end) {
    marked_.resize(static_cast<std::size_t>(keys.offsets[end] - keys.offsets[begin]));
    // Copies, because a mark is a byte, and bytes may alias whatever is read through `this`.
    const Numbering::Table table = numbering_.table();
    MarkRow* const marks = marks_.data();
    std::int32_t* marked = marked_.data();
    for (std::int64_t key = begin; key < end; ++key) {
      const std::int32_t* ids = ids_of(keys, key);
      const std::int64_t length = length_of(keys, key);
      for (std::int64_t t = 0; t < length; ++t) {
        const std::int32_t row = table.find(ids[t]);
        marks[row].lanes[key - begin] = 1;
        *marked++ = row;
      }
    }
  }

  void unmark() {
    if (marked_.size() >= marks_.size()) {
      std::fill(marks_.begin(), marks_.end(), MarkRow{});
    } else {
      for (const std::int32_t row : marked_) marks_[static_cast<std::size_t>(row)] = MarkRow{};
    }
  }

  Numbering numbering_;
  std::vector<std::int64_t> seen_in_;  // the last query that held an id, by its number
  std::vector<std::int32_t> rows_;     // the different ids of each query, by number
  std::vector<std::int64_t> offsets_;
  std::vector<MarkRow> marks_;         // row 0 is for ids of no query; nobody reads it
  std::vector<std::int32_t> marked_;  // rows with marks, perhaps repeated
};

// Rows order[first .. first + count) of the plan against keys begin .. end of a segment that starts at segment_begin.
struct OverlapJob {
  std::int64_t first;
  std::int64_t count;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t segment_begin;
};

std::vector<OverlapJob> cut(const QueryPlan& plan, const IdSets& queries) {
  std::vector<OverlapJob> jobs;
  for (const QueryBlock& block : plan.blocks) {
    std::int64_t first = block.first;
    while (first < block.first + block.count) {
      std::int64_t count = 0, ids = 0;
      do {
        ids += length_of(queries, plan.order[static_cast<std::size_t>(first + count++)]);
      } while (first + count < block.first + block.count && ids < kIdsAtOnce);
      for (std::int64_t begin = block.begin; begin < block.end; begin += kKeysAtOnce) {
        jobs.push_back(OverlapJob{first, count, begin, std::min(begin + kKeysAtOnce, block.end), block.begin});
      }
      first += count;
    }
  }
  return jobs;
}

}  // namespace

Report token_overlap(const IdSets& queries, const IdSets& keys, const Segments& segments, bool dice, const std::int64_t* out_offsets,
                     double* out, const RunOptions& run) {
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  const QueryPlan plan = plan_queries(queries.count, keys.count, 1, segments, kQueriesAtOnce);
  const std::vector<OverlapJob> jobs = cut(plan, queries);
  // Marking an id or writing a share costs about as much as a few multiplications.
  const double key_ids = keys.count > 0 ? static_cast<double>(keys.offsets[keys.count] - keys.offsets[0]) : 0.0;
  const int threads = thread_count(run.threads, 4.0 * (plan.work + key_ids));

  std::vector<double> sizes(dice ? static_cast<std::size_t>(keys.count) : 0);
  std::vector<std::vector<std::int32_t>> sorted(static_cast<std::size_t>(threads));
  const std::int64_t pieces = dice ? (keys.count + kKeysAtOnce - 1) / kKeysAtOnce : 0;
  parallel_for(pieces, threads, [&](int worker, std::int64_t piece) {
    const std::int64_t end = std::min((piece + 1) * kKeysAtOnce, keys.count);
    for (std::int64_t key = piece * kKeysAtOnce; key < end; ++key) {
      const std::int64_t distinct = distinct_ids(ids_of(keys, key), length_of(keys, key), sorted[static_cast<std::size_t>(worker)]);
      sizes[static_cast<std::size_t>(key)] = static_cast<double>(distinct);
    }
  });

  std::vector<Counter> counters(static_cast<std::size_t>(threads));
  parallel_for(static_cast<std::int64_t>(jobs.size()), threads, [&](int worker, std::int64_t index) {
    const OverlapJob& job = jobs[static_cast<std::size_t>(index)];
    Counter& counter = counters[static_cast<std::size_t>(worker)];
    const std::int64_t* order = plan.order.data() + job.first;
    counter.take_queries(queries, order, job.count);
    std::vector<double*> rows(static_cast<std::size_t>(job.count));
    for (std::int64_t i = 0; i < job.count; ++i) rows[static_cast<std::size_t>(i)] = out + out_offsets[order[i]];
    for (std::int64_t begin = job.begin; begin < job.end; begin += kOverlapLanes) {
      const std::int64_t end = std::min<std::int64_t>(begin + kOverlapLanes, job.end);
      counter.count(table, keys, begin, end, dice ? sizes.data() : nullptr, rows.data(), begin - job.segment_begin);
    }
  });
  return report;
}

}  // namespace prismem
