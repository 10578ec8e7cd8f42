// The certified codes of a matrix of rows (simd/codes.hpp), growing with it. A search that has them reads an eighth of the bytes
// and returns what it returns without them, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "prismem/ops.hpp"
#include "simd/codes.hpp"
#include "support/huge_buffer.hpp"

namespace prismem {

// Owns codes, not rows: the caller keeps the rows as they were when they were encoded, or encodes them again.
//
// Calls that change the codes need the object to themselves; views and searches may run side by side.
class RowCodes {
 public:
  // For rows of `dim` dimensions that are compared by inner product or, with `normalize`, by cosine.
  RowCodes(std::int64_t dim, bool normalize);

  // Codes that were kept elsewhere: copies of what view() of equal, regular codes points to.
  RowCodes(std::int64_t dim, bool normalize, std::int64_t count, const float* centre, HugeBuffer blocks, HugeBuffer low, HugeBuffer mid_error);

  // Sums over more dimensions could overflow.
  static bool supports(std::int64_t dim) { return dim > 0 && dim <= kMaxCodeDim; }

  // Codes for all rows, relative to their mean.
  void build(const Rows& rows, const RunOptions& run);
  // Codes for the rows that were added: `rows` is the whole matrix, its first count() rows have codes already. The centre stays.
  void extend(const Rows& rows, const RunOptions& run);
  // New codes for rows begin .. end of the matrix, which have changed.
  void encode(const Rows& rows, std::int64_t begin, std::int64_t end, const RunOptions& run);
  // Forgets the rows from `count` on.
  void truncate(std::int64_t count);

  std::int64_t count() const { return count_; }
  std::int64_t dim() const { return dim_; }
  bool normalize() const { return normalize_; }
  // Whether every row is finite and short enough for the bounds to hold.
  bool regular() const { return irregular_ == 0; }
  // The upper bound of the length of a centre of whole groups that stands beside it in a view.
  static double norm_of_centre(const float* centre, std::int64_t dim);
  // Bytes of all codes, and the seconds that were spent on making them.
  std::int64_t bytes() const;
  double build_seconds() const { return build_seconds_; }

  CodeView view() const;

 private:
  void find_centre(const Rows& rows, const RunOptions& run);
  void resize(std::int64_t count);
  std::int64_t irregular_between(std::int64_t begin, std::int64_t end) const;

  HugeBuffer blocks_;
  HugeBuffer low_;
  HugeBuffer mid_error_;
  std::vector<float> centre_;
  double centre_norm_ = 0.0;
  std::int64_t count_ = 0;
  std::int64_t irregular_ = 0;
  std::int64_t dim_;
  double build_seconds_ = 0.0;
  bool has_centre_ = false;
  bool normalize_;
};

}  // namespace prismem
