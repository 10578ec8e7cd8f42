#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>
#include <tuple>

#include "matrices.hpp"
#include "prismem/index.hpp"
#include "support/error.hpp"
#include "temporary_directory.hpp"
#include "testing.hpp"

namespace prismem {
namespace {

using testing::Matrix;
using testing::TemporaryDirectory;

IndexOptions options_of(std::int64_t dim, Kind kind = Kind::f32) {
  IndexOptions options;
  options.dim = dim;
  options.kind = kind;
  return options;
}

Found searched(const VectorIndex& index, const Rows& queries, std::int64_t k, const IndexFilter& filter = {}, const RunOptions& run = {}) {
  SearchOptions options;
  options.k = k;
  return index.search(queries, options, filter, run);
}

Rows one_row(const Matrix& matrix, std::int64_t row) {
  Rows rows = matrix.rows();
  rows.data = static_cast<const float*>(rows.data) + row * rows.stride;
  rows.count = 1;
  return rows;
}

// Ids of the best rows by the definition: score descending, then the order of adding.
std::vector<std::int64_t> expected(const Matrix& queries, std::int64_t query, const Matrix& keys, const std::vector<std::pair<std::int64_t, std::int64_t>>& held,
                                   std::int64_t k) {
  std::vector<std::tuple<double, std::int64_t, std::int64_t>> order;
  for (std::size_t position = 0; position < held.size(); ++position) {
    order.emplace_back(-queries.dot(query, keys, held[position].second), static_cast<std::int64_t>(position), held[position].first);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < order.size() && static_cast<std::int64_t>(i) < k; ++i) ids.push_back(std::get<2>(order[i]));
  return ids;
}

}  // namespace

PRISMEM_TEST(an_index_follows_adding_updating_and_removing) {
  for (const Kind kind : {Kind::f32, Kind::f16, Kind::bf16}) {
    const Matrix keys(400, 23, Kind::f32, 21);
    const Matrix queries(2, 23, Kind::f32, 22);
    VectorIndex index(options_of(23, kind));
    std::vector<std::pair<std::int64_t, std::int64_t>> held;  // id and row of `keys`, in the order of adding
    std::mt19937 random(23);
    std::int64_t next = 0;
    for (int step = 0; step < 300; ++step) {
      const unsigned choice = random() % 4;
      const std::int64_t row = static_cast<std::int64_t>(random() % 400);
      if (choice < 2 || held.empty()) {
        const std::int64_t id = next++ * 1'000'003 - 5;
        index.add(one_row(keys, row), &id);
        held.emplace_back(id, row);
      } else if (choice == 2) {
        auto& entry = held[random() % held.size()];
        entry.second = row;
        index.update(one_row(keys, row), &entry.first);
      } else {
        const auto at = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
        index.remove(&at->first, 1);
        held.erase(at);
      }
      if (step % 30 != 0) continue;
      PRISMEM_EQUAL(index.size(), static_cast<std::int64_t>(held.size()));
      for (const std::string& isa : testing::isas()) {
        const Found found = searched(index, queries.rows(), 7, {}, RunOptions{isa, 2});
        for (std::int64_t query = 0; query < 2; ++query) {
          const std::vector<std::int64_t> wanted = expected(queries, query, keys, held, 7);
          PRISMEM_EQUAL(found.counts[static_cast<std::size_t>(query)], static_cast<std::int64_t>(wanted.size()));
          const auto first = found.ids.begin() + query * found.width;
          PRISMEM_CHECK(std::vector<std::int64_t>(first, first + static_cast<std::ptrdiff_t>(wanted.size())) == wanted);
        }
      }
    }
  }
}

PRISMEM_TEST(a_filter_of_ids_holds_before_the_selection) {
  const Matrix keys(300, 10, Kind::f32, 24);
  const Matrix queries(1, 10, Kind::f32, 25);
  VectorIndex index(options_of(10));
  index.add(keys.rows(), nullptr);
  std::vector<std::int64_t> wanted_ids;
  std::vector<std::pair<std::int64_t, std::int64_t>> held;
  for (std::int64_t id = 3; id < 300; id += 11) {
    wanted_ids.push_back(id);
    held.emplace_back(id, id);
  }
  wanted_ids.push_back(12345);  // names nothing
  IndexFilter filter;
  filter.ids = wanted_ids.data();
  filter.id_count = static_cast<std::int64_t>(wanted_ids.size());
  const std::vector<std::int64_t> wanted = expected(queries, 0, keys, held, 5);
  PRISMEM_CHECK(searched(index, queries.rows(), 5, filter).ids == wanted);
  const std::shared_ptr<PreparedFilter> prepared = index.prepare(filter);
  IndexFilter again;
  again.prepared = prepared.get();
  PRISMEM_CHECK(searched(index, queries.rows(), 5, again).ids == wanted);
}

PRISMEM_TEST(an_index_file_comes_back_and_a_damaged_one_is_refused) {
  const TemporaryDirectory directory;
  const std::string path = directory.inside("index");
  const Matrix keys(200, 33, Kind::f32, 26);
  const Matrix queries(3, 33, Kind::f32, 27);
  VectorIndex index(options_of(33));
  index.add(keys.rows(), nullptr);
  index.save(path);
  const Found before = searched(index, queries.rows(), 9);
  for (const bool mapped : {false, true}) {
    const std::unique_ptr<VectorIndex> again = mapped ? VectorIndex::open(path, true) : VectorIndex::load(path);
    const Found after = searched(*again, queries.rows(), 9);
    PRISMEM_CHECK(after.ids == before.ids && after.scores == before.scores);
    PRISMEM_EQUAL(again->read_only(), mapped);
  }
  std::ifstream file(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (std::size_t at = 0; at < whole.size(); at += 997) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const std::string other = directory.inside("damaged");
    std::ofstream(other, std::ios::binary).write(damaged.data(), static_cast<std::streamsize>(damaged.size()));
    PRISMEM_CHECK(!PRISMEM_MESSAGE(VectorIndexError, VectorIndex::load(other)).empty());
    std::ofstream(other, std::ios::binary | std::ios::trunc).write(whole.data(), static_cast<std::streamsize>(at));
    PRISMEM_CHECK(!PRISMEM_MESSAGE(VectorIndexError, VectorIndex::open(other, true)).empty());
  }
}

PRISMEM_TEST(searches_and_changes_run_side_by_side) {
  const Matrix keys(256, 16, Kind::f32, 28);
  const Matrix queries(2, 16, Kind::f32, 29);
  VectorIndex index(options_of(16));
  index.add(keys.rows(), nullptr);
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      while (!done.load()) {
        const Found found = searched(index, queries.rows(), 5, {}, RunOptions{"", 1});
        if (found.counts != std::vector<std::int64_t>({5, 5})) ++wrong;
      }
    });
  }
  for (std::int64_t step = 0; step < 60; ++step) {
    const std::vector<std::int64_t> ids = index.add(one_row(keys, step), nullptr);
    index.update(one_row(keys, 255 - step), ids.data());
    index.remove(ids.data(), 1);
  }
  done.store(true);
  for (std::thread& reader : readers) reader.join();
  PRISMEM_EQUAL(wrong.load(), 0);
  PRISMEM_EQUAL(index.size(), std::int64_t{256});
}

PRISMEM_TEST(what_an_index_refuses_changes_nothing) {
  const Matrix keys(3, 4, Kind::f32, 30);
  VectorIndex index(options_of(4));
  const std::int64_t twice[] = {1, 2, 1};
  PRISMEM_CHECK(!PRISMEM_MESSAGE(ArgumentError, index.add(keys.rows(), twice)).empty());
  PRISMEM_EQUAL(index.size(), std::int64_t{0});
  const std::int64_t ids[] = {1, 2, 3};
  index.add(keys.rows(), ids);
  const std::int64_t unknown[] = {1, 9};
  PRISMEM_CHECK(!PRISMEM_MESSAGE(ArgumentError, index.remove(unknown, 2)).empty());
  PRISMEM_EQUAL(index.size(), std::int64_t{3});
}

}  // namespace prismem
