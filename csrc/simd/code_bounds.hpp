// Upper bounds of canonical scores from the codes of simd/codes.hpp. The argument is in docs/numerics.md, which names each term.
//
// The usual way of one query through blocks of rows:
//
//   quantise_query(...)                                  once
//   const I16 sums = high_sums(view, block, query);      4 bits a dimension, sixteen rows
//   not_below16(high_bounds(...), threshold)             the rows that may still reach the threshold
//   full_bound(view, row, sums of that row, query)       8 bits a dimension, one row
#pragma once

#include "simd/code_lanes.hpp"
#include "simd/codes.hpp"
#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

constexpr double kUnitRoundoff = 5.9604644775390625e-08;  // 2^-24, of float
constexpr double kDoubleSlack = 9.31322574615478516e-10;  // 2^-30: far above what sums of kMaxCodeDim doubles lose
constexpr double kSmallest = 7.52316384526264005e-37;     // 2^-120: above every loss to underflow

// The smallest float that is not below a number.
inline float round_up(double value) {
  const float nearest = static_cast<float>(value);
  if (!(static_cast<double>(nearest) < value)) return nearest;
  std::int32_t bits;
  __builtin_memcpy(&bits, &nearest, sizeof bits);
  bits += bits >= 0 ? 1 : -1;
  float above;
  __builtin_memcpy(&above, &bits, sizeof above);
  return above;
}

// The bits of the smallest bfloat16 that is not below a number >= 0.
inline std::uint16_t round_up_bfloat(double value) {
  const float above = round_up(value);
  std::uint32_t bits;
  __builtin_memcpy(&bits, &above, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0xffffu) >> 16);
}

template <class T>
inline T sum_of_eight(const T (&v)[8]) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// The relative error of the canonical inner product: roundings that one product can pass on its way into the sum.
inline double dot_error(std::int64_t dim) {
  const double roundings = static_cast<double>((dim + 7) / 8 + 4);
  return roundings * kUnitRoundoff / (1.0 - roundings * kUnitRoundoff);
}

// The terms of a query of this length: `centre_dot` is its inner product with the centre up to `centre_slack`, `lost` the length of
// what its codes miss.
inline BoundTerms bound_terms(const CodeView& view, double centre_dot, double step, double length, double lost, double centre_slack) {
  const double dot = dot_error(view.dim);
  // Inner product: gamma |q| |x|, and |x| <= |centre| + norm + error. Cosine: gamma and the rounding of the quotient.
  const double dot_each = view.normalize ? 0.0 : dot * length;
  const double dot_once = view.normalize ? dot + 2.0 * kUnitRoundoff : dot * length * view.centre_norm;
  const double base = centre_dot + centre_slack + dot_once + kSmallest;
  // 16 roundings more than enough for the arithmetic of the bound itself.
  const double own = 16.0 * kUnitRoundoff;
  BoundTerms terms;
  terms.step = static_cast<float>(step);
  terms.base = round_up(base + own * __builtin_fabs(base));
  terms.per_error = round_up((length + dot_each) * (1.0 + own));
  terms.per_norm = round_up((lost + dot_each) * (1.0 + own) + own * (length + lost));
  return terms;
}

// Codes of |code| <= levels for one query of `dim` floats followed by zeros up to padded_dim; `codes` has as many bytes, and as
// many are written. `norm` is row_norm of the query; where it is not finite or too large (see is_coded), nothing is computed.
inline BoundTerms quantise_floats(const float* query, double norm, const CodeView& view, std::int32_t levels, std::int8_t* codes, std::int32_t* sum) {
  const std::int64_t padded = padded_dim(view.dim);
  const double unit = !view.normalize ? 1.0 : (norm > 0.0 ? 1.0 / norm : 0.0);
  double largest[8] = {};
  for (std::int64_t j = 0; j < padded; j += 8) {
    for (int i = 0; i < 8; ++i) {
      const double size = __builtin_fabs(static_cast<double>(query[j + i]));
      largest[i] = size > largest[i] ? size : largest[i];
    }
  }
  double most = 0.0;
  for (const double size : largest) most = size > most ? size : most;
  const float step = round_up(most * unit * (1.0 + kDoubleSlack) / levels);
  const double per_step = step > 0.0f ? unit / static_cast<double>(step) : 0.0;
  double error[8] = {};
  double centre[8] = {};
  std::int32_t sums[8] = {};
  for (std::int64_t j = 0; j < padded; j += 8) {
    for (int i = 0; i < 8; ++i) {
      const double value = static_cast<double>(query[j + i]);
      const double scaled = value * per_step;
      const std::int32_t code = static_cast<std::int32_t>(scaled + (scaled < 0.0 ? -0.5 : 0.5));
      const double rest = scaled - static_cast<double>(code);
      codes[j + i] = static_cast<std::int8_t>(code);
      sums[i] += code;
      error[i] += rest * rest;
      centre[i] += value * static_cast<double>(view.centre[j + i]);
    }
  }
  *sum = sum_of_eight(sums);

  const double length = norm * unit * (1.0 + kDoubleSlack);
  const double lost = static_cast<double>(step) * __builtin_sqrt(sum_of_eight(error)) * (1.0 + kDoubleSlack) + kDoubleSlack * length;
  return bound_terms(view, sum_of_eight(centre) * unit, step, length, lost, kDoubleSlack * length * view.centre_norm);
}

// Whether bounds hold for a query (or row) of this length.
inline bool is_coded(double norm, bool normalize) { return normalize ? is_finite(norm) : norm <= kMaxCodeNorm; }

// Codes of |code| <= levels for a packed query; `codes` is scratch of padded_dim bytes, the rest is described at CodedQuery.
inline void quantise_query(const float* query, double norm, const CodeView& view, std::int32_t levels, std::int8_t* codes, CodedQuery& into) {
  into.norm = norm;
  if (!is_coded(norm, view.normalize)) return;
  into.terms = quantise_floats(query, norm, view, levels, codes, &into.sum);
  const std::int64_t groups = code_groups(view.dim);
  const std::int64_t bytes = low_row_bytes(view.dim);
  for (std::int64_t g = 0; g < groups; ++g) {
    __builtin_memcpy(into.low + 4 * g, codes + 8 * g, 4);
    __builtin_memcpy(into.high + 4 * g, codes + 8 * g + 4, 4);
  }
  for (std::int64_t i = 4 * groups; i < bytes; ++i) into.low[i] = into.high[i] = 0;
}

// The header of a block, by name.
struct CodeHeader {
  const std::uint16_t* scale;
  const std::uint16_t* high_error;
  const std::uint16_t* full_error;
  const std::uint16_t* norm;
};

inline const std::uint8_t* block_at(const CodeView& view, std::int64_t block) { return view.blocks + block * code_block_bytes(view.dim); }

inline CodeHeader header_at(const CodeView& view, std::int64_t block) {
  const auto* words = reinterpret_cast<const std::uint16_t*>(block_at(view, block));
  return CodeHeader{words, words + kCodeRows, words + 2 * kCodeRows, words + 3 * kCodeRows};
}

inline float bfloat_at(const std::uint16_t* bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(*bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof value);
  return value;
}

inline F16 bounds(I16 sums, F16 scale, F16 error, F16 norm, const BoundTerms& terms) {
  F16 bound = multiply_add16(multiply16(as_floats(sums), scale), broadcast16(terms.step), broadcast16(terms.base));
  bound = multiply_add16(error, broadcast16(terms.per_error), bound);
  return multiply_add16(norm, broadcast16(terms.per_norm), bound);
}

// Sums of query code * (16 * high half - 120) for the rows of a block.
inline I16 high_sums(const CodeView& view, std::int64_t block, const CodedQuery& query) {
  return add16(high_dots(block_at(view, block) + kCodeHeaderBytes, code_groups(view.dim), query.low, query.high), -120 * query.sum);
}

inline F16 high_bounds(const CodeView& view, std::int64_t block, I16 sums, const CodedQuery& query) {
  const CodeHeader header = header_at(view, block);
  return bounds(sums, load_bfloats16(header.scale), load_bfloats16(header.high_error), load_bfloats16(header.norm), query.terms);
}

// The sharper bound of one row, whose high_sum is known.
inline float full_bound(const CodeView& view, std::int64_t row, std::int32_t high_sum, const CodedQuery& query) {
  const std::int64_t bytes = low_row_bytes(view.dim);
  const std::int32_t sum = high_sum + low_dot(view.low + row * bytes, bytes, query.low, query.high) - 8 * query.sum;
  const CodeHeader header = header_at(view, row / kCodeRows);
  const std::int64_t lane = row % kCodeRows;
  const BoundTerms& terms = query.terms;
  const float approximate = static_cast<float>(sum) * bfloat_at(header.scale + lane) * terms.step + terms.base;
  return approximate + bfloat_at(header.full_error + lane) * terms.per_error + bfloat_at(header.norm + lane) * terms.per_norm;
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
