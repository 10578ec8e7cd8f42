#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "codes/code_search.hpp"
#include "codes/row_codes.hpp"
#include "matrices.hpp"
#include "testing.hpp"

namespace prismem {
namespace {

constexpr Segments kWhole{nullptr, 0, nullptr};
constexpr Mask kAll{nullptr, 0, 0};

// Rows around a few centres, in memory of exactly their size.
class Cloud {
 public:
  Cloud(std::int64_t count, std::int64_t dim, std::uint32_t seed, float spread = 0.3f) : count_(count), dim_(dim), values_(new float[static_cast<std::size_t>(count * dim)]) {
    std::mt19937 random(seed);
    std::mt19937 of_centres(5);
    std::vector<float> centres(static_cast<std::size_t>(8 * dim));
    for (float& value : centres) value = uniform(of_centres);
    for (std::int64_t row = 0; row < count; ++row) {
      const std::size_t centre = random() % 8 * static_cast<std::size_t>(dim);
      for (std::int64_t i = 0; i < dim; ++i) {
        values_[static_cast<std::size_t>(row * dim + i)] = centres[centre + static_cast<std::size_t>(i)] + spread * uniform(random);
      }
    }
  }
  Rows rows() const { return Rows{values_.get(), count_, dim_, dim_, Kind::f32}; }
  float& at(std::int64_t row, std::int64_t column) { return values_[static_cast<std::size_t>(row * dim_ + column)]; }

 private:
  static float uniform(std::mt19937& random) { return static_cast<float>(random() >> 8) * 1.1920929e-07f - 1.0f; }
  std::int64_t count_;
  std::int64_t dim_;
  std::unique_ptr<float[]> values_;
};

struct Hits {
  std::vector<float> scores;
  std::vector<std::int64_t> indices;
  std::vector<std::int64_t> counts;
  Report report;
  Hits(std::int64_t queries, std::int64_t width)
      : scores(static_cast<std::size_t>(queries * width)), indices(static_cast<std::size_t>(queries * width)), counts(static_cast<std::size_t>(queries)) {}
  bool operator==(const Hits& other) const {
    return indices == other.indices && counts == other.counts && std::memcmp(scores.data(), other.scores.data(), scores.size() * 4) == 0 &&
           report.bad_query == other.report.bad_query && report.bad_key == other.report.bad_key;
  }
};

void same_with_codes(const Cloud& queries, const Cloud& keys, const RowCodes& codes, const Mask& mask, const TopKOptions& options, const RunOptions& run) {
  const std::int64_t width = std::min(options.k, keys.rows().count);
  Hits plain(queries.rows().count, width);
  Hits coded(queries.rows().count, width);
  plain.report = top_k(queries.rows(), keys.rows(), kWhole, mask, options, width, plain.scores.data(), plain.indices.data(), plain.counts.data(), run);
  coded.report = coded_top_k(queries.rows(), keys.rows(), codes.view(), mask, options, width, coded.scores.data(), coded.indices.data(), coded.counts.data(), run);
  PRISMEM_CHECK(plain == coded);
}

}  // namespace

PRISMEM_TEST(codes_change_no_bit_of_a_search) {
  for (const std::int64_t dim : {1, 15, 16, 65, 128}) {
    for (const bool normalize : {false, true}) {
      const Cloud keys(5000, dim, 31);
      for (const std::string& isa : testing::isas()) {
        RowCodes codes(dim, normalize);
        codes.build(keys.rows(), RunOptions{isa, 2});
        PRISMEM_EQUAL(codes.count(), std::int64_t{5000});
        for (const std::int64_t num_queries : {1, 3, 40}) {
          const Cloud queries(num_queries, dim, 32);
          TopKOptions options;
          options.normalize = normalize;
          for (const std::int64_t k : {1, 10}) {
            options.k = k;
            same_with_codes(queries, keys, codes, kAll, options, RunOptions{isa, static_cast<int>(num_queries % 2 + 1)});
          }
        }
      }
    }
  }
}

PRISMEM_TEST(codes_know_masks_thresholds_and_rows_that_are_all_alike) {
  const Cloud keys(6000, 48, 33);
  const Cloud alike(6000, 48, 33, 0.0f);
  const Cloud queries(2, 48, 34);
  std::vector<std::uint8_t> mask(6000);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 != 0;
  for (const std::string& isa : testing::isas()) {
    for (const Cloud* held : {&keys, &alike}) {
      RowCodes codes(48, false);
      codes.build(held->rows(), RunOptions{isa, 1});
      TopKOptions options;
      options.k = 5;
      same_with_codes(queries, *held, codes, Mask{mask.data(), 0, 1}, options, RunOptions{isa, 1});
      options.has_min_score = true;
      options.min_score = 3.0f;
      same_with_codes(queries, *held, codes, kAll, options, RunOptions{isa, 2});
    }
  }
}

PRISMEM_TEST(codes_grow_change_and_shrink_with_their_rows) {
  Cloud keys(7003, 40, 35);
  const Cloud queries(2, 40, 36);
  TopKOptions options;
  options.k = 10;
  for (const std::string& isa : testing::isas()) {
    const RunOptions run{isa, 2};
    RowCodes codes(40, false);
    Rows part = keys.rows();
    part.count = 5001;
    codes.build(part, run);
    codes.extend(keys.rows(), run);
    PRISMEM_EQUAL(codes.count(), std::int64_t{7003});
    same_with_codes(queries, keys, codes, kAll, options, run);
    for (std::int64_t row = 100; row < 140; ++row) keys.at(row, row % 40) += 2.0f;
    codes.encode(keys.rows(), 100, 140, run);
    same_with_codes(queries, keys, codes, kAll, options, run);
    codes.truncate(6000);
    PRISMEM_EQUAL(codes.count(), std::int64_t{6000});
  }
}

}  // namespace prismem
