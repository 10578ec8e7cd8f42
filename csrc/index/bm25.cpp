#include "index/bm25.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace prismem::index {
namespace {

constexpr std::int64_t kWindow = 2048;  // sums of so many slots stay in the first-level cache
constexpr std::int64_t kSparse = 8;     // a window with fewer postings than one slot in so many is not looked through slot by slot

bool better(const LexicalHit& a, const LexicalHit& b) { return a.score != b.score ? a.score > b.score : a.place < b.place; }

// The largest double below everything that rounds to `score` or more.
double just_below(float score) { return static_cast<double>(std::nextafter(score, -std::numeric_limits<float>::infinity())); }

}  // namespace

Bm25::Bm25(const PostingStore& store, const Bm25Options& options)
    : store_(store),
      options_(options),
      mean_length_(store.tokens() > 0 ? static_cast<double>(store.tokens()) / static_cast<double>(store.live()) : 1.0) {}

std::vector<WeightedTerm> Bm25::weigh(const std::string_view* tokens, std::int64_t count) const {
  std::vector<WeightedTerm> query;
  const double texts = static_cast<double>(store_.live());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t term = store_.terms().find(tokens[i]);
    if (term < 0 || store_.frequency(term) == 0) continue;
    if (std::any_of(query.begin(), query.end(), [term](const WeightedTerm& known) { return known.term == term; })) continue;
    const double holding = static_cast<double>(store_.frequency(term));
    query.push_back(WeightedTerm{term, std::log(1.0 + (texts - holding + 0.5) / (holding + 0.5)) * (options_.k1 + 1.0)});
  }
  return query;
}

std::int64_t Bm25::postings_of(const std::vector<WeightedTerm>& query) const {
  std::int64_t count = 0;
  for (const WeightedTerm& term : query) count += static_cast<std::int64_t>(store_.postings(term.term).size());
  return count;
}

double Bm25::factor(std::int32_t number) const {
  const Shape& shape = store_.shapes()[static_cast<std::size_t>(number)];
  const double count = static_cast<double>(shape.count);
  return count / (count + options_.k1 * (1.0 - options_.b + options_.b * static_cast<double>(shape.length) / mean_length_));
}

void Bm25::tabulate() {
  factors_.resize(store_.shapes().size());
  for (std::size_t shape = 0; shape < factors_.size(); ++shape) factors_[shape] = factor(static_cast<std::int32_t>(shape));
}

Bm25::Search::Search(const Bm25& scores) : scores_(scores), sums_(static_cast<std::size_t>(std::min(kWindow, scores.store_.slots())), 0.0) {}

const std::vector<LexicalHit>& Bm25::Search::best(const std::vector<WeightedTerm>& query, std::int64_t k, float min_score,
                                                  const std::uint8_t* allowed) {
  hits_.clear();
  k_ = k;
  min_score_ = std::max(min_score, std::numeric_limits<float>::denorm_min());
  enough_ = just_below(min_score_);
  allowed_ = allowed;
  cursors_.clear();
  for (const WeightedTerm& term : query) {
    const std::vector<Posting>& postings = scores_.store_.postings(term.term);
    cursors_.push_back(Cursor{postings.data(), postings.data() + postings.size(), nullptr, term.weight});
  }
  if (k > 0) {
    if (scores_.factors_.empty()) {
      scan([this](std::int32_t shape) { return scores_.factor(shape); });
    } else {
      scan([factors = scores_.factors_.data()](std::int32_t shape) { return factors[shape]; });
    }
  }
  std::sort(hits_.begin(), hits_.end(), better);
  return hits_;
}

template <class Factor>
void Bm25::Search::scan(const Factor& factor) {
  for (;;) {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (const Cursor& cursor : cursors_) {
      if (cursor.next != cursor.end) first = std::min<std::int64_t>(first, cursor.next->slot);
    }
    if (first == std::numeric_limits<std::int64_t>::max()) return;
    const std::int64_t begin = first / kWindow * kWindow, end = std::min(begin + kWindow, scores_.store_.slots());
    double* const sums = sums_.data() - begin;
    std::int64_t read = 0;
    // Term by term: each sum is added up in the order of the query's terms.
    for (Cursor& cursor : cursors_) {
      const Posting* at = cursor.next;
      cursor.begun = at;
      const double weight = cursor.weight;
      for (; at != cursor.end && at->slot < end; ++at) sums[at->slot] += weight * factor(at->shape);
      read += at - cursor.next;
      cursor.next = at;
    }
    take_window(begin, end, read);
  }
}

void Bm25::Search::take_window(std::int64_t begin, std::int64_t end, std::int64_t read) {
  if (read * kSparse < end - begin) {
    for (const Cursor& cursor : cursors_) {
      for (const Posting* at = cursor.begun; at != cursor.next; ++at) {
        double& sum = sums_[static_cast<std::size_t>(at->slot - begin)];
        if (sum > enough_) offer(at->slot, sum);
        sum = 0.0;
      }
    }
    return;
  }
  const std::int64_t count = end - begin;
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const double* sums = sums_.data() + i;
    double most = sums[0];
    for (int lane = 1; lane < 8; ++lane) most = sums[lane] > most ? sums[lane] : most;
    if (most > enough_) {
      for (int lane = 0; lane < 8; ++lane) {
        if (sums[lane] > enough_) offer(begin + i + lane, sums[lane]);
      }
    }
  }
  for (; i < count; ++i) {
    if (sums_[static_cast<std::size_t>(i)] > enough_) offer(begin + i, sums_[static_cast<std::size_t>(i)]);
  }
  std::fill(sums_.begin(), sums_.begin() + count, 0.0);
}

void Bm25::Search::offer(std::int64_t slot, double sum) {
  const LexicalHit hit{static_cast<float>(sum), static_cast<std::int32_t>(slot), scores_.store_.place(slot)};
  if (hit.score < min_score_ || hit.place < 0 || (allowed_ != nullptr && allowed_[slot] == 0)) return;
  if (static_cast<std::int64_t>(hits_.size()) == k_) {
    if (!better(hit, hits_.front())) return;
    std::pop_heap(hits_.begin(), hits_.end(), better);
    hits_.back() = hit;
  } else {
    hits_.push_back(hit);
  }
  std::push_heap(hits_.begin(), hits_.end(), better);
  if (static_cast<std::int64_t>(hits_.size()) == k_) enough_ = std::max(enough_, just_below(hits_.front().score));
}

}  // namespace prismem::index
