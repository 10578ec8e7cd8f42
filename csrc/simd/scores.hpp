// Scores of a block of packed queries against keys: the one place where vectors are multiplied.
//
// A score has one order of additions, whatever block it is computed in: eight lanes walk the dimensions in steps of eight, then
// sum8. So equal rows have equal scores, and neither tiles nor threads change a bit.
#pragma once

#include "simd/op_table.hpp"
#include "simd/vec.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

constexpr float kFloatMax = 3.402823466e+38f;
constexpr double kDoubleMax = 1.7976931348623157e+308;

// Between these norms neither a product of two floats nor their sum leaves the normal range, so float accumulation is safe.
constexpr double kNormSafeLow = 1e-15;
constexpr double kNormSafeHigh = 1e15;

inline bool norm_is_safe(double norm) { return norm >= kNormSafeLow && norm <= kNormSafeHigh; }

inline bool is_finite(float value) { return __builtin_fabsf(value) <= kFloatMax; }
inline bool is_finite(double value) { return __builtin_fabs(value) <= kDoubleMax; }

template <class T>
inline const T* row_at(const Rows& rows, std::int64_t index) {
  return static_cast<const T*>(rows.data) + index * rows.stride;
}

template <class T>
inline double row_norm(const T* row, std::int64_t dim) {
  D8 acc = zero_d8();
  std::int64_t i = 0;
  for (; i + 8 <= dim; i += 8) acc = square_add(load8(row + i), acc);
  if (i < dim) acc = square_add(load8_tail(row + i, dim - i), acc);
  return __builtin_sqrt(sum_d8(acc));
}

// Copies one row as floats and fills the rest of its padded_dim with zeros.
template <class T>
inline void pack_row(const T* row, std::int64_t dim, float* packed) {
  std::int64_t i = 0;
  for (; i + 8 <= dim; i += 8) store8(packed + i, load8(row + i));
  if (i < dim) store8(packed + i, load8_tail(row + i, dim - i));
}

template <class T, int Q, int K>
inline void dot_tile(const float* queries, std::int64_t query_stride, const T* const* keys, std::int64_t dim, float (&out)[Q][K]) {
  F8 acc[Q][K];
  for (int q = 0; q < Q; ++q)
    for (int k = 0; k < K; ++k) acc[q][k] = zero8();
  std::int64_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    F8 query[Q];
    for (int q = 0; q < Q; ++q) query[q] = load8(queries + q * query_stride + i);
    for (int k = 0; k < K; ++k) {
      const F8 key = load8(keys[k] + i);
      for (int q = 0; q < Q; ++q) acc[q][k] = fma8(query[q], key, acc[q][k]);
    }
  }
  if (i < dim) {
    for (int k = 0; k < K; ++k) {
      const F8 key = load8_tail(keys[k] + i, dim - i);
      for (int q = 0; q < Q; ++q) acc[q][k] = fma8(load8(queries + q * query_stride + i), key, acc[q][k]);
    }
  }
  for (int q = 0; q < Q; ++q)
    for (int k = 0; k < K; ++k) out[q][k] = sum8(acc[q][k]);
}

template <class T>
inline double dot_double(const float* query, const T* key, std::int64_t dim) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < dim; ++i) sum += static_cast<double>(query[i]) * static_cast<double>(to_float(key[i]));
  return sum;
}

template <class T>
inline float plain_score(float dot, const float* query, const T* key, std::int64_t dim) {
  // Partial sums of large finite numbers may leave the range of float where the sum itself does not.
  return is_finite(dot) ? dot : static_cast<float>(dot_double(query, key, dim));
}

template <class T>
inline float cosine_score(float dot, double query_norm, double key_norm, const float* query, const T* key, std::int64_t dim) {
  if (!is_finite(query_norm) || !is_finite(key_norm)) return __builtin_nanf("");
  if (query_norm == 0.0 || key_norm == 0.0) return 0.0f;
  const bool safe = norm_is_safe(query_norm) && norm_is_safe(key_norm);
  const double exact_dot = safe ? static_cast<double>(dot) : dot_double(query, key, dim);
  const float cosine = static_cast<float>(exact_dot / query_norm / key_norm);
  return cosine > 1.0f ? 1.0f : (cosine < -1.0f ? -1.0f : cosine);
}

// Packed queries and, with normalize, their norms (null without).
struct PackedQueries {
  const float* rows;
  std::int64_t stride;
  std::int64_t count;
  const double* norms;
};

template <class T, int Q, int K>
inline void score_tile(const PackedQueries& queries, std::int64_t first, const T* const* keys, const double* key_norms, std::int64_t dim,
                       float* out, std::int64_t out_stride) {
  float dots[Q][K];
  const float* rows = queries.rows + first * queries.stride;
  dot_tile<T, Q, K>(rows, queries.stride, keys, dim, dots);
  for (int q = 0; q < Q; ++q) {
    const float* query = rows + q * queries.stride;
    for (int k = 0; k < K; ++k) {
      out[(first + q) * out_stride + k] = queries.norms == nullptr
                                              ? plain_score(dots[q][k], query, keys[k], dim)
                                              : cosine_score(dots[q][k], queries.norms[first + q], key_norms[k], query, keys[k], dim);
    }
  }
}

template <class T, int K>
inline void score_tiles_of_keys(const PackedQueries& queries, const T* const* keys, const double* key_norms, std::int64_t dim, float* out,
                                std::int64_t out_stride) {
  std::int64_t q = 0;
  for (; q + 3 <= queries.count; q += 3) score_tile<T, 3, K>(queries, q, keys, key_norms, dim, out, out_stride);
  if (q + 2 == queries.count) score_tile<T, 2, K>(queries, q, keys, key_norms, dim, out, out_stride);
  if (q + 1 == queries.count) score_tile<T, 1, K>(queries, q, keys, key_norms, dim, out, out_stride);
}

// out[q * out_stride + j] = score of query q and key ids[j], or key first + j where ids is null.
template <class T>
inline void score_block(const PackedQueries& queries, const Rows& keys, const std::int64_t* ids, std::int64_t first, std::int64_t count,
                        const double* key_norms, float* out, std::int64_t out_stride) {
  const std::int64_t dim = keys.dim;
  std::int64_t j = 0;
  const T* pointers[4];
  for (; j + 4 <= count; j += 4) {
    for (int k = 0; k < 4; ++k) pointers[k] = row_at<T>(keys, ids != nullptr ? ids[j + k] : first + j + k);
    score_tiles_of_keys<T, 4>(queries, pointers, key_norms + j, dim, out + j, out_stride);
  }
  for (; j < count; ++j) {
    pointers[0] = row_at<T>(keys, ids != nullptr ? ids[j] : first + j);
    score_tiles_of_keys<T, 1>(queries, pointers, key_norms + j, dim, out + j, out_stride);
  }
}

template <class T>
inline void block_norms(const Rows& keys, const std::int64_t* ids, std::int64_t first, std::int64_t count, double* norms) {
  for (std::int64_t j = 0; j < count; ++j) norms[j] = row_norm(row_at<T>(keys, ids != nullptr ? ids[j] : first + j), keys.dim);
}

template <class T>
inline void pack_queries_of(const ScoreTask& task, const Scratch& scratch) {
  const std::int64_t stride = padded_dim(task.queries.dim);
  for (std::int64_t i = 0; i < task.query_count; ++i) {
    const T* row = row_at<T>(task.queries, task.query_ids[i]);
    pack_row(row, task.queries.dim, scratch.packed + i * stride);
    if (task.normalize) scratch.query_norms[i] = row_norm(row, task.queries.dim);
  }
}

inline PackedQueries pack_queries(const ScoreTask& task, const Scratch& scratch) {
  switch (task.queries.kind) {
    case Kind::f32: pack_queries_of<float>(task, scratch); break;
    case Kind::f16: pack_queries_of<Half>(task, scratch); break;
    case Kind::bf16: pack_queries_of<Bfloat>(task, scratch); break;
  }
  return PackedQueries{scratch.packed, padded_dim(task.queries.dim), task.query_count, task.normalize ? scratch.query_norms : nullptr};
}

// Scores keys (see score_block) of any kind; norms of the keys are computed when the queries have norms.
template <class T>
inline void score_keys_of(const PackedQueries& queries, const Rows& keys, const std::int64_t* ids, std::int64_t first, std::int64_t count,
                          double* norms, float* out, std::int64_t out_stride) {
  if (queries.norms != nullptr) block_norms<T>(keys, ids, first, count, norms);
  score_block<T>(queries, keys, ids, first, count, norms, out, out_stride);
}

inline void score_keys(const PackedQueries& queries, const Rows& keys, const std::int64_t* ids, std::int64_t first, std::int64_t count,
                       double* norms, float* out, std::int64_t out_stride) {
  switch (keys.kind) {
    case Kind::f32: score_keys_of<float>(queries, keys, ids, first, count, norms, out, out_stride); break;
    case Kind::f16: score_keys_of<Half>(queries, keys, ids, first, count, norms, out, out_stride); break;
    case Kind::bf16: score_keys_of<Bfloat>(queries, keys, ids, first, count, norms, out, out_stride); break;
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
