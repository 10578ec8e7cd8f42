// Matrices for the native tests: each in memory of exactly its size, so that a sanitizer sees every byte read beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "prismem/rows.hpp"

namespace prismem::testing {

// Rows of small whole numbers and quarters: exact in float32, float16 and bfloat16, so their products have one value.
class Matrix {
 public:
  Matrix(std::int64_t count, std::int64_t dim, Kind kind, std::uint32_t seed);

  Rows rows() const { return Rows{memory_.get(), count_, dim_, dim_, kind_}; }
  // The rows in the opposite order, by a negative stride.
  Rows reversed() const;
  double dot(std::int64_t row, const Matrix& other, std::int64_t other_row) const;
  double value(std::int64_t row, std::int64_t column) const { return values_[static_cast<std::size_t>(row * dim_ + column)]; }
  std::int64_t count() const { return count_; }

 private:
  std::int64_t count_;
  std::int64_t dim_;
  Kind kind_;
  std::vector<double> values_;
  std::unique_ptr<unsigned char[]> memory_;
};

// The instruction sets of this build and CPU, and numbers of threads worth trying.
std::vector<std::string> isas();
inline const std::vector<int>& thread_counts() {
  static const std::vector<int> counts = {1, 2, 3};
  return counts;
}

}  // namespace prismem::testing
