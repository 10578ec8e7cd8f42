// The certified codes (codes/row_codes.hpp) of a store: when they are made, and that they follow its rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "codes/row_codes.hpp"
#include "index/row_store.hpp"

namespace prismem::index {

// Codes change the time of a search and nothing else, so where memory for them is missing they go and no one is told.
class StoreCodes {
 public:
  explicit StoreCodes(CodePolicy policy) : policy_(policy) {}
  // The codes in a file, verified and copied; or where they lie in a mapped one, which must outlive this.
  void adopt_copy(const IndexFile& file);
  void adopt_mapped(const MappedIndexFile& file);
  // Adds the sections of a file that hold the codes, if there are any worth keeping.
  void list_sections(std::vector<SectionData>& sections) const;

  bool present() const { return codes_.has_value() || mapped_.has_value(); }
  // Only where present.
  CodeView view() const { return codes_ ? codes_->view() : *mapped_; }

  // Counts searches for `queries` queries; whether by now making codes would have paid.
  bool wanted_after(const RowStore& store, std::int64_t queries) const;
  void build(const RowStore& store, const RunOptions& run);

  // After a change of the store: rows were appended; those of some slots were replaced; slots from `first` on have moved.
  void follow_append(const RowStore& store, const RunOptions& run);
  void follow_update(const RowStore& store, const std::vector<std::int64_t>& slots, const RunOptions& run);
  void follow_move(const RowStore& store, std::int64_t first, const RunOptions& run);

  std::int64_t memory() const { return codes_ ? codes_->bytes() : 0; }
  double build_seconds() const { return build_seconds_ + (codes_ ? codes_->build_seconds() : 0.0); }

 private:
  template <class Change>
  void follow(Change change);

  CodePolicy policy_;
  std::optional<RowCodes> codes_;
  std::optional<CodeView> mapped_;
  std::int64_t centred_rows_ = 0;  // rows there were when the centre was found
  double build_seconds_ = 0.0;     // of codes that have been made anew since
  mutable std::atomic<std::int64_t> rows_searched_{0};
};

}  // namespace prismem::index
