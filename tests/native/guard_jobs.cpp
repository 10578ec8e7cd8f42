// One small, fixed job a run, for counting its instructions: `prismem_guard_jobs NAME` does it once on one thread, with no
// argument the names are listed. guards.py runs it under callgrind, which counts inside guarded_job alone.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codes/code_search.hpp"
#include "codes/row_codes.hpp"
#include "prismem/ops.hpp"

namespace {

using namespace prismem;

constexpr Segments kWhole{nullptr, 0, nullptr};
constexpr Mask kAll{nullptr, 0, 0};
const RunOptions kRun{"", 1};

// Rows of length about 1 around many centres, so that some are much closer to a query than the rest.
class Cloud {
 public:
  Cloud(std::int64_t count, std::int64_t dim, std::uint32_t seed, Kind kind = Kind::f32) : count_(count), dim_(dim), kind_(kind) {
    std::mt19937 random(seed);
    std::mt19937 of_centres(1);
    std::vector<float> centres(static_cast<std::size_t>(kCentres * dim));
    for (float& value : centres) value = gaussian(of_centres);
    floats_.resize(static_cast<std::size_t>(count * dim));
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
    for (std::int64_t row = 0; row < count; ++row) {
      const std::size_t centre = static_cast<std::size_t>(random() % kCentres) * static_cast<std::size_t>(dim);
      for (std::int64_t i = 0; i < dim; ++i) {
        floats_[static_cast<std::size_t>(row * dim + i)] = scale * (centres[centre + static_cast<std::size_t>(i)] + 0.5f * gaussian(random));
      }
    }
    for (const float value : floats_) {
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      halves_.push_back(static_cast<std::uint16_t>(bits >> 16));
    }
  }

  Rows rows() const {
    const void* data = kind_ == Kind::f32 ? static_cast<const void*>(floats_.data()) : halves_.data();
    return Rows{data, count_, dim_, dim_, kind_};
  }

 private:
  // The sum of four uniform numbers: the same on every standard library, unlike std::normal_distribution.
  static float gaussian(std::mt19937& random) {
    std::int64_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<std::int64_t>(random() >> 8);
    return static_cast<float>(sum - (std::int64_t{1} << 25)) * 5.9604644775390625e-08f;
  }

  static constexpr std::int64_t kCentres = 256;
  std::int64_t count_;
  std::int64_t dim_;
  Kind kind_;
  std::vector<float> floats_;
  std::vector<std::uint16_t> halves_;
};

struct Hits {
  explicit Hits(std::int64_t rows, std::int64_t width)
      : scores(static_cast<std::size_t>(rows * width)), indices(static_cast<std::size_t>(rows * width)), counts(static_cast<std::size_t>(rows)) {}
  std::vector<float> scores;
  std::vector<std::int64_t> indices;
  std::vector<std::int64_t> counts;
};

using Work = std::function<void()>;

Work top_k_job(std::int64_t queries, std::int64_t keys, Kind kind) {
  return [=, asked = Cloud(queries, 384, 2), held = Cloud(keys, 384, 3, kind), hits = Hits(queries, 10)]() mutable {
    TopKOptions options;
    options.k = 10;
    top_k(asked.rows(), held.rows(), kWhole, kAll, options, 10, hits.scores.data(), hits.indices.data(), hits.counts.data(), kRun);
  };
}

Work coded_top_k_job(std::int64_t queries, std::int64_t keys) {
  auto codes = std::make_shared<RowCodes>(384, false);
  auto held = std::make_shared<Cloud>(keys, 384, 3);
  codes->build(held->rows(), kRun);
  return [=, asked = Cloud(queries, 384, 2), hits = Hits(queries, 10)]() mutable {
    TopKOptions options;
    options.k = 10;
    coded_top_k(asked.rows(), held->rows(), codes->view(), kAll, options, 10, hits.scores.data(), hits.indices.data(), hits.counts.data(), kRun);
  };
}

Work encode_job() {
  return [held = Cloud(2000, 384, 3)] {
    RowCodes codes(384, false);
    codes.build(held.rows(), kRun);
  };
}

Work mmr_job(std::int64_t candidates, std::int64_t k) {
  return [=, asked = Cloud(1, 384, 2), held = Cloud(candidates, 384, 3), picks = Hits(1, k)]() mutable {
    MmrOptions options;
    options.k = k;
    options.relevance_weight = 0.5;
    options.normalize = true;
    mmr_select(asked.rows(), held.rows(), kWhole, kAll, options, k, picks.indices.data(), picks.scores.data(), picks.counts.data(), kRun);
  };
}

Work segment_max_job(std::int64_t groups, std::int64_t evidences, std::int64_t items) {
  std::vector<std::int64_t> ranges;
  std::vector<std::int64_t> owners;
  for (std::int64_t group = 0; group < groups; ++group) {
    ranges.insert(ranges.end(), {group * items, (group + 1) * items});
    owners.insert(owners.end(), static_cast<std::size_t>(evidences), group);
  }
  return [=, asked = Cloud(groups * evidences, 384, 2), held = Cloud(groups * items, 384, 3), best = Hits(groups * evidences, 1)]() mutable {
    segment_max_similarity(asked.rows(), held.rows(), Segments{ranges.data(), groups, owners.data()}, false, best.scores.data(),
                           best.indices.data(), kRun);
  };
}

Work similarity_job() {
  return [left = Cloud(64, 384, 2), right = Cloud(256, 384, 3), scores = std::vector<float>(64 * 256)]() mutable {
    similarity(left.rows(), right.rows(), true, scores.data(), kRun);
  };
}

const std::vector<std::pair<const char*, std::function<Work()>>>& jobs() {
  static const std::vector<std::pair<const char*, std::function<Work()>>> all = {
      {"top_k-q1", [] { return top_k_job(1, 4000, Kind::f32); }},
      {"top_k-q1-bfloat16", [] { return top_k_job(1, 4000, Kind::bf16); }},
      {"top_k-q64", [] { return top_k_job(64, 1000, Kind::f32); }},
      {"coded_top_k-q1", [] { return coded_top_k_job(1, 20000); }},
      {"coded_top_k-q64", [] { return coded_top_k_job(64, 8000); }},
      {"encode", [] { return encode_job(); }},
      {"mmr_select-n200-k25", [] { return mmr_job(200, 25); }},
      {"mmr_select-n50-k10", [] { return mmr_job(50, 10); }},
      {"segment_max_similarity-ragged", [] { return segment_max_job(50, 1, 100); }},
      {"segment_max_similarity-grouped", [] { return segment_max_job(4, 40, 100); }},
      {"similarity", [] { return similarity_job(); }},
  };
  return all;
}

}  // namespace

// Callgrind counts from here on and stops where it returns; seen from outside, so that its name is known.
extern "C" __attribute__((noinline, visibility("default"))) void guarded_job(const Work* work) { (*work)(); }

int main(int count, char** words) {
  if (count == 1) {
    for (const auto& [name, make] : jobs()) std::printf("%s\n", name);
    return 0;
  }
  for (const auto& [name, make] : jobs()) {
    if (std::strcmp(name, words[1]) != 0) continue;
    const Work work = make();
    work();  // pages are mapped and tables filled before it counts
    guarded_job(&work);
    return 0;
  }
  std::fprintf(stderr, "no job is called %s\n", words[1]);
  return 1;
}
