#include "matrices.hpp"

#include <cstring>

#include "prismem/ops.hpp"

namespace prismem::testing {
namespace {

std::uint16_t half_bits(double value) {
  // Only for quarters of magnitude at most 4: normal halves whose fraction fits.
  if (value == 0.0) return 0;
  std::uint16_t bits = value < 0 ? 0x8000u : 0u;
  double magnitude = value < 0 ? -value : value;
  int exponent = 15;
  while (magnitude >= 2.0) magnitude /= 2.0, ++exponent;
  while (magnitude < 1.0) magnitude *= 2.0, --exponent;
  bits = static_cast<std::uint16_t>(bits | (exponent << 10) | static_cast<int>((magnitude - 1.0) * 1024.0));
  return bits;
}

std::uint16_t bfloat_bits(double value) {
  const float single = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

}  // namespace

Matrix::Matrix(std::int64_t count, std::int64_t dim, Kind kind, std::uint32_t seed)
    : count_(count), dim_(dim), kind_(kind), values_(static_cast<std::size_t>(count * dim)) {
  std::mt19937 random(seed);
  const std::size_t width = kind == Kind::f32 ? 4 : 2;
  memory_.reset(new unsigned char[values_.size() * width]);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    values_[i] = (static_cast<int>(random() % 17) - 8) / 4.0;
    if (kind == Kind::f32) {
      const float single = static_cast<float>(values_[i]);
      std::memcpy(memory_.get() + i * width, &single, width);
    } else {
      const std::uint16_t bits = kind == Kind::f16 ? half_bits(values_[i]) : bfloat_bits(values_[i]);
      std::memcpy(memory_.get() + i * width, &bits, width);
    }
  }
}

Rows Matrix::reversed() const {
  if (count_ == 0) return rows();
  const std::size_t width = kind_ == Kind::f32 ? 4 : 2;
  return Rows{memory_.get() + static_cast<std::size_t>((count_ - 1) * dim_) * width, count_, dim_, -dim_, kind_};
}

double Matrix::dot(std::int64_t row, const Matrix& other, std::int64_t other_row) const {
  double sum = 0.0;
  for (std::int64_t i = 0; i < dim_; ++i) sum += value(row, i) * other.value(other_row, i);
  return sum;
}

std::vector<std::string> isas() { return available_isas(); }

}  // namespace prismem::testing
