// Codes of rows, as simd/codes.hpp lays them out.
#include "simd/code_bounds.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

constexpr double kSmallestScale = 7.88860905221011805e-31;  // 2^-100: rows of smaller numbers round to zero
constexpr std::uint16_t kInfiniteBits = 0x7f80;

// Sums over the dimensions of a row in units of its scale, in eight lanes.
struct Residuals {
  double full[8] = {};
  double mid[8] = {};
  double high[8] = {};
  std::int32_t full_norm[8] = {};
  std::int32_t mid_norm[8] = {};
  std::int32_t high_norm[8] = {};
};

// One code for each of `width` <= 8 dimensions.
inline void encode_lanes(const float* row, const float* centre, double unit, double per_scale, std::int64_t width, std::uint8_t* codes,
                         Residuals& sums) {
  std::int32_t code[8] = {};  // bytes may alias anything, which would keep the loop from being vectorised
  for (std::int64_t i = 0; i < width; ++i) {
    const double y = static_cast<double>(row[i]) * unit - static_cast<double>(centre[i]);
    const double shifted = y * per_scale + 128.5;
    code[i] = static_cast<std::int32_t>(shifted);
    const double full = (shifted - 0.5) - static_cast<double>(code[i]);
    const double mid = full + static_cast<double>((code[i] & 3) - 2);
    const double high = full + static_cast<double>((code[i] & 15) - 8);
    const std::int32_t full_value = code[i] - 128;
    const std::int32_t mid_value = (code[i] & 252) - 126;
    const std::int32_t high_value = (code[i] & 240) - 120;
    sums.full[i] += full * full;
    sums.mid[i] += mid * mid;
    sums.high[i] += high * high;
    sums.full_norm[i] += full_value * full_value;
    sums.mid_norm[i] += mid_value * mid_value;
    sums.high_norm[i] += high_value * high_value;
  }
  for (int i = 0; i < 8; ++i) codes[i] = static_cast<std::uint8_t>(code[i]);
}

inline double larger(double a, double b) { return a > b ? a : b; }

// Splits the codes of a row into its bytes of the block and its low row.
inline void store_codes(const std::uint8_t* codes, std::int64_t dim, std::uint8_t* lines, std::uint8_t* low) {
  const std::int64_t groups = code_groups(dim);
  for (std::int64_t g = 0; g < groups; ++g) {
    std::uint64_t eight;
    __builtin_memcpy(&eight, codes + 8 * g, sizeof eight);
    const std::uint64_t high_halves = (eight >> 4) & 0x0f0f0f0f0f0f0f0full;
    const std::uint64_t low_halves = eight & 0x0f0f0f0f0f0f0f0full;
    // The second four of eight halves go into the upper nibbles.
    const std::uint32_t high_word = static_cast<std::uint32_t>(high_halves) | static_cast<std::uint32_t>(high_halves >> 28);
    const std::uint32_t low_word = static_cast<std::uint32_t>(low_halves) | static_cast<std::uint32_t>(low_halves >> 28);
    __builtin_memcpy(lines + 64 * g, &high_word, sizeof high_word);
    __builtin_memcpy(low + 4 * g, &low_word, sizeof low_word);
  }
}

template <class T>
void encode_row(const Rows& rows, std::int64_t index, const CodeStore& store, const CodeScratch& scratch) {
  const std::int64_t dim = store.dim;
  const std::int64_t padded = padded_dim(dim);
  const std::int64_t lane = index % kCodeRows;
  std::uint8_t* block = store.blocks + index / kCodeRows * code_block_bytes(dim);
  std::uint8_t* lines = block + kCodeHeaderBytes + 4 * lane;
  std::uint8_t* low = store.low + index * low_row_bytes(dim);
  auto* header = reinterpret_cast<std::uint16_t*>(block) + lane;

  const T* values = row_at<T>(rows, index);
  const double norm = row_norm(values, dim);
  if (!is_coded(norm, store.normalize)) {
    for (std::int64_t j = 0; j < padded; ++j) scratch.codes[j] = 0;
    store_codes(scratch.codes, dim, lines, low);
    header[0] = header[3 * kCodeRows] = 0;
    header[kCodeRows] = header[2 * kCodeRows] = store.mid_error[index] = kInfiniteBits;
    return;
  }
  pack_row(values, dim, scratch.row);
  const double unit = !store.normalize ? 1.0 : (norm > 0.0 ? 1.0 / norm : 0.0);

  double largest[8] = {};
  for (std::int64_t j = 0; j < padded; j += 8) {
    for (int i = 0; i < 8; ++i) {
      const double size = __builtin_fabs(static_cast<double>(scratch.row[j + i]) * unit - static_cast<double>(store.centre[j + i]));
      largest[i] = size > largest[i] ? size : largest[i];
    }
  }
  double most = 0.0;
  for (const double size : largest) most = larger(most, size);
  const std::uint16_t scale_bits = round_up_bfloat(larger(most * (1.0 + kDoubleSlack) / 127.0, kSmallestScale));
  const double scale = static_cast<double>(bfloat_at(&scale_bits));

  Residuals sums;
  std::int64_t j = 0;
  for (; j + 8 <= dim; j += 8) encode_lanes(scratch.row + j, store.centre + j, unit, 1.0 / scale, 8, scratch.codes + j, sums);
  if (j < dim) encode_lanes(scratch.row + j, store.centre + j, unit, 1.0 / scale, dim - j, scratch.codes + j, sums);
  store_codes(scratch.codes, dim, lines, low);
  // What doubles lose in y and in y / scale.
  const double slack = kDoubleSlack * (norm * unit + store.centre_norm + scale);
  const auto length = [&](double sum) { return scale * __builtin_sqrt(sum) * (1.0 + kDoubleSlack) + slack; };
  header[0] = scale_bits;
  header[kCodeRows] = round_up_bfloat(length(sum_of_eight(sums.high)));
  header[2 * kCodeRows] = round_up_bfloat(length(sum_of_eight(sums.full)));
  const std::int32_t norms[] = {sum_of_eight(sums.full_norm), sum_of_eight(sums.mid_norm), sum_of_eight(sums.high_norm)};
  double longest = 0.0;
  for (const std::int32_t square : norms) longest = larger(longest, static_cast<double>(square));
  header[3 * kCodeRows] = round_up_bfloat(length(longest));
  store.mid_error[index] = round_up_bfloat(length(sum_of_eight(sums.mid)));
}

template <class T>
void encode_rows(const Rows& rows, std::int64_t begin, std::int64_t end, const CodeStore& store, const CodeScratch& scratch) {
  for (std::int64_t index = begin; index < end; ++index) encode_row<T>(rows, index, store, scratch);
}

template <class T>
std::int64_t add_rows(const Rows& rows, std::int64_t begin, std::int64_t end, std::int64_t step, bool normalize, float* row, double* sums) {
  const std::int64_t padded = padded_dim(rows.dim);
  std::int64_t added = 0;
  for (std::int64_t index = begin; index < end; index += step) {
    const T* values = row_at<T>(rows, index);
    const double norm = row_norm(values, rows.dim);
    if (!is_coded(norm, normalize) || norm == 0.0) continue;
    pack_row(values, rows.dim, row);
    const double unit = normalize ? 1.0 / norm : 1.0;
    for (std::int64_t j = 0; j < padded; ++j) sums[j] += static_cast<double>(row[j]) * unit;
    ++added;
  }
  return added;
}

}  // namespace

void code_encode(const Rows& rows, std::int64_t begin, std::int64_t end, const CodeStore& store, const CodeScratch& scratch) {
  switch (rows.kind) {
    case Kind::f32: encode_rows<float>(rows, begin, end, store, scratch); break;
    case Kind::f16: encode_rows<Half>(rows, begin, end, store, scratch); break;
    case Kind::bf16: encode_rows<Bfloat>(rows, begin, end, store, scratch); break;
  }
}

// Adds rows begin, begin + step, ... to padded_dim sums, each divided by its length with `normalize`; returns how many took part.
std::int64_t code_add_rows(const Rows& rows, std::int64_t begin, std::int64_t end, std::int64_t step, bool normalize, float* row, double* sums) {
  switch (rows.kind) {
    case Kind::f32: return add_rows<float>(rows, begin, end, step, normalize, row, sums);
    case Kind::f16: return add_rows<Half>(rows, begin, end, step, normalize, row, sums);
    case Kind::bf16: return add_rows<Bfloat>(rows, begin, end, step, normalize, row, sums);
  }
  return 0;
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
