// Rows in global memory, scores as keys that sort, and which scores count.
#pragma once

#include "prim.cuh"

namespace prismem::cuda {

enum class Kind : std::int32_t { float32 = 0, float16 = 1, bfloat16 = 2 };

// A matrix whose rows have any distance from each other; the elements of a row are neighbours.
struct RowsView {
  const void* data;
  std::int64_t count;
  std::int64_t stride;  // in elements
  Kind kind;
  std::int32_t aligned;   // each row starts at a multiple of sixteen bytes
  const float* powers;    // null, or for each row a power of two that keeps its squares in range,
  const float* inverses;  // and the inverse length of the row times that power
};

template <class T>
PRISMEM_DEVICE const T* row_of(const RowsView& rows, std::int64_t row) {
  return static_cast<const T*>(rows.data) + row * rows.stride;
}

PRISMEM_DEVICE float element(const RowsView& rows, std::int64_t row, std::int64_t position) {
  switch (rows.kind) {
    case Kind::float16:
      return to_float(load(row_of<Half>(rows, row) + position));
    case Kind::bfloat16:
      return to_float(load(row_of<BFloat16>(rows, row) + position));
    default:
      return load(row_of<float>(rows, row) + position);
  }
}

// The inner product in double: sums of large finite numbers may leave the range of float where the result does not.
PRISMEM_DEVICE float wide_product(const RowsView& left, std::int64_t left_row, const RowsView& right, std::int64_t right_row,
                                  std::int64_t dim) {
  double sum = 0.0;
#pragma unroll 1
  for (std::int64_t i = 0; i < dim; ++i) sum += multiply(element(left, left_row, i), element(right, right_row, i));
  return static_cast<float>(sum);
}

template <class T>
constexpr int kQuadElements = 16 / static_cast<int>(sizeof(T));

PRISMEM_DEVICE std::uint32_t bits_of(float value) { return bits_of_float(value); }
PRISMEM_DEVICE std::uint32_t bits_of(Half value) { return value.bits; }
PRISMEM_DEVICE std::uint32_t bits_of(BFloat16 value) { return value.bits; }

// The first `count` elements from `at`, one by one, then zeros: for the ends of rows and for rows that are not aligned.
template <class T>
PRISMEM_DEVICE Quad load_elements(const T* at, std::int64_t count) {
  Quad quad{{0, 0, 0, 0}};
#pragma unroll
  for (int i = 0; i < kQuadElements<T>; ++i) {
    if (i < count) quad.words[i * sizeof(T) / 4] |= bits_of(load(at + i)) << (i * sizeof(T) % 4 * 8);
  }
  return quad;
}

// Larger for a larger score, then for a lower index; 0 is less than each. NaN has none.
PRISMEM_DEVICE std::uint64_t packed(float score, std::uint32_t index) {
  const std::uint32_t bits = bits_of_float(score + 0.0f);  // -0.0 becomes 0.0
  const std::uint32_t ordered = bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
  return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - index);
}
PRISMEM_DEVICE float score_of(std::uint64_t key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  return float_of_bits(ordered ^ ((ordered & 0x80000000u) != 0 ? 0x80000000u : 0xffffffffu));
}
PRISMEM_DEVICE std::int64_t index_of(std::uint64_t key) { return 0xffffffffu - static_cast<std::uint32_t>(key); }

PRISMEM_DEVICE bool is_finite(float value) { return (bits_of_float(value) & 0x7f800000u) != 0x7f800000u; }
PRISMEM_DEVICE bool is_number(float value) { return value == value; }

// The cosine from the inner product of two rows times their powers of two; NaN stays.
PRISMEM_DEVICE float cosine(float product, float inverse_left, float inverse_right) {
  const float value = product * inverse_left * inverse_right;
  return value > 1.0f ? 1.0f : value < -1.0f ? -1.0f : value;
}

// Which pairs count, and where a score that is not finite is noted.
struct Filter {
  const std::uint8_t* mask;
  std::int64_t mask_query_stride;
  std::int64_t mask_key_stride;
  std::int64_t key_count;
  std::int64_t* flag;
  float least;
  std::int32_t has_least;

  PRISMEM_DEVICE bool passes(std::int64_t query, std::int64_t key) const {
    return mask == nullptr || load(mask + query * mask_query_stride + key * mask_key_stride) != 0;
  }
  // Whether a pair that passes is a candidate; the query and the key are rows of the whole matrices.
  PRISMEM_DEVICE bool keeps(std::int64_t query, std::int64_t key, float score) const {
    if (flag != nullptr && !is_finite(score)) atomic_min(flag, query * key_count + key);
    return is_number(score) && !(has_least != 0 && score < least);
  }
  PRISMEM_DEVICE bool admits(std::int64_t query, std::int64_t key, float score) const {
    return passes(query, key) && keeps(query, key, score);
  }
};

}  // namespace prismem::cuda
