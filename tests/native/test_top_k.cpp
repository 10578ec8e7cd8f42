#include <algorithm>
#include <limits>
#include <tuple>

#include "matrices.hpp"
#include "prismem/ops.hpp"
#include "testing.hpp"

namespace prismem {
namespace {

using testing::Matrix;

struct Hits {
  std::vector<float> scores;
  std::vector<std::int64_t> indices;
  std::vector<std::int64_t> counts;
  bool operator==(const Hits& other) const { return scores == other.scores && indices == other.indices && counts == other.counts; }
};

Hits found(const Rows& queries, const Rows& keys, const Segments& segments, const Mask& mask, const TopKOptions& options, std::int64_t width,
           const RunOptions& run) {
  Hits hits{std::vector<float>(static_cast<std::size_t>(queries.count * width)),
            std::vector<std::int64_t>(static_cast<std::size_t>(queries.count * width)),
            std::vector<std::int64_t>(static_cast<std::size_t>(queries.count))};
  top_k(queries, keys, segments, mask, options, width, hits.scores.data(), hits.indices.data(), hits.counts.data(), run);
  return hits;
}

// The definition, for inner products that are exact.
Hits expected(const Matrix& queries, const Matrix& keys, std::int64_t begin, std::int64_t end, const std::vector<std::uint8_t>& mask,
              const TopKOptions& options, std::int64_t width) {
  Hits hits{std::vector<float>(static_cast<std::size_t>(queries.count() * width), -std::numeric_limits<float>::infinity()),
            std::vector<std::int64_t>(static_cast<std::size_t>(queries.count() * width), -1), {}};
  for (std::int64_t query = 0; query < queries.count(); ++query) {
    std::vector<std::pair<double, std::int64_t>> order;
    for (std::int64_t key = begin; key < end; ++key) {
      const double score = queries.dot(query, keys, key);
      if (!mask.empty() && mask[static_cast<std::size_t>(key)] == 0) continue;
      if (options.has_min_score && score < static_cast<double>(options.min_score)) continue;
      order.emplace_back(-score, key - begin);
    }
    std::sort(order.begin(), order.end());
    const std::int64_t count = std::min<std::int64_t>(options.k, static_cast<std::int64_t>(order.size()));
    for (std::int64_t i = 0; i < count; ++i) {
      hits.scores[static_cast<std::size_t>(query * width + i)] = static_cast<float>(-order[static_cast<std::size_t>(i)].first);
      hits.indices[static_cast<std::size_t>(query * width + i)] = order[static_cast<std::size_t>(i)].second;
    }
    hits.counts.push_back(count);
  }
  return hits;
}

constexpr Segments kWhole{nullptr, 0, nullptr};
constexpr Mask kAll{nullptr, 0, 0};

}  // namespace

PRISMEM_TEST(top_k_is_its_definition_on_every_set_kind_and_thread_count) {
  const std::tuple<int, int, int, int> shapes[] = {{1, 1, 1, 1},    {1, 300, 7, 3},   {3, 17, 8, 5},     {2, 33, 31, 40},
                                                   {50, 130, 65, 9}, {5, 2000, 16, 11}, {1, 9000, 24, 10}, {70, 600, 97, 1}};
  for (const Kind kind : {Kind::f32, Kind::f16, Kind::bf16}) {
    for (const auto& [num_queries, num_keys, dim, k] : shapes) {
      const Matrix queries(num_queries, dim, kind, 1);
      const Matrix keys(num_keys, dim, kind, 2);
      TopKOptions options;
      options.k = k;
      const Hits wanted = expected(queries, keys, 0, num_keys, {}, options, std::min(k, num_keys));
      for (const std::string& isa : testing::isas()) {
        for (const int threads : testing::thread_counts()) {
          const Hits hits = found(queries.rows(), keys.rows(), kWhole, kAll, options, std::min(k, num_keys), RunOptions{isa, threads});
          PRISMEM_CHECK(hits == wanted);
        }
      }
    }
  }
}

PRISMEM_TEST(top_k_filters_before_it_selects) {
  const Matrix queries(4, 19, Kind::f32, 3);
  const Matrix keys(700, 19, Kind::f32, 4);
  std::vector<std::uint8_t> mask(700);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 5 == 0;
  TopKOptions options;
  options.k = 20;
  options.has_min_score = true;
  options.min_score = 1.25f;
  const Hits wanted = expected(queries, keys, 0, 700, mask, options, 20);
  for (const std::string& isa : testing::isas()) {
    PRISMEM_CHECK(found(queries.rows(), keys.rows(), kWhole, Mask{mask.data(), 0, 1}, options, 20, RunOptions{isa, 2}) == wanted);
  }
}

PRISMEM_TEST(top_k_of_reversed_and_of_shared_rows) {
  const Matrix queries(3, 21, Kind::f32, 5);
  const Matrix keys(400, 21, Kind::f32, 6);
  TopKOptions options;
  options.k = 400;
  for (const std::string& isa : testing::isas()) {
    const RunOptions run{isa, 2};
    const Hits forward = found(queries.rows(), keys.rows(), kWhole, kAll, options, 400, run);
    const Hits backward = found(queries.rows(), keys.reversed(), kWhole, kAll, options, 400, run);
    PRISMEM_CHECK(forward.scores == backward.scores);
    Rows same = keys.rows();
    same.stride = 0;
    const Hits ties = found(queries.rows(), same, kWhole, kAll, options, 400, run);
    for (std::int64_t i = 0; i < 400; ++i) PRISMEM_EQUAL(ties.indices[static_cast<std::size_t>(i)], i);
  }
}

PRISMEM_TEST(top_k_of_segments) {
  const Matrix queries(3, 12, Kind::f32, 7);
  const Matrix keys(200, 12, Kind::f32, 8);
  const std::int64_t ranges[] = {0, 50, 50, 50, 50, 200};
  const std::int64_t groups[] = {2, 1, 2};
  TopKOptions options;
  options.k = 6;
  for (const std::string& isa : testing::isas()) {
    const Hits hits = found(queries.rows(), keys.rows(), Segments{ranges, 3, groups}, kAll, options, 6, RunOptions{isa, 1});
    const Hits wanted = expected(queries, keys, 50, 200, {}, options, 6);
    for (const std::int64_t query : {0, 2}) {
      PRISMEM_EQUAL(hits.counts[static_cast<std::size_t>(query)], 6);
      for (std::int64_t i = 6 * query; i < 6 * query + 6; ++i) PRISMEM_EQUAL(hits.indices[static_cast<std::size_t>(i)], wanted.indices[static_cast<std::size_t>(i)]);
    }
    PRISMEM_EQUAL(hits.counts[1], 0);
    PRISMEM_EQUAL(hits.indices[6], -1);
  }
}

PRISMEM_TEST(top_k_of_nothing) {
  for (const std::string& isa : testing::isas()) {
    const Matrix some(3, 5, Kind::f32, 9);
    const Matrix none(0, 5, Kind::f32, 9);
    const Matrix flat(3, 0, Kind::f32, 9);
    TopKOptions options;
    const RunOptions run{isa, 2};
    PRISMEM_CHECK(found(some.rows(), some.rows(), kWhole, kAll, options, 0, run).counts == std::vector<std::int64_t>({0, 0, 0}));
    options.k = 4;
    PRISMEM_CHECK(found(some.rows(), none.rows(), kWhole, kAll, options, 0, run).counts == std::vector<std::int64_t>({0, 0, 0}));
    PRISMEM_CHECK(found(none.rows(), some.rows(), kWhole, kAll, options, 3, run).counts.empty());
    PRISMEM_CHECK(found(flat.rows(), flat.rows(), kWhole, kAll, options, 3, run).counts == std::vector<std::int64_t>({3, 3, 3}));
  }
}

}  // namespace prismem
