#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "index/lexical_index.hpp"
#include "matrices.hpp"
#include "support/error.hpp"
#include "temporary_directory.hpp"
#include "testing.hpp"

namespace prismem {
namespace {

using testing::TemporaryDirectory;

// Texts as words, and their tokens.
class Texts {
 public:
  Texts(std::int64_t count, std::int64_t words, std::uint32_t seed) {
    std::mt19937 random(seed);
    for (std::int64_t text = 0; text < count; ++text) {
      words_.emplace_back();
      for (std::uint32_t left = random() % 9; left > 0; --left) words_.back().push_back("w" + std::to_string(random() % words * (random() % 2)));
    }
  }
  const std::vector<std::string>& words(std::size_t text) const { return words_[text]; }
  TokenLists lists(std::size_t begin, std::size_t end) const {
    TokenLists lists;
    for (std::size_t text = begin; text < end; ++text) {
      for (const std::string& word : words_[text]) lists.tokens.emplace_back(word);
      lists.offsets.push_back(static_cast<std::int64_t>(lists.tokens.size()));
    }
    return lists;
  }

 private:
  std::vector<std::vector<std::string>> words_;
};

Found searched(const LexicalIndex& index, const TokenLists& queries, std::int64_t k, int threads = 1, const IndexFilter& filter = {}) {
  SearchOptions options;
  options.k = k;
  return index.search(queries, options, filter, threads);
}

void check_equal(const Found& a, const Found& b) {
  PRISMEM_CHECK(a.width == b.width);
  PRISMEM_CHECK(a.counts == b.counts);
  PRISMEM_CHECK(a.ids == b.ids);
  PRISMEM_CHECK(a.scores == b.scores);
}

}  // namespace

PRISMEM_TEST(a_lexical_index_ranks_as_if_what_was_removed_had_never_been_there) {
  const Texts texts(6000, 40, 1);
  LexicalIndex used({}, "test"), fresh({}, "test");
  std::vector<std::int64_t> ids(6000), gone;
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  for (std::size_t begin = 0; begin < 6000; begin += 750) used.add(texts.lists(begin, begin + 750), ids.data() + begin);
  used.update(texts.lists(0, 10), ids.data() + 5000);
  used.update(texts.lists(5000, 5010), ids.data() + 5000);
  for (std::int64_t id = 0; id < 4000; ++id) gone.push_back((id * 7) % 4000);
  used.remove(gone.data(), 100);
  used.remove(gone.data() + 100, 3900);
  fresh.add(texts.lists(4000, 6000), ids.data() + 4000);
  PRISMEM_CHECK(used.ids() == fresh.ids());
  PRISMEM_CHECK(used.stats().tokens == fresh.stats().tokens);
  const TokenLists queries = texts.lists(0, 200);
  for (const int threads : testing::thread_counts()) check_equal(searched(used, queries, 7, threads), searched(fresh, queries, 7));
  IndexFilter some;
  some.ids = ids.data() + 4500;
  some.id_count = 20;
  check_equal(searched(used, queries, 7, 2, some), searched(fresh, queries, 7, 1, some));
}

PRISMEM_TEST(a_lexical_score_is_that_of_the_formula) {
  LexicalIndex index({1.5, 0.5}, "test");
  TokenLists texts;
  texts.tokens = {"a", "b", "a", "b", "c"};
  texts.offsets = {0, 3, 3, 5};
  index.add(texts, nullptr);
  TokenLists query;
  query.tokens = {"c", "a", "c", "unknown"};
  query.offsets = {0, 4};
  const Found found = searched(index, query, 5);
  PRISMEM_CHECK(found.counts == std::vector<std::int64_t>{2});
  const auto score = [](double holding, double count, double length) {
    return std::log(1.0 + (3.0 - holding + 0.5) / (holding + 0.5)) * 2.5 * (count / (count + 1.5 * (0.5 + 0.5 * length / (5.0 / 3.0))));
  };
  PRISMEM_CHECK((found.ids == std::vector<std::int64_t>{2, 0}) == (score(1, 1, 2) > score(1, 2, 3)));
  PRISMEM_CHECK(found.scores[0] == static_cast<float>(std::max(score(1, 1, 2), score(1, 2, 3))));
  PRISMEM_CHECK(found.scores[1] == static_cast<float>(std::min(score(1, 1, 2), score(1, 2, 3))));
}

PRISMEM_TEST(a_failed_change_of_a_lexical_index_changes_nothing) {
  const Texts texts(50, 10, 2);
  LexicalIndex index({}, "test");
  index.add(texts.lists(0, 30), nullptr);
  const TokenLists queries = texts.lists(0, 50);
  const Found before = searched(index, queries, 30);
  const std::int64_t taken[] = {40, 41, 5}, twice[] = {40, 40, 41}, unknown[] = {1, 2, 99};
  PRISMEM_MESSAGE(ArgumentError, index.add(texts.lists(30, 33), taken));
  PRISMEM_MESSAGE(ArgumentError, index.add(texts.lists(30, 33), twice));
  PRISMEM_MESSAGE(ArgumentError, index.update(texts.lists(30, 33), unknown));
  PRISMEM_MESSAGE(ArgumentError, index.remove(unknown, 3));
  check_equal(searched(index, queries, 30), before);
}

PRISMEM_TEST(searches_of_a_lexical_index_run_beside_changes) {
  const Texts texts(400, 10, 3);
  LexicalIndex index({}, "test");
  index.add(texts.lists(0, 100), nullptr);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        for (const std::int64_t count : searched(index, texts.lists(0, 20), 10, 2).counts) wrong += count > 10 ? 1 : 0;
      }
    });
  }
  const std::int64_t first = 0;
  for (std::size_t round = 0; round < 30; ++round) {
    const std::vector<std::int64_t> added = index.add(texts.lists(100 + round * 10, 110 + round * 10), nullptr);
    if (round % 2 == 1) index.remove(added.data(), static_cast<std::int64_t>(added.size()));
    index.update(texts.lists(round, round + 1), &first);
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  PRISMEM_EQUAL(wrong.load(), 0);
  PRISMEM_EQUAL(index.size(), 250);
}

PRISMEM_TEST(a_lexical_file_comes_back_and_damage_is_found) {
  const TemporaryDirectory directory;
  const std::string path = directory.inside("index");
  const Texts texts(200, 30, 4);
  LexicalIndex index({}, "test");
  index.add(texts.lists(0, 200), nullptr);
  index.save(path);
  check_equal(searched(*LexicalIndex::load(path), texts.lists(0, 50), 9), searched(index, texts.lists(0, 50), 9));
  std::ifstream in(path, std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (std::size_t place = 0; place < sound.size(); place += 37) {
    std::string damaged = sound;
    damaged[place] = static_cast<char>(damaged[place] ^ 16);
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(damaged.data(), static_cast<std::streamsize>(damaged.size()));
    PRISMEM_MESSAGE(LexicalIndexError, LexicalIndex::load(path));
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(sound.data(), static_cast<std::streamsize>(place));
    PRISMEM_MESSAGE(LexicalIndexError, LexicalIndex::load(path));
  }
}

PRISMEM_TEST(shared_ids_are_those_of_the_sets) {
  std::mt19937 random(5);
  const std::int64_t num_queries = 9, num_keys = 150;
  const auto make = [&](std::int64_t count, std::unique_ptr<std::int32_t[]>& ids, std::vector<std::int64_t>& offsets) {
    offsets.assign(1, 0);
    for (std::int64_t set = 0; set < count; ++set) offsets.push_back(offsets.back() + (set % 5 == 4 ? 600 : random() % 12));
    ids.reset(new std::int32_t[static_cast<std::size_t>(offsets.back())]);
    for (std::int64_t i = 0; i < offsets.back(); ++i) ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(random() % 400) - 200;
  };
  std::unique_ptr<std::int32_t[]> query_ids, key_ids;
  std::vector<std::int64_t> query_offsets, key_offsets, starts;
  make(num_queries, query_ids, query_offsets);
  make(num_keys, key_ids, key_offsets);
  for (std::int64_t query = 0; query < num_queries; ++query) starts.push_back(query * num_keys);
  const IdSets queries{query_ids.get(), query_offsets.data(), num_queries}, keys{key_ids.get(), key_offsets.data(), num_keys};
  for (const std::string& isa : testing::isas()) {
    for (const int threads : testing::thread_counts()) {
      for (const bool dice : {false, true}) {
        const std::unique_ptr<double[]> shares(new double[static_cast<std::size_t>(num_queries * num_keys)]);
        token_overlap(queries, keys, Segments{nullptr, 0, nullptr}, dice, starts.data(), shares.get(), RunOptions{isa, threads});
        for (std::int64_t query = 0; query < num_queries; ++query) {
          const std::set<std::int32_t> a(query_ids.get() + query_offsets[static_cast<std::size_t>(query)], query_ids.get() + query_offsets[static_cast<std::size_t>(query) + 1]);
          for (std::int64_t key = 0; key < num_keys; ++key) {
            const std::set<std::int32_t> b(key_ids.get() + key_offsets[static_cast<std::size_t>(key)], key_ids.get() + key_offsets[static_cast<std::size_t>(key) + 1]);
            const double shared = static_cast<double>(std::count_if(a.begin(), a.end(), [&](std::int32_t id) { return b.count(id) > 0; }));
            const double size = static_cast<double>(dice ? a.size() + b.size() : a.size());
            PRISMEM_CHECK(shares[static_cast<std::size_t>(query * num_keys + key)] == (size > 0.0 ? (dice ? 2.0 * shared : shared) / size : 0.0));
          }
        }
      }
    }
  }
}

}  // namespace prismem
