// Texts as BM25 sees them: postings that grow, and counts that are those of the texts that are there.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "index/id_table.hpp"
#include "index/term_table.hpp"

namespace prismem::index {

// How often a term stands in a text and how many tokens that text has: all of a posting that a score depends on.
struct Shape {
  std::int32_t count;
  std::int32_t length;
};

// The texts that hold a term, by slot, each with the number of its shape.
struct Posting {
  std::int32_t slot;
  std::int32_t shape;
};

// A term of a text.
struct TermShape {
  std::int32_t term;
  std::int32_t shape;
};

struct TermCount {
  std::int32_t term;
  std::int32_t count;
};

// A text lies in a slot, in the order of adding, but for an updated one: it takes a new slot and keeps its place. A removed text
// leaves its slot empty and its postings where they are; counts and lengths forget it at once, and searches step over it.
class PostingStore {
 public:
  std::int64_t slots() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t live() const { return table_.size(); }
  std::int64_t removed() const { return slots() - live(); }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t next_id() const { return next_id_; }
  std::size_t bytes() const;

  std::int64_t slot_of(std::int64_t id) const { return table_.find(id, ids_.data()); }
  std::int64_t id(std::int64_t slot) const { return ids_[static_cast<std::size_t>(slot)]; }
  // Which of two texts comes first; -1 for an empty slot.
  std::int64_t place(std::int64_t slot) const { return places_[static_cast<std::size_t>(slot)]; }
  std::vector<std::int32_t> slots_in_order() const;
  std::int32_t length(std::int64_t slot) const { return lengths_[static_cast<std::size_t>(slot)]; }

  const TermTable& terms() const { return terms_; }
  const std::vector<Posting>& postings(std::int32_t term) const { return lists_[static_cast<std::size_t>(term)].postings; }
  // In how many texts a term stands.
  std::int64_t frequency(std::int32_t term) const { return lists_[static_cast<std::size_t>(term)].frequency; }
  const std::vector<Shape>& shapes() const { return shapes_; }
  // The terms of a text, each once.
  const TermShape* terms_begin(std::int64_t slot) const { return forward_.data() + starts_[static_cast<std::size_t>(slot)]; }
  const TermShape* terms_end(std::int64_t slot) const { return forward_.data() + starts_[static_cast<std::size_t>(slot) + 1]; }

  // A change comes in two steps, so that one that fails changes nothing. The first puts texts into new slots, where nobody sees them;
  // it throws std::bad_alloc or ArgumentError, and cut() takes such slots out again.
  std::int64_t stage(const std::string_view* tokens, std::int64_t count);
  // The same of a text whose `terms` were counted, each once, in the numbers that intern() gave.
  std::int64_t stage_counted(const std::vector<TermCount>& terms, std::int32_t length);
  std::int32_t intern(std::string_view term);
  void cut(std::int64_t slots);
  void reserve_live(std::int64_t count) { table_.reserve(count, ids_.data()); }
  // The second cannot fail: the text of a staged slot comes in at the end of the order, in place of another, or leaves.
  void enter(std::int64_t slot, std::int64_t id);
  void replace(std::int64_t slot, std::int64_t by);
  void leave(std::int64_t slot);

  void set_next_id(std::int64_t next_id) { next_id_ = next_id; }
  // Gives back the room of removed texts once they are more than those that are left.
  void tidy();

 private:
  struct List {
    std::vector<Posting> postings;
    std::int64_t frequency = 0;
    std::int32_t staged = 0;  // how often the term stands in the text that is being staged
  };

  std::int32_t shape_of(std::int32_t count, std::int32_t length);
  std::int64_t stage_lists(std::int32_t length);
  void forget_staged();
  void come_in(std::int64_t slot, std::int64_t id, std::int64_t place);

  TermTable terms_;
  std::vector<List> lists_;
  std::vector<Shape> shapes_;
  std::unordered_map<std::uint64_t, std::int32_t> shape_numbers_;
  std::vector<TermShape> forward_;
  std::vector<std::int64_t> starts_ = {0};  // where the terms of each slot begin in forward_
  std::vector<std::int64_t> ids_;
  std::vector<std::int64_t> places_;
  std::vector<std::int32_t> lengths_;
  IdTable table_;
  std::vector<std::int32_t> staged_;  // the terms of the text that is being staged
  std::int64_t tokens_ = 0;
  std::int64_t next_place_ = 0;
  std::int64_t next_id_ = 0;
};

}  // namespace prismem::index
