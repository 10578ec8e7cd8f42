#include <algorithm>
#include <cmath>

#include "matrices.hpp"
#include "prismem/ops.hpp"
#include "testing.hpp"

namespace prismem {
namespace {

using testing::Matrix;

constexpr Segments kWhole{nullptr, 0, nullptr};
constexpr Mask kAll{nullptr, 0, 0};

struct Picks {
  std::vector<std::int64_t> indices;
  std::vector<float> scores;
  std::vector<std::int64_t> counts;
  bool operator==(const Picks& other) const { return indices == other.indices && scores == other.scores && counts == other.counts; }
};

Picks picked(const Rows& queries, const Rows& keys, const MmrOptions& options, std::int64_t width, const RunOptions& run) {
  Picks picks{std::vector<std::int64_t>(static_cast<std::size_t>(queries.count * width)),
              std::vector<float>(static_cast<std::size_t>(queries.count * width)),
              std::vector<std::int64_t>(static_cast<std::size_t>(queries.count))};
  mmr_select(queries, keys, kWhole, kAll, options, width, picks.indices.data(), picks.scores.data(), picks.counts.data(), run);
  return picks;
}

// The definition, for inner products that are exact.
std::vector<std::int64_t> greedy(const Matrix& queries, std::int64_t query, const Matrix& keys, std::int64_t k, double weight) {
  std::vector<std::int64_t> picks;
  while (static_cast<std::int64_t>(picks.size()) < k) {
    std::int64_t best = -1;
    double best_score = 0.0;
    for (std::int64_t key = 0; key < keys.count(); ++key) {
      bool taken = false;
      double penalty = -1e300;
      for (const std::int64_t pick : picks) {
        taken = taken || pick == key;
        penalty = std::max(penalty, keys.dot(pick, keys, key));
      }
      if (taken) continue;
      const double relevance = queries.dot(query, keys, key);
      const double score = picks.empty() ? relevance : weight * relevance - (1.0 - weight) * penalty;
      if (best < 0 || score > best_score) {
        best = key;
        best_score = score;
      }
    }
    if (best < 0) break;
    picks.push_back(best);
  }
  return picks;
}

}  // namespace

PRISMEM_TEST(mmr_select_is_its_definition) {
  for (const Kind kind : {Kind::f32, Kind::f16, Kind::bf16}) {
    for (const int dim : {1, 8, 31, 40}) {
      const Matrix queries(3, dim, kind, 11);
      const Matrix keys(150, dim, kind, 12);
      for (const double weight : {0.0, 0.5, 1.0}) {
        MmrOptions options;
        options.k = 20;
        options.relevance_weight = weight;
        for (const std::string& isa : testing::isas()) {
          for (const int threads : testing::thread_counts()) {
            const Picks picks = picked(queries.rows(), keys.rows(), options, 20, RunOptions{isa, threads});
            for (std::int64_t query = 0; query < 3; ++query) {
              const std::vector<std::int64_t> wanted = greedy(queries, query, keys, 20, weight);
              const auto first = picks.indices.begin() + query * 20;
              PRISMEM_CHECK(std::vector<std::int64_t>(first, first + 20) == wanted);
            }
          }
        }
      }
    }
  }
}

PRISMEM_TEST(mmr_select_takes_the_whole_pool_where_k_is_larger) {
  const Matrix queries(2, 9, Kind::f32, 13);
  const Matrix keys(40, 9, Kind::f32, 14);
  MmrOptions options;
  options.k = 1000;
  options.relevance_weight = 0.3;
  options.normalize = true;
  for (const std::string& isa : testing::isas()) {
    Picks picks = picked(queries.rows(), keys.rows(), options, 40, RunOptions{isa, 1});
    for (std::int64_t query = 0; query < 2; ++query) {
      PRISMEM_EQUAL(picks.counts[static_cast<std::size_t>(query)], 40);
      std::sort(picks.indices.begin() + query * 40, picks.indices.begin() + query * 40 + 40);
      for (std::int64_t i = 0; i < 40; ++i) PRISMEM_EQUAL(picks.indices[static_cast<std::size_t>(query * 40 + i)], i);
    }
  }
}

PRISMEM_TEST(mmr_select_from_follows_the_matrix) {
  const std::int64_t count = 23;
  const Matrix keys(count, 16, Kind::f32, 15);
  const Matrix query(1, 16, Kind::f32, 16);
  std::vector<float> similarity(static_cast<std::size_t>(count * count));
  std::vector<float> relevance(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    relevance[static_cast<std::size_t>(i)] = static_cast<float>(query.dot(0, keys, i));
    for (std::int64_t j = 0; j < count; ++j) similarity[static_cast<std::size_t>(i * count + j)] = static_cast<float>(keys.dot(i, keys, j));
  }
  MmrOptions options;
  options.k = 10;
  options.relevance_weight = 0.5;
  const std::vector<std::int64_t> wanted = greedy(query, 0, keys, 10, 0.5);
  for (const std::string& isa : testing::isas()) {
    Picks picks{std::vector<std::int64_t>(10), std::vector<float>(10), std::vector<std::int64_t>(1)};
    const Rows row{relevance.data(), 1, count, count, Kind::f32};
    mmr_select_from(row, similarity.data(), 0, count, nullptr, options, 10, picks.indices.data(), picks.scores.data(), picks.counts.data(),
                    RunOptions{isa, 1});
    PRISMEM_CHECK(picks.indices == wanted);
    PRISMEM_EQUAL(picks.counts[0], 10);
  }
}

PRISMEM_TEST(segment_max_similarity_finds_the_first_of_the_largest) {
  for (const Kind kind : {Kind::f32, Kind::f16, Kind::bf16}) {
    const Matrix evidence(5, 37, kind, 17);
    const Matrix items(300, 37, kind, 18);
    const std::int64_t ranges[] = {0, 100, 100, 100, 7, 300};
    const std::int64_t groups[] = {0, 1, 2, 2, 0};
    for (const std::string& isa : testing::isas()) {
      for (const int threads : testing::thread_counts()) {
        std::vector<float> values(5);
        std::vector<std::int64_t> indices(5);
        segment_max_similarity(evidence.rows(), items.rows(), Segments{ranges, 3, groups}, false, values.data(), indices.data(),
                               RunOptions{isa, threads});
        for (std::int64_t row = 0; row < 5; ++row) {
          const std::int64_t begin = ranges[2 * groups[row]];
          const std::int64_t end = ranges[2 * groups[row] + 1];
          double best = 0.0;
          std::int64_t where = -1;
          for (std::int64_t item = begin; item < end; ++item) {
            const double score = evidence.dot(row, items, item);
            if (where < 0 || score > best) {
              best = score;
              where = item - begin;
            }
          }
          PRISMEM_EQUAL(values[static_cast<std::size_t>(row)], static_cast<float>(best));
          PRISMEM_EQUAL(indices[static_cast<std::size_t>(row)], where);
        }
      }
    }
  }
}

PRISMEM_TEST(similarity_and_segment_mean) {
  const Matrix left(3, 45, Kind::f32, 19);
  const Matrix right(400, 45, Kind::bf16, 20);
  const double values[] = {1.0, 2.0, 6.0, 0.5};
  const std::int64_t offsets[] = {0, 3, 3, 4};
  for (const std::string& isa : testing::isas()) {
    std::vector<float> scores(1200);
    similarity(left.rows(), right.rows(), false, scores.data(), RunOptions{isa, 2});
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 400; ++j) PRISMEM_EQUAL(scores[static_cast<std::size_t>(i * 400 + j)], static_cast<float>(left.dot(i, right, j)));
    }
    double means[3];
    segment_mean(values, true, offsets, 3, means, RunOptions{isa, 1});
    PRISMEM_EQUAL(means[0], 3.0);
    PRISMEM_CHECK(std::isnan(means[1]));
    PRISMEM_EQUAL(means[2], 0.5);
  }
}

PRISMEM_TEST(a_score_that_is_not_finite_is_reported) {
  const float broken[] = {1.0f, NAN, 2.0f, INFINITY, 0.0f, 1.0f};
  const Rows rows{broken, 3, 2, 2, Kind::f32};
  for (const std::string& isa : testing::isas()) {
    std::vector<float> scores(9);
    std::vector<std::int64_t> indices(9);
    std::vector<std::int64_t> counts(3);
    TopKOptions options;
    options.k = 3;
    const Report report = top_k(rows, rows, kWhole, kAll, options, 3, scores.data(), indices.data(), counts.data(), RunOptions{isa, 1});
    PRISMEM_EQUAL(report.bad_query, 0);
    PRISMEM_EQUAL(report.bad_key, 0);
    PRISMEM_EQUAL(counts[0], 0);
  }
}

}  // namespace prismem
