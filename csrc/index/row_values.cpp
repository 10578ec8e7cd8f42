#include "index/row_values.hpp"

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace prismem::index {
namespace {

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

bool finite(float value) { return (bits_of(value) & 0x7f800000u) != 0x7f800000u; }
bool finite(Half value) { return (value.bits & 0x7c00u) != 0x7c00u; }
bool finite(Bfloat value) { return (value.bits & 0x7f80u) != 0x7f80u; }

float widen(float value) { return value; }

float widen(Half value) {
  // The exponent is moved by a multiplication, which also makes subnormal numbers normal.
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  std::uint32_t bits = bits_of(from_bits(magnitude) * 0x1p112f);
  bits |= magnitude >= (0x7c00u << 13) ? 0x7f800000u : 0u;
  return from_bits(bits | (value.bits & 0x8000u) << 16);
}

float widen(Bfloat value) { return from_bits(static_cast<std::uint32_t>(value.bits) << 16); }

void narrow(float value, float& out) { out = value; }

void narrow(float value, Half& out) {
  constexpr std::uint32_t kInfinity = 0x7c00u, kLeastNormal = 113u << 23, kTooLarge = 143u << 23;
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Adding 0.5 puts the last bit of a subnormal half at the last bit of a float, so that the addition rounds.
  const std::uint32_t subnormal = bits_of(from_bits(magnitude) + 0.5f) - bits_of(0.5f);
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t rounded = magnitude < kLeastNormal ? subnormal : magnitude >= kTooLarge ? kInfinity : normal;
  out.bits = static_cast<std::uint16_t>(rounded | (bits & 0x80000000u) >> 16);
}

void narrow(float value, Bfloat& out) {
  const std::uint32_t bits = bits_of(value);
  out.bits = static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <class T>
const T* row_at(const Rows& rows, std::int64_t row) {
  return static_cast<const T*>(rows.data) + row * rows.stride;
}

template <class T>
bool all_finite(const T* values, std::int64_t count) {
  bool every = true;
  for (std::int64_t i = 0; i < count; ++i) every &= finite(values[i]);
  return every;
}

template <class T>
std::int64_t first_nonfinite_of(const Rows& rows) {
  for (std::int64_t row = 0; row < rows.count; ++row) {
    if (!all_finite(row_at<T>(rows, row), rows.dim)) return row;
  }
  return -1;
}

template <class From, class To>
std::int64_t convert(const Rows& rows, To* out) {
  for (std::int64_t row = 0; row < rows.count; ++row, out += rows.dim) {
    const From* values = row_at<From>(rows, row);
    if constexpr (std::is_same_v<From, To>) {
      if (rows.dim > 0) std::memcpy(out, values, static_cast<std::size_t>(rows.dim) * sizeof(To));
    } else {
      // A finite float may round to infinity, and NaN to anything: both ends are looked at.
      if (!all_finite(values, rows.dim)) return row;
      for (std::int64_t i = 0; i < rows.dim; ++i) narrow(widen(values[i]), out[i]);
    }
    if (!all_finite(out, rows.dim)) return row;
  }
  return -1;
}

template <class From>
std::int64_t convert_from(const Rows& rows, Kind kind, void* out) {
  switch (kind) {
    case Kind::f32: return convert<From>(rows, static_cast<float*>(out));
    case Kind::f16: return convert<From>(rows, static_cast<Half*>(out));
    case Kind::bf16: return convert<From>(rows, static_cast<Bfloat*>(out));
  }
  return 0;
}

}  // namespace

std::int64_t bytes_of(Kind kind) { return kind == Kind::f32 ? 4 : 2; }

const char* name_of(Kind kind) { return kind == Kind::f32 ? "float32" : kind == Kind::f16 ? "float16" : "bfloat16"; }

std::int64_t first_nonfinite(const Rows& rows) {
  switch (rows.kind) {
    case Kind::f32: return first_nonfinite_of<float>(rows);
    case Kind::f16: return first_nonfinite_of<Half>(rows);
    case Kind::bf16: return first_nonfinite_of<Bfloat>(rows);
  }
  return 0;
}

std::int64_t convert_rows(const Rows& rows, Kind kind, void* out) {
  switch (rows.kind) {
    case Kind::f32: return convert_from<float>(rows, kind, out);
    case Kind::f16: return convert_from<Half>(rows, kind, out);
    case Kind::bf16: return convert_from<Bfloat>(rows, kind, out);
  }
  return 0;
}

}  // namespace prismem::index
