// simd/vec.hpp in plain C++: arrays of eight that a compiler may vectorise for whatever it targets.
#pragma once

namespace prismem {
namespace PRISMEM_NAMESPACE {

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

struct F8 {
  float lane[8];
};
struct D8 {
  double lane[8];
};

inline float float_from_bits(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

inline float to_float(float value) { return value; }
inline float to_float(Bfloat value) { return float_from_bits(static_cast<std::uint32_t>(value.bits) << 16); }
inline float to_float(Half value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 31u;
  const std::uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 31u) return float_from_bits(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0u) {
    const float magnitude = static_cast<float>(fraction) * 5.9604644775390625e-08f;  // 2^-24: subnormal halves are exact floats
    return sign != 0u ? -magnitude : magnitude;
  }
  return float_from_bits(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

inline F8 zero8() { return F8{{0, 0, 0, 0, 0, 0, 0, 0}}; }

template <class T>
inline F8 load8(const T* p) {
  F8 r;
  for (int i = 0; i < 8; ++i) r.lane[i] = to_float(p[i]);
  return r;
}

template <class T>
inline F8 load8_tail(const T* p, std::int64_t count) {
  F8 r = zero8();
  for (std::int64_t i = 0; i < count; ++i) r.lane[i] = to_float(p[i]);
  return r;
}

inline void store8(float* p, F8 a) {
  for (int i = 0; i < 8; ++i) p[i] = a.lane[i];
}

inline F8 fma8(F8 a, F8 b, F8 c) {
  F8 r;
  for (int i = 0; i < 8; ++i) r.lane[i] = a.lane[i] * b.lane[i] + c.lane[i];
  return r;
}

inline F8 splat8(float x) { return F8{{x, x, x, x, x, x, x, x}}; }

inline F8 max8(F8 a, F8 b) {
  F8 r;
  for (int i = 0; i < 8; ++i) r.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return r;
}

inline unsigned equal8(F8 a, F8 b) {
  unsigned bits = 0;
  for (int i = 0; i < 8; ++i) bits |= (a.lane[i] == b.lane[i] ? 1u : 0u) << i;
  return bits;
}

inline float sum8(F8 a) {
  const float* v = a.lane;
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

inline void sum8_of4(const F8 (&a)[4], float* out) {
  for (int i = 0; i < 4; ++i) out[i] = sum8(a[i]);
}

inline F8 mul8(F8 a, F8 b) {
  F8 r;
  for (int i = 0; i < 8; ++i) r.lane[i] = a.lane[i] * b.lane[i];
  return r;
}

inline unsigned outside8(F8 a, F8 limit) {
  unsigned bits = 0;
  for (int i = 0; i < 8; ++i) {
    const bool inside = a.lane[i] <= limit.lane[i] && a.lane[i] >= -3.402823466e+38f;
    bits |= (inside ? 0u : 1u) << i;
  }
  return bits;
}

inline F8 cosine8(F8 dots, double query_norm, const double* key_norms) {
  F8 r;
  for (int i = 0; i < 8; ++i) {
    const float cosine = static_cast<float>(static_cast<double>(dots.lane[i]) / query_norm / key_norms[i]);
    r.lane[i] = cosine > 1.0f ? 1.0f : (cosine < -1.0f ? -1.0f : cosine);
  }
  return r;
}

inline void prefetch(const void* p) { __builtin_prefetch(p); }
inline void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }

inline void keep(F8&) {}

inline D8 zero_d8() { return D8{{0, 0, 0, 0, 0, 0, 0, 0}}; }

inline D8 square_add(F8 a, D8 acc) {
  for (int i = 0; i < 8; ++i) acc.lane[i] += static_cast<double>(a.lane[i]) * static_cast<double>(a.lane[i]);
  return acc;
}

inline double sum_d8(D8 a) {
  const double* v = a.lane;
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
