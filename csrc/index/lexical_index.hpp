// LexicalIndex: growable exact BM25 over texts as lists of tokens. docs/formats.md describes its file.
//
// The rules of threads, forks, ids and order are those of prismem/index.hpp: searches run at the same time, a change waits for them, and
// one that fails changes nothing. Scores depend on the texts that are there alone: not on removed ones, nor on how the others came.
//
// Errors: ArgumentError for bad arguments, LexicalIndexError for files, std::bad_alloc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "index/bm25.hpp"
#include "prismem/index.hpp"

namespace prismem {

// Text i has the tokens tokens[offsets[i]] .. tokens[offsets[i + 1] - 1], which lie in memory that outlives the call.
struct TokenLists {
  std::vector<std::string_view> tokens;
  std::vector<std::int64_t> offsets = {0};

  std::int64_t count() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  const std::string_view* begin(std::int64_t text) const { return tokens.data() + offsets[static_cast<std::size_t>(text)]; }
  std::int64_t length(std::int64_t text) const { return offsets[static_cast<std::size_t>(text) + 1] - offsets[static_cast<std::size_t>(text)]; }
};

struct LexicalStats {
  std::int64_t count = 0;
  std::int64_t removed = 0;  // texts whose room is not given back yet
  std::int64_t terms = 0;    // different tokens, those of removed texts included
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;  // of memory
};

class LexicalIndex {
 public:
  // `tokenizer` names what made the tokens; it is saved with them.
  LexicalIndex(const index::Bm25Options& options, const std::string& tokenizer);
  static std::unique_ptr<LexicalIndex> load(const std::string& path);
  ~LexicalIndex();
  LexicalIndex(const LexicalIndex&) = delete;
  LexicalIndex& operator=(const LexicalIndex&) = delete;

  const index::Bm25Options& options() const;
  const std::string& tokenizer() const;
  std::int64_t size() const;
  std::vector<std::int64_t> ids() const;  // in the order of adding
  bool contains(std::int64_t id) const;
  LexicalStats stats() const;

  // Adds texts at the end, under `ids` or, where that is null, under the numbers that follow the largest id ever used (from 0 on).
  // Returns the ids.
  std::vector<std::int64_t> add(const TokenLists& texts, const std::int64_t* ids);
  // Puts other texts in the places of those with `ids`, each named once.
  void update(const TokenLists& texts, const std::int64_t* ids);
  void remove(const std::int64_t* ids, std::int64_t count);

  // Hits are texts with a score above 0. A filter has ids or a mask, never one that was prepared.
  Found search(const TokenLists& queries, const SearchOptions& options, const IndexFilter& filter, int threads) const;

  void save(const std::string& path) const;

 private:
  struct State;
  explicit LexicalIndex(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace prismem
