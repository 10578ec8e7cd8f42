// Calls of every kernel in the emulator, for a build with sanitizers: each array ends where its last element ends, so that an access
// beyond it is seen. Values are whole numbers, for which every order of additions gives the same bits as the plain loops here.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "prismem/cuda.h"

extern "C" void prismem_emulator_configure(std::uint64_t seed, int removed_sync, const void* watched, std::uint64_t watched_bytes);

namespace {

std::mt19937 generator(1);
int checks = 0;

int below(int limit) { return static_cast<int>(generator() % static_cast<unsigned>(limit)); }

void require(bool condition, const char* what) {
  ++checks;
  if (condition) return;
  std::fprintf(stderr, "wrong: %s (%s)\n", what, prismem_cuda_message());
  std::exit(1);
}

std::uint16_t half_bits(int value) {  // of -8 to 8
  if (value == 0) return 0;
  const int size = std::abs(value), exponent = size >= 8 ? 3 : size >= 4 ? 2 : size >= 2 ? 1 : 0;
  return static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) | (15 + exponent) << 10 | (size << (10 - exponent) & 0x3ff));
}
std::uint16_t bfloat16_bits(int value) {
  const auto number = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &number, 4);
  return static_cast<std::uint16_t>(bits >> 16);
}

struct Matrix {
  std::vector<int> values;
  std::vector<unsigned char> memory;
  prismem_cuda_rows rows{};

  Matrix(std::int64_t count, std::int64_t dim, int kind, int padding) {
    const std::size_t size = kind == PRISMEM_CUDA_FLOAT32 ? 4 : 2;
    rows.count = count;
    rows.dim = dim;
    rows.stride = dim + padding;
    rows.kind = kind;
    values.resize(static_cast<std::size_t>(count * dim));
    memory.resize(count == 0 ? 0 : static_cast<std::size_t>((count - 1) * rows.stride + dim) * size);
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t i = 0; i < dim; ++i) {
        const int value = below(9) - 4;
        values[static_cast<std::size_t>(row * dim + i)] = value;
        unsigned char* at = memory.data() + static_cast<std::size_t>(row * rows.stride + i) * size;
        const auto number = static_cast<float>(value);
        const std::uint16_t bits = kind == PRISMEM_CUDA_FLOAT16 ? half_bits(value) : bfloat16_bits(value);
        if (size == 4)
          std::memcpy(at, &number, 4);
        else
          std::memcpy(at, &bits, 2);
      }
    }
    rows.data = memory.data();
  }
  float product(std::int64_t row, const Matrix& other, std::int64_t other_row) const {
    int sum = 0;
    for (std::int64_t i = 0; i < rows.dim; ++i)
      sum += values[static_cast<std::size_t>(row * rows.dim + i)] * other.values[static_cast<std::size_t>(other_row * rows.dim + i)];
    return static_cast<float>(sum);
  }
};

struct Call {
  Matrix queries, keys;
  std::vector<std::int64_t> ranges, groups, table;
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> flag{std::numeric_limits<std::int64_t>::max()};
  std::vector<unsigned char> workspace;
  prismem_cuda_search search{};
  prismem_cuda_plan plan{};

  Call(std::int64_t m, std::int64_t n, std::int64_t dim, int query_kind, int key_kind, std::int64_t longest = 1 << 30)
      : queries(m, dim, query_kind, below(3) == 0 ? 3 : 0), keys(n, dim, key_kind, below(2) == 0 ? 5 : 0) {
    search.queries = queries.rows;
    search.keys = keys.rows;
    search.flag = flag.data();
    if (below(3) == 0 || n > longest) {
      for (int g = 0; g < 4; ++g) {
        const std::int64_t begin = below(static_cast<int>(n) + 1), length = std::min<std::int64_t>(below(static_cast<int>(n) + 1), longest);
        ranges.insert(ranges.end(), {begin, std::min(n, begin + length)});
      }
      for (std::int64_t q = 0; q < m; ++q) groups.push_back(below(4));
      search.ranges = ranges.data();
      search.segments = 4;
      search.groups = groups.data();
    }
    if (below(2) == 0) {
      mask.resize(static_cast<std::size_t>(m * n));
      for (std::uint8_t& one : mask) one = below(3) != 0;
      search.mask = mask.data();
      search.mask_query_stride = n;
      search.mask_key_stride = 1;
    }
    search.has_least = below(3) == 0;
    search.least = -6.0f;
  }
  std::int64_t begin(std::int64_t q) const {
    return ranges.empty() ? 0 : ranges[static_cast<std::size_t>(2 * groups[static_cast<std::size_t>(q)])];
  }
  std::int64_t end(std::int64_t q) const {
    return ranges.empty() ? keys.rows.count : ranges[static_cast<std::size_t>(2 * groups[static_cast<std::size_t>(q)] + 1)];
  }
  bool counts(std::int64_t q, std::int64_t key, float score) const {
    return (mask.empty() || mask[static_cast<std::size_t>(q * keys.rows.count + key)] != 0) &&
           !(search.has_least != 0 && score < search.least);
  }
  void make_plan(int op, int path, std::int64_t span) {
    plan = prismem_cuda_plan{};
    plan.path = path;
    plan.span = span;
    require(prismem_cuda_plan_search(&search, op, &plan) == 0, "a plan");
    table.resize(static_cast<std::size_t>(plan.table_length));
    require(prismem_cuda_fill_table(&search, &plan, table.data()) == 0, "a table");
    workspace.assign(static_cast<std::size_t>(plan.workspace_bytes), 0xcd);
  }
  const std::int64_t* table_or_null() const { return table.empty() ? nullptr : table.data(); }
  void* workspace_or_null() { return workspace.empty() ? nullptr : workspace.data(); }
};

// The hits of a query: the best, ties by the lowest key.
std::vector<std::pair<float, std::int64_t>> best_of(const Call& call, std::int64_t q, std::int64_t k) {
  std::vector<std::pair<float, std::int64_t>> found;
  for (std::int64_t key = call.begin(q); key < call.end(q); ++key) {
    const float score = call.queries.product(q, call.keys, key);
    if (call.counts(q, key, score)) found.emplace_back(-score, key - call.begin(q));
  }
  std::sort(found.begin(), found.end());
  if (static_cast<std::int64_t>(found.size()) > k) found.resize(static_cast<std::size_t>(k));
  return found;
}

bool tiled(int path) { return path == PRISMEM_CUDA_PATH_TILES || path == PRISMEM_CUDA_PATH_TILES_SMALL; }

void searches(int query_kind, int key_kind, int path) {
  if (tiled(path) && (query_kind != key_kind || key_kind == PRISMEM_CUDA_FLOAT32)) return;
  const std::int64_t dims[] = {1, 7, 8, 33, 64, 100};
  Call call(1 + below(20), below(4) == 0 ? below(3) : 50 + below(500), dims[below(6)], query_kind, key_kind);
  const std::int64_t m = call.queries.rows.count, n = call.keys.rows.count;
  const std::int64_t span = below(2) == 0 ? 0 : 20 + below(200);
  call.search.k = path == PRISMEM_CUDA_PATH_TILES ? 1 + below(64) : below(3) == 0 ? 300 : 1 + below(40);
  call.make_plan(PRISMEM_CUDA_TOP_K, path, span);
  const std::int64_t k = call.search.k;
  std::vector<float> scores(static_cast<std::size_t>(m * k));
  std::vector<std::int64_t> indices(static_cast<std::size_t>(m * k)), counts(static_cast<std::size_t>(m));
  {
    require(prismem_cuda_top_k(&call.search, &call.plan, call.table_or_null(), call.workspace_or_null(), scores.data(), indices.data(),
                               counts.data()) == 0,
            "top_k");
    for (std::int64_t q = 0; q < m; ++q) {
      const auto expected = best_of(call, q, k);
      require(counts[static_cast<std::size_t>(q)] == static_cast<std::int64_t>(expected.size()), "counts of top_k");
      for (std::int64_t i = 0; i < k; ++i) {
        const bool hit = i < static_cast<std::int64_t>(expected.size());
        require(indices[static_cast<std::size_t>(q * k + i)] == (hit ? expected[static_cast<std::size_t>(i)].second : -1),
                "indices of top_k");
        require(hit ? scores[static_cast<std::size_t>(q * k + i)] == -expected[static_cast<std::size_t>(i)].first
                    : std::isinf(scores[static_cast<std::size_t>(q * k + i)]),
                "scores of top_k");
      }
    }
  }
  call.make_plan(PRISMEM_CUDA_SEGMENT_MAX_SIMILARITY, path, span);
  std::vector<float> values(static_cast<std::size_t>(m));
  require(prismem_cuda_segment_max_similarity(&call.search, &call.plan, call.table_or_null(), call.workspace_or_null(), values.data(),
                                              counts.data()) == 0,
          "maximum");
  for (std::int64_t q = 0; q < m; ++q) {
    const auto expected = best_of(call, q, 1);
    require(counts[static_cast<std::size_t>(q)] == (expected.empty() ? -1 : expected[0].second), "index of the maximum");
    require(values[static_cast<std::size_t>(q)] == (expected.empty() ? 0.0f : -expected[0].first), "value of the maximum");
  }
  if (path != PRISMEM_CUDA_PATH_ROWS_BATCH && path != PRISMEM_CUDA_PATH_TILES) return;
  call.search.ranges = nullptr;
  call.search.groups = nullptr;
  call.make_plan(PRISMEM_CUDA_SIMILARITY, path, span);
  std::vector<float> all(static_cast<std::size_t>(m * n));
  require(prismem_cuda_similarity(&call.search, &call.plan, call.table_or_null(), call.workspace_or_null(), all.data()) == 0, "similarity");
  for (std::int64_t q = 0; q < m; ++q) {
    for (std::int64_t key = 0; key < n; ++key)
      require(all[static_cast<std::size_t>(q * n + key)] == call.queries.product(q, call.keys, key), "a score");
  }
  require(call.flag[0] == std::numeric_limits<std::int64_t>::max(), "nothing is noted");
}

void selections(int query_kind, int key_kind, int path) {
  Call call(1 + below(3), 1 + below(300), 1 + below(70), query_kind, key_kind, 200);
  const std::int64_t m = call.queries.rows.count, k = call.search.k = 1 + below(20);
  if (call.search.ranges == nullptr && call.keys.rows.count > 256) path = PRISMEM_CUDA_PATH_STEPS;
  call.make_plan(PRISMEM_CUDA_MMR_SELECT, path, below(2) == 0 ? 0 : 1 + below(90));
  std::vector<float> scores(static_cast<std::size_t>(m * k));
  std::vector<std::int64_t> indices(static_cast<std::size_t>(m * k)), counts(static_cast<std::size_t>(m));
  require(prismem_cuda_mmr_select(&call.search, &call.plan, 0.5, call.table_or_null(), call.workspace_or_null(), indices.data(),
                                  scores.data(), counts.data()) == 0,
          "mmr_select");
  for (std::int64_t q = 0; q < m; ++q) {
    std::vector<std::int64_t> picks;
    for (std::int64_t step = 0; step < k; ++step) {
      std::int64_t best = -1;
      double best_value = 0;
      for (std::int64_t key = call.begin(q); key < call.end(q); ++key) {
        const float relevance = call.queries.product(q, call.keys, key);
        if (!call.counts(q, key, relevance)) continue;
        double penalty = -1e9;
        bool left = true;
        for (const std::int64_t pick : picks) {
          left = left && pick != key;
          penalty = std::max<double>(penalty, call.keys.product(key, call.keys, pick));
        }
        const double value = picks.empty() ? relevance : 0.5 * relevance - 0.5 * penalty;
        if (left && (best < 0 || value > best_value)) {
          best = key;
          best_value = value;
        }
      }
      const auto cell = static_cast<std::size_t>(q * k + step);
      require(indices[cell] == (best < 0 ? -1 : best - call.begin(q)), "a pick");
      if (best < 0) continue;
      require(scores[cell] == static_cast<float>(step == 0 ? 0.5 * best_value : best_value), "the score of a pick");
      picks.push_back(best);
    }
    require(counts[static_cast<std::size_t>(q)] == static_cast<std::int64_t>(picks.size()), "the number of picks");
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 3;
  for (int round = 0; round < rounds; ++round) {
    generator.seed(static_cast<unsigned>(round));
    prismem_emulator_configure(static_cast<std::uint64_t>(round) + 1, -1, nullptr, 0);
    for (int query_kind = 0; query_kind < 3; ++query_kind) {
      for (int key_kind = 0; key_kind < 3; ++key_kind) {
        for (int path = PRISMEM_CUDA_PATH_ROWS; path <= PRISMEM_CUDA_PATH_TILES; ++path) searches(query_kind, key_kind, path);
        for (const int path : {PRISMEM_CUDA_PATH_POOL, PRISMEM_CUDA_PATH_STEPS}) selections(query_kind, key_kind, path);
      }
    }
  }
  std::printf("%d checks\n", checks);
}
