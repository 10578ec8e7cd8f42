#include "codes/code_search.hpp"

#include <algorithm>
#include <limits>
#include <memory>

#include "simd/dispatch.hpp"
#include "support/huge_buffer.hpp"
#include "support/parallel.hpp"

namespace prismem {
namespace {

constexpr std::int64_t kFewestRows = 1024;      // below this the rows are scored before codes have been prepared
constexpr std::int64_t kFewestTileRows = 4096;      // the same for batches,
constexpr std::int64_t kFewestTileRowsOfFew = 16384;  // and for batches of few queries, whose tiles are not filled
constexpr std::int64_t kFewQueries = 64;
constexpr std::int64_t kRowsPerHit = 64;        // with more hits than this, too many rows pass
constexpr std::int64_t kMostQueries = 4096;     // prepared at a time
constexpr std::int64_t kFewestSampleRows = 512;
constexpr std::int64_t kMostSampleRows = 2048;
constexpr std::int64_t kRowsPerAllowed = 32;    // a mask that lets fewer pass leaves little to read
constexpr std::int64_t kFewestTileQueries = 8;  // fewer go through the rows one by one
constexpr double kMostScored = 0.4;             // share of rows that may have to be scored before plain search is faster
constexpr double kMostScoredBatched = 0.02;
constexpr double kCodeSpeed = 8.0;              // codes are searched about this many times as fast as rows

std::int64_t count_allowed(const Mask& mask, std::int64_t count) {
  std::int64_t allowed = 0;
  for (std::int64_t i = 0; i < count; ++i) allowed += mask.data[i * mask.key_stride] != 0;
  return allowed;
}

bool is_coded(double norm, bool normalize) { return normalize ? norm <= std::numeric_limits<double>::max() : norm <= kMaxCodeNorm; }

bool is_batched(const Rows& queries) { return queries.count >= kFewestTileQueries; }

std::int64_t fewest_rows(const Rows& queries) {
  if (!is_batched(queries)) return kFewestRows;
  return queries.count < kFewQueries ? kFewestTileRowsOfFew : kFewestTileRows;
}

// Codes take part only if they are of this metric, and if there is enough to gain.
bool worth_trying(const Rows& queries, const Rows& keys, const CodeView& view, const Mask& mask, const TopKOptions& options) {
  if (view.normalize != options.normalize || !view.regular) return false;
  if (queries.count == 0 || options.k == 0 || keys.count < fewest_rows(queries) || options.k > keys.count / kRowsPerHit) return false;
  const bool shared_mask = mask.data != nullptr && mask.query_stride == 0;
  return !shared_mask || count_allowed(mask, keys.count) >= keys.count / kRowsPerAllowed;
}

// One search: its queries, prepared, and the heaps and scratch memory of its threads.
class CodedSearch {
 public:
  CodedSearch(const OpTable& table, const Rows& queries, const Rows& keys, const CodeView& view, const Mask& mask, const TopKOptions& options,
              int threads)
      : table_(table),
        queries_(queries),
        options_(options),
        whole_{keys, view, mask, 0, code_blocks(keys.count)},
        threads_(threads),
        num_queries_(static_cast<std::size_t>(queries.count)),
        groups_(code_groups(queries.dim)),
        low_bytes_(low_row_bytes(queries.dim)),
        batched_(is_batched(queries)),
        rows_(new float[num_queries_ * static_cast<std::size_t>(8 * groups_)]),
        codes_(new std::int8_t[num_queries_ * static_cast<std::size_t>(2 * low_bytes_)]),
        candidates_(new CodeCandidate[static_cast<std::size_t>(threads * kMaxCandidates)]),
        waiting_(new CodeCandidate[static_cast<std::size_t>(threads * kMaxWaiting) * num_queries_]),
        prepared_(num_queries_) {
    if (!batched_) return;
    const std::size_t tiles = (num_queries_ + static_cast<std::size_t>(table.codes.tile_queries) - 1) / static_cast<std::size_t>(table.codes.tile_queries);
    tiles_.resize(tiles);
    packed_.reset(new std::int8_t[tiles * tile_bytes()]);
    lines_.resize(static_cast<std::size_t>(threads) * line_bytes());
  }

  // Heaps of the first part of the rows, in the caller's arrays.
  void add_heaps(float* scores, std::int64_t* indices, std::int64_t width) {
    for (std::int64_t id = 0; id < queries_.count; ++id) heaps_.push_back(Heap{scores + id * width, indices + id * width, options_.k, 0, -1});
  }

  // Codes of all queries; thresholds from a sample of the rows. False where plain search is needed or will be faster.
  bool prepare() {
    const float lowest = options_.has_min_score ? options_.min_score : -std::numeric_limits<float>::infinity();
    const std::int64_t step = sample_step();
    const std::int64_t per_job = table_.codes.tile_queries;
    const std::int64_t jobs = (queries_.count + per_job - 1) / per_job;
    std::vector<double> scored(num_queries_, 0.0);
    std::vector<std::int8_t> query_codes(static_cast<std::size_t>(threads_ * 8 * groups_));
    const auto prepare_job = [&](int worker, std::int64_t job) {
      std::int8_t* own_codes = query_codes.data() + worker * 8 * groups_;
      const std::int64_t begin = job * per_job;
      const std::int64_t end = std::min(begin + per_job, queries_.count);
      for (std::int64_t id = begin; id < end; ++id) {
        CodeSearchQuery& query = prepared_[static_cast<std::size_t>(id)];
        float* row = rows_.get() + id * 8 * groups_;
        std::int8_t* low = codes_.get() + id * 2 * low_bytes_;
        query = CodeSearchQuery{row, CodedQuery{low, low + low_bytes_, 0, BoundTerms{}, 0.0}, id, lowest, 0, nullptr, 0};
        table_.codes.prepare(queries_, id, whole_.view, row, own_codes, query.coded);
        if (!is_coded(query.coded.norm, options_.normalize)) return;
        scored[static_cast<std::size_t>(id)] =
            table_.codes.sample(whole_, step, batched_, query, heaps_[static_cast<std::size_t>(id)], scratch_of(worker));
      }
      if (!batched_) return;
      CodeTile& tile = tiles_[static_cast<std::size_t>(job)];
      tile.packed = packed_.get() + static_cast<std::size_t>(job) * tile_bytes();
      table_.codes.prepare_tile(whole_.view, &prepared_[static_cast<std::size_t>(begin)], end - begin, own_codes, tile);
    };
    const auto pays = [&](std::int64_t count) {
      double all = 0.0;
      for (std::int64_t id = 0; id < count; ++id) {
        if (!is_coded(prepared_[static_cast<std::size_t>(id)].coded.norm, options_.normalize)) return false;
        all += scored[static_cast<std::size_t>(id)];
      }
      return all <= (batched_ ? kMostScoredBatched : kMostScored) * static_cast<double>(count);
    };
    // The first queries speak for the others, so that little is lost where codes prove nothing.
    prepare_job(0, 0);
    if (!pays(std::min(per_job, queries_.count))) return false;
    parallel_for(jobs - 1, threads_, [&](int worker, std::int64_t job) { prepare_job(worker, job + 1); });
    return pays(queries_.count);
  }

  // Each thread takes a range of rows, with thresholds and heaps of its own; all hits end in the heaps of the caller.
  void run() {
    const std::size_t others = static_cast<std::size_t>(threads_ - 1) * num_queries_;
    const std::size_t k = static_cast<std::size_t>(options_.k);
    const std::unique_ptr<float[]> scores(new float[others * k]);
    const std::unique_ptr<std::int64_t[]> indices(new std::int64_t[others * k]);
    for (std::size_t i = 0; i < others; ++i) heaps_.push_back(Heap{scores.get() + i * k, indices.get() + i * k, options_.k, 0, -1});
    const std::int64_t share = (whole_.block_end + threads_ - 1) / threads_;
    parallel_for(threads_, threads_, [&](int worker, std::int64_t part) {
      CodeSearchTask task = whole_;
      task.block_begin = std::min(part * share, whole_.block_end);
      task.block_end = std::min(task.block_begin + share, whole_.block_end);
      std::vector<CodeSearchQuery> own = prepared_;
      for (std::size_t id = 0; id < num_queries_; ++id) {
        own[id].waiting = waiting_.get() + (static_cast<std::size_t>(part) * num_queries_ + id) * static_cast<std::size_t>(kMaxWaiting);
      }
      Heap* heaps = heaps_.data() + static_cast<std::size_t>(part) * num_queries_;
      if (batched_) {
        table_.codes.tiles(task, tiles_.data(), own.data(), queries_.count, heaps, scratch_of(worker));
      } else {
        table_.codes.stream(task, own.data(), queries_.count, heaps, scratch_of(worker));
      }
    });
    for (std::size_t other = num_queries_; other < heaps_.size(); ++other) table_.top_k_merge(heaps_[other % num_queries_], heaps_[other]);
    heaps_.resize(num_queries_);
    for (Heap& heap : heaps_) table_.top_k_finish(heap);
  }

  const std::vector<Heap>& heaps() const { return heaps_; }

 private:
  // Every so many blocks make a sample that costs little beside the search and is larger than what it is to find.
  std::int64_t sample_step() const {
    const std::int64_t rows = whole_.block_end * kCodeRows;
    const std::int64_t wanted = std::max(batched_ ? kFewestSampleRows : rows / 32, 4 * options_.k);
    return std::max<std::int64_t>(1, rows / std::clamp(wanted, kFewestSampleRows, kMostSampleRows));
  }

  std::size_t tile_bytes() const { return static_cast<std::size_t>(8 * groups_ * table_.codes.tile_queries); }
  std::size_t line_bytes() const { return static_cast<std::size_t>(kTileRunBlocks * 128 * groups_); }

  CodeSearchScratch scratch_of(int worker) {
    unsigned char* lines = batched_ ? lines_.data() + static_cast<std::size_t>(worker) * line_bytes() : nullptr;
    return CodeSearchScratch{candidates_.get() + worker * kMaxCandidates, lines};
  }

  const OpTable& table_;
  const Rows& queries_;
  const TopKOptions& options_;
  const CodeSearchTask whole_;
  const int threads_;
  const std::size_t num_queries_;
  const std::int64_t groups_;
  const std::int64_t low_bytes_;
  const bool batched_;
  std::unique_ptr<float[]> rows_;
  std::unique_ptr<std::int8_t[]> codes_;
  std::unique_ptr<CodeCandidate[]> candidates_;
  std::unique_ptr<CodeCandidate[]> waiting_;
  std::unique_ptr<std::int8_t[]> packed_;
  HugeBuffer lines_;
  std::vector<CodeTile> tiles_;
  std::vector<CodeSearchQuery> prepared_;
  std::vector<Heap> heaps_;
};

// The search for at most kMostQueries queries.
Report search_some(const Rows& queries, const Rows& keys, const CodeView& view, const Mask& mask, const TopKOptions& options, std::int64_t width,
                   float* scores, std::int64_t* indices, std::int64_t* counts, const RunOptions& run) {
  if (worth_trying(queries, keys, view, mask, options)) {
    const OpTable& table = op_table(run.isa);
    const double work = static_cast<double>(queries.count) * static_cast<double>(keys.count) * static_cast<double>(queries.dim);
    CodedSearch search(table, queries, keys, view, mask, options, thread_count(run.threads, work / kCodeSpeed));
    search.add_heaps(scores, indices, width);
    if (search.prepare()) {
      search.run();
      for (std::int64_t id = 0; id < queries.count; ++id) {
        const Heap& heap = search.heaps()[static_cast<std::size_t>(id)];
        counts[id] = heap.size;
        std::fill(heap.scores + heap.size, heap.scores + width, -std::numeric_limits<float>::infinity());
        std::fill(heap.indices + heap.size, heap.indices + width, std::int64_t{-1});
      }
      Report report;
      report.isa = table.isa;
      return report;
    }
  }
  return top_k(queries, keys, Segments{nullptr, 0, nullptr}, mask, options, width, scores, indices, counts, run);
}

}  // namespace

Report coded_top_k(const Rows& queries, const Rows& keys, const CodeView& view, const Mask& mask, const TopKOptions& options,
                   std::int64_t width, float* scores, std::int64_t* indices, std::int64_t* counts, const RunOptions& run) {
  Report report;
  report.isa = op_table(run.isa).isa;
  const std::int64_t size = queries.kind == Kind::f32 ? 4 : 2;
  for (std::int64_t first = 0; first < queries.count; first += kMostQueries) {
    const Rows some{static_cast<const std::uint8_t*>(queries.data) + first * queries.stride * size, std::min(kMostQueries, queries.count - first),
                    queries.dim, queries.stride, queries.kind};
    Mask own_mask = mask;
    if (mask.data != nullptr) own_mask.data += first * mask.query_stride;
    const Report found = search_some(some, keys, view, own_mask, options, width, scores + first * width, indices + first * width, counts + first, run);
    if (found.bad_query >= 0 && report.bad_query < 0) {
      report.bad_query = first + found.bad_query;
      report.bad_key = found.bad_key;
    }
  }
  return report;
}

void code_bounds(const Rows& queries, const CodeView& view, int bits, float* out, const RunOptions& run) {
  const CodeTable& table = op_table(run.isa).codes;
  const std::int64_t groups = code_groups(view.dim);
  const std::int64_t low_bytes = low_row_bytes(view.dim);
  std::vector<float> row(static_cast<std::size_t>(8 * groups));
  std::vector<std::int8_t> scratch(static_cast<std::size_t>(8 * groups));
  std::vector<std::int8_t> query_codes(static_cast<std::size_t>(2 * low_bytes));
  std::vector<std::int8_t> packed(static_cast<std::size_t>(8 * groups * table.tile_queries));
  HugeBuffer lines(static_cast<std::size_t>(128 * groups));
  const CodeSearchTask task{queries, view, Mask{nullptr, 0, 0}, 0, code_blocks(view.count)};
  for (std::int64_t id = 0; id < queries.count; ++id) {
    float* bounds = out + id * view.count;
    CodeSearchQuery query{row.data(), CodedQuery{query_codes.data(), query_codes.data() + low_bytes, 0, BoundTerms{}, 0.0}, id, 0.0f, 0, nullptr, 0};
    table.prepare(queries, id, view, row.data(), scratch.data(), query.coded);
    if (!is_coded(query.coded.norm, view.normalize)) {
      std::fill(bounds, bounds + view.count, std::numeric_limits<float>::infinity());
      continue;
    }
    CodeTile tile{packed.data(), {}, {}};
    table.prepare_tile(view, &query, 1, scratch.data(), tile);
    table.bounds(task, query, bits, tile, CodeSearchScratch{nullptr, lines.data()}, bounds);
  }
}

}  // namespace prismem
