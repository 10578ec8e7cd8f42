#include "index/posting_store.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "support/error.hpp"

namespace prismem::index {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kFewRemoved = 1024;

template <class T>
std::size_t room(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

}  // namespace

std::size_t PostingStore::bytes() const {
  std::size_t bytes = terms_.bytes() + table_.bytes() + room(lists_) + room(shapes_) + room(forward_) + room(starts_) + room(ids_) +
                      room(places_) + room(lengths_);
  for (const List& list : lists_) bytes += room(list.postings);
  return bytes;
}

std::vector<std::int32_t> PostingStore::slots_in_order() const {
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(live()));
  for (std::int64_t slot = 0; slot < slots(); ++slot) {
    if (place(slot) >= 0) order.push_back(static_cast<std::int32_t>(slot));
  }
  const auto earlier = [this](std::int32_t a, std::int32_t b) { return place(a) < place(b); };
  // Out of order only where texts were updated.
  if (!std::is_sorted(order.begin(), order.end(), earlier)) std::sort(order.begin(), order.end(), earlier);
  return order;
}

std::int32_t PostingStore::intern(std::string_view term) {
  const std::int32_t number = terms_.insert(term);
  if (static_cast<std::size_t>(number) >= lists_.size()) lists_.resize(static_cast<std::size_t>(number) + 1);
  return number;
}

std::int32_t PostingStore::shape_of(std::int32_t count, std::int32_t length) {
  const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(count)) << 32 | static_cast<std::uint32_t>(length);
  const auto found = shape_numbers_.find(key);
  if (found != shape_numbers_.end()) return found->second;
  const std::int32_t number = static_cast<std::int32_t>(shapes_.size());
  shapes_.push_back(Shape{count, length});
  try {
    shape_numbers_.emplace(key, number);
  } catch (...) {
    shapes_.pop_back();
    throw;
  }
  return number;
}

void PostingStore::forget_staged() {
  for (const std::int32_t term : staged_) lists_[static_cast<std::size_t>(term)].staged = 0;
  staged_.clear();
}

std::int64_t PostingStore::stage(const std::string_view* tokens, std::int64_t count) {
  if (count > kMost) throw ArgumentError("texts: expected at most " + std::to_string(kMost) + " tokens in a text, got " + std::to_string(count));
  try {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t term = intern(tokens[i]);
      if (lists_[static_cast<std::size_t>(term)].staged == 0) staged_.push_back(term);
      ++lists_[static_cast<std::size_t>(term)].staged;
    }
    const std::int64_t slot = stage_lists(static_cast<std::int32_t>(count));
    forget_staged();
    return slot;
  } catch (...) {
    forget_staged();
    throw;
  }
}

std::int64_t PostingStore::stage_counted(const std::vector<TermCount>& terms, std::int32_t length) {
  try {
    for (const TermCount& term : terms) {
      staged_.push_back(term.term);
      lists_[static_cast<std::size_t>(term.term)].staged = term.count;
    }
    const std::int64_t slot = stage_lists(length);
    forget_staged();
    return slot;
  } catch (...) {
    forget_staged();
    throw;
  }
}

std::int64_t PostingStore::stage_lists(std::int32_t length) {
  const std::int64_t slot = slots();
  if (slot >= kMost) throw ArgumentError("texts: an index has room for " + std::to_string(kMost) + " texts, and this one is full");
  // Grown by halves, not to the exact size, which would copy everything for each text.
  const auto grow = [](auto& values, std::size_t more) {
    if (values.capacity() - values.size() < more) values.reserve(std::max(values.size() + more, values.size() + values.size() / 2));
  };
  grow(forward_, staged_.size());
  grow(starts_, 1);
  grow(ids_, 1);
  grow(places_, 1);
  grow(lengths_, 1);
  std::size_t done = 0;
  try {
    const std::int32_t once = shape_of(1, length);
    for (; done < staged_.size(); ++done) {
      List& list = lists_[static_cast<std::size_t>(staged_[done])];
      const std::int32_t shape = list.staged == 1 ? once : shape_of(list.staged, length);
      list.postings.push_back(Posting{static_cast<std::int32_t>(slot), shape});
      forward_.push_back(TermShape{staged_[done], shape});
    }
  } catch (...) {
    for (std::size_t i = 0; i < done; ++i) lists_[static_cast<std::size_t>(staged_[i])].postings.pop_back();
    forward_.resize(static_cast<std::size_t>(starts_.back()));
    throw;
  }
  starts_.push_back(static_cast<std::int64_t>(forward_.size()));
  ids_.push_back(0);
  places_.push_back(-1);
  lengths_.push_back(length);
  return slot;
}

void PostingStore::cut(std::int64_t count) {
  while (slots() > count) {
    const std::int64_t slot = slots() - 1;
    for (const TermShape* at = terms_begin(slot); at != terms_end(slot); ++at) lists_[static_cast<std::size_t>(at->term)].postings.pop_back();
    starts_.pop_back();
    forward_.resize(static_cast<std::size_t>(starts_.back()));
    ids_.pop_back();
    places_.pop_back();
    lengths_.pop_back();
  }
}

void PostingStore::come_in(std::int64_t slot, std::int64_t id, std::int64_t place) {
  ids_[static_cast<std::size_t>(slot)] = id;
  places_[static_cast<std::size_t>(slot)] = place;
  table_.insert(slot, ids_.data());
  tokens_ += length(slot);
  for (const TermShape* at = terms_begin(slot); at != terms_end(slot); ++at) ++lists_[static_cast<std::size_t>(at->term)].frequency;
}

void PostingStore::enter(std::int64_t slot, std::int64_t id) {
  come_in(slot, id, next_place_++);
  if (id >= next_id_) next_id_ = id < std::numeric_limits<std::int64_t>::max() ? id + 1 : id;
}

void PostingStore::replace(std::int64_t slot, std::int64_t by) {
  const std::int64_t old_place = place(slot);
  leave(slot);
  come_in(by, id(slot), old_place);
}

void PostingStore::leave(std::int64_t slot) {
  table_.erase(slot, ids_.data());
  places_[static_cast<std::size_t>(slot)] = -1;
  tokens_ -= length(slot);
  for (const TermShape* at = terms_begin(slot); at != terms_end(slot); ++at) --lists_[static_cast<std::size_t>(at->term)].frequency;
}

void PostingStore::tidy() {
  if (removed() <= std::max(live(), kFewRemoved)) return;
  try {
    PostingStore tidied;
    tidied.reserve_live(live());
    std::vector<TermCount> counted;
    for (const std::int32_t slot : slots_in_order()) {
      counted.clear();
      for (const TermShape* at = terms_begin(slot); at != terms_end(slot); ++at) {
        counted.push_back(TermCount{tidied.intern(terms_.term(at->term)), shapes_[static_cast<std::size_t>(at->shape)].count});
      }
      tidied.enter(tidied.stage_counted(counted, length(slot)), id(slot));
    }
    tidied.set_next_id(next_id_);
    *this = std::move(tidied);
  } catch (const std::bad_alloc&) {
    // It stays as it is, which is right as well; the next removal tries again.
  }
}

}  // namespace prismem::index
