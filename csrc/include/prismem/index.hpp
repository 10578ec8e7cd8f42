// VectorIndex: a growable exact store of vectors under ids of the caller's choice. docs/formats.md describes its file.
//
// Scores, order and rules are those of prismem/ops.hpp: a search gives the bits that top_k gives over the rows in the order of adding,
// whatever was removed and whatever filters say. Equal scores: the row that was added first. All sizes are 64-bit.
//
// Searches run at the same time in several threads; a change waits for them and they for it. In a forked child an index works on, unless
// another thread was changing it at the moment of the fork, which is an error at first use.
//
// Errors: ArgumentError for bad arguments, VectorIndexError for files and for changes of an index that is open for reading,
// std::bad_alloc. After an error of a change nothing has changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "prismem/ops.hpp"
#include "prismem/rows.hpp"

namespace prismem {

enum class Metric : std::int32_t { inner_product = 0, cosine = 1 };

// When certified codes of the rows (docs/numerics.md) are made. They shorten searches, cost memory, and change no result.
enum class CodePolicy {
  never,      // only by build_codes()
  automatic,  // when the searches so far would have paid for making them
  always,     // with the first rows
};

constexpr std::int64_t kMaxIndexDim = std::int64_t{1} << 24;
constexpr std::int64_t kMaxIndexBytes = std::int64_t{1} << 46;

struct IndexOptions {
  std::int64_t dim = 0;
  Kind kind = Kind::f32;  // how rows are kept; added rows of another kind are rounded to nearest, ties to even
  Metric metric = Metric::inner_product;
};

// Hits of some queries, best first: `width` cells each (the largest count). Cells past a query's count hold score -infinity and id -1, which
// may be the id of a row as well: the count is what tells.
struct Found {
  std::int64_t width = 0;
  std::vector<float> scores;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> counts;
};

class PreparedFilter;

// Which rows may be found: all, those of some ids (unknown ones name nothing), those that a mask marks, or what prepare() made of such a
// filter. A mask has one byte for each row of ids(), in that order; `mask_queries` is 0 for one mask for all queries, or their number.
struct IndexFilter {
  const std::int64_t* ids = nullptr;
  std::int64_t id_count = -1;  // -1: no ids
  Mask mask{nullptr, 0, 0};
  std::int64_t mask_count = -1;  // -1: no mask
  std::int64_t mask_queries = 0;
  PreparedFilter* prepared = nullptr;
};

struct SearchOptions {
  std::int64_t k = 0;
  bool has_min_score = false;
  float min_score = 0.0f;  // inclusive
};

struct MmrSearchOptions {
  std::int64_t k = 0;
  std::int64_t pool = 0;  // the most relevant rows, of which k are picked
  double relevance_weight = 1.0;
  bool has_min_relevance = false;
  float min_relevance = 0.0f;  // inclusive
};

struct IndexStats {
  std::int64_t count = 0;
  std::int64_t removed = 0;   // rows whose room is not yet used again
  std::int64_t capacity = 0;  // rows that fit before memory grows
  std::int64_t row_bytes = 0;  // memory of rows (of the file, where it is mapped)
  std::int64_t id_bytes = 0;
  bool coded = false;
  std::int64_t code_bytes = 0;
  double code_seconds = 0.0;  // spent on making codes
};

class VectorIndex {
 public:
  explicit VectorIndex(const IndexOptions& options, CodePolicy codes = CodePolicy::automatic);
  // The index in a file: copied into memory, every checksum verified; or mapped, read-only and at once, its checksums verified on request.
  // Codes in the file are used unless `codes` is never.
  static std::unique_ptr<VectorIndex> load(const std::string& path, CodePolicy codes = CodePolicy::automatic);
  static std::unique_ptr<VectorIndex> open(const std::string& path, bool verify, CodePolicy codes = CodePolicy::automatic);
  ~VectorIndex();
  VectorIndex(const VectorIndex&) = delete;
  VectorIndex& operator=(const VectorIndex&) = delete;

  const IndexOptions& options() const;
  bool read_only() const;
  std::int64_t size() const;
  std::vector<std::int64_t> ids() const;  // in the order of adding
  bool contains(std::int64_t id) const;
  IndexStats stats() const;

  // Adds rows at the end, under `ids` or, where that is null, under the numbers that follow the largest id ever used (from 0 on).
  // Returns the ids. `run` of the changes is for the codes that follow them.
  std::vector<std::int64_t> add(const Rows& rows, const std::int64_t* ids, const RunOptions& run = {});
  // Puts other rows in the places of those with `ids`, each named once.
  void update(const Rows& rows, const std::int64_t* ids, const RunOptions& run = {});
  void remove(const std::int64_t* ids, std::int64_t count, const RunOptions& run = {});
  void reserve(std::int64_t count);
  // out: (count, dim) floats.
  void get(const std::int64_t* ids, std::int64_t count, float* out) const;

  Found search(const Rows& queries, const SearchOptions& options, const IndexFilter& filter, const RunOptions& run) const;
  // Maximal marginal relevance (ops.hpp, mmr_select) among the `pool` best rows of search(); scores are those of the moment of selection.
  Found mmr(const Rows& queries, const MmrSearchOptions& options, const IndexFilter& filter, const RunOptions& run) const;
  // A filter to use again and again. One of ids stays good when the index changes; one of a mask ends with the next add() or remove().
  std::shared_ptr<PreparedFilter> prepare(const IndexFilter& filter) const;

  // Makes codes now, or anew.
  void build_codes(const RunOptions& run = {}) const;

  // Writes the index with its codes; until the new file is whole on the disk, what was at `path` stays. Searches go on meanwhile.
  void save(const std::string& path, const RunOptions& run = {}) const;

 private:
  struct State;
  explicit VectorIndex(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace prismem
