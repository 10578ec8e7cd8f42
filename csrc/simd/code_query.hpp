// A query in codes, made sixteen dimensions at a time.
#pragma once

#include "simd/code_bounds.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

// Between these lengths the sums below stay within the range of floats.
constexpr float kQuickNormLow = 1e-12f;
constexpr float kQuickNormHigh = 1e12f;

// Eight floats and eight zeros.
inline F16 load_half16(const float* p) {
  float filled[16] = {};
  __builtin_memcpy(filled, p, 8 * sizeof(float));
  return load16(filled);
}

// Codes of |code| <= levels for a packed query, as quantise_query makes them, in a fraction of the time: in floats. The bounds are
// wider by their rounding. Returns false, with nothing done, for queries too long or too short for it.
//
// `norm` is row_norm of the query; without `normalize` it is not needed and may be negative, `into` gets a length not below it.
inline bool quantise_in_floats(const float* query, double norm, const CodeView& view, std::int32_t levels, CodedQuery& into) {
  const std::int64_t padded = padded_dim(view.dim);
  F16 largest = broadcast16(0.0f);
  F16 squares[2] = {largest, largest};
  F16 centre[2] = {largest, largest};
  const auto measure = [&](F16 value, F16 middle, int chain) {
    largest = max16(size16(value), largest);
    squares[chain] = multiply_add16(value, value, squares[chain]);
    centre[chain] = multiply_add16(value, middle, centre[chain]);
  };
  std::int64_t j = 0;
  for (; j + 32 <= padded; j += 32) {
    measure(load16(query + j), load16(view.centre + j), 0);
    measure(load16(query + j + 16), load16(view.centre + j + 16), 1);
  }
  for (; j + 16 <= padded; j += 16) measure(load16(query + j), load16(view.centre + j), 0);
  if (j < padded) measure(load_half16(query + j), load_half16(view.centre + j), 0);
  const float rough_norm = __builtin_sqrtf(sum_of(squares[0]) + sum_of(squares[1]));
  if (!(rough_norm >= kQuickNormLow && rough_norm <= kQuickNormHigh)) return false;

  const float step = round_up(static_cast<double>(largest_of(largest)) * (1.0 + kDoubleSlack) / levels);
  const F16 per_step = broadcast16(1.0f / step);
  F16 error[2] = {broadcast16(0.0f), broadcast16(0.0f)};
  I16 sum = nearest16(error[0]);
  const auto quantise = [&](F16 value, int chain) {
    const F16 scaled = multiply16(value, per_step);
    const I16 code = nearest16(scaled);
    const F16 rest = multiply_add16(as_floats(code), broadcast16(-1.0f), scaled);
    error[chain] = multiply_add16(rest, rest, error[chain]);
    sum = add16(sum, code);
    return code;
  };
  for (j = 0; j + 64 <= padded; j += 64) {
    const I16 codes64[4] = {quantise(load16(query + j), 0), quantise(load16(query + j + 16), 1), quantise(load16(query + j + 32), 0),
                            quantise(load16(query + j + 48), 1)};
    split_bytes64(codes64, into.low + j / 2, into.high + j / 2);
  }
  for (; j + 16 <= padded; j += 16) split_bytes16(quantise(load16(query + j), 0), into.low + j / 2, into.high + j / 2);
  if (j < padded) split_bytes16(quantise(load_half16(query + j), 0), into.low + j / 2, into.high + j / 2);
  const std::int64_t bytes = low_row_bytes(view.dim);
  for (std::int64_t i = (padded + 15) / 16 * 8; i < bytes; ++i) into.low[i] = into.high[i] = 0;
  into.sum = sum_of(sum);

  // Sums in sixteen lanes, added up in any order, pass fewer roundings than this.
  const double slack = 2.0 * dot_error(view.dim) + 16.0 * kUnitRoundoff;
  into.norm = view.normalize ? norm : static_cast<double>(rough_norm) * (1.0 + slack);
  const double unit = view.normalize ? 1.0 / norm : 1.0;
  const double length = into.norm * unit * (1.0 + kDoubleSlack);
  // The last term: what is rounded in 1 / step, in its product with the query, and in step * unit.
  const double lost = static_cast<double>(step) * unit * __builtin_sqrt(static_cast<double>(sum_of(error[0]) + sum_of(error[1]))) * (1.0 + slack) + 8.0 * kUnitRoundoff * length;
  into.terms = bound_terms(view, static_cast<double>(sum_of(centre[0]) + sum_of(centre[1])) * unit, static_cast<double>(step) * unit, length, lost,
                           slack * length * view.centre_norm + kSmallest * unit);
  return true;
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
