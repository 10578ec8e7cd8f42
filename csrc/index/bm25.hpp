// The best texts of a query by BM25, exactly.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "index/posting_store.hpp"

namespace prismem::index {

// score = sum over the different terms t of the query, in the order in which they come:
//   log(1 + (N - n_t + 0.5) / (n_t + 0.5)) * (k1 + 1) * (f / (f + k1 * (1 - b + b * length / mean length)))
// with N texts, n_t of which hold t, and f occurrences of t in the text; in double, given as float.
struct Bm25Options {
  double k1 = 1.2;
  double b = 0.75;
};

struct LexicalHit {
  float score;
  std::int32_t slot;
  std::int64_t place;
};

// A term of a query and what its occurrences weigh.
struct WeightedTerm {
  std::int32_t term;
  double weight;
};

// Scores the texts of one state of a store; made for each batch of queries, used by several threads.
class Bm25 {
 public:
  Bm25(const PostingStore& store, const Bm25Options& options);

  // The terms of a query that stand in any text, each once.
  std::vector<WeightedTerm> weigh(const std::string_view* tokens, std::int64_t count) const;
  // How many postings a search reads.
  std::int64_t postings_of(const std::vector<WeightedTerm>& query) const;
  // Computes what each shape counts once, for searches that read at least that many postings.
  void tabulate();

  // What one thread works with.
  class Search {
   public:
    explicit Search(const Bm25& scores);
    // The best `k` texts with a score above 0 and of at least `min_score`, best first, equal scores by place. `allowed`: one byte a slot,
    // or null for all.
    const std::vector<LexicalHit>& best(const std::vector<WeightedTerm>& query, std::int64_t k, float min_score, const std::uint8_t* allowed);

   private:
    struct Cursor {
      const Posting* next;
      const Posting* end;
      const Posting* begun;  // where the window began
      double weight;
    };

    template <class Factor>
    void scan(const Factor& factor);
    void take_window(std::int64_t begin, std::int64_t end, std::int64_t read);
    void offer(std::int64_t slot, double sum);

    const Bm25& scores_;
    std::vector<double> sums_;  // of the slots of one window; 0 between windows
    std::vector<Cursor> cursors_;
    std::vector<LexicalHit> hits_;  // a heap with the worst first while a search runs
    std::int64_t k_ = 0;
    float min_score_ = 0.0f;
    double enough_ = 0.0;  // smaller sums cannot become hits
    const std::uint8_t* allowed_ = nullptr;
  };

 private:
  friend class Search;
  double factor(std::int32_t shape) const;

  const PostingStore& store_;
  const Bm25Options options_;
  const double mean_length_;
  std::vector<double> factors_;  // by shape, once tabulated
};

}  // namespace prismem::index
