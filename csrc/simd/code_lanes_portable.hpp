// simd/code_lanes.hpp in plain C++.
#pragma once

namespace prismem {
namespace PRISMEM_NAMESPACE {

struct I16 {
  std::int32_t lane[16];
};
struct F16 {
  float lane[16];
};

inline F16 as_floats(I16 a) {
  F16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(a.lane[i]);
  return r;
}
inline F16 broadcast16(float value) {
  F16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = value;
  return r;
}
inline F16 load_bfloats16(const std::uint16_t* p) {
  F16 r;
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(p[i]) << 16;
    __builtin_memcpy(&r.lane[i], &bits, sizeof bits);
  }
  return r;
}
inline void store16(float* p, F16 a) { __builtin_memcpy(p, a.lane, sizeof a.lane); }
inline void store16(std::int32_t* p, I16 a) { __builtin_memcpy(p, a.lane, sizeof a.lane); }
inline F16 load16(const float* p) {
  F16 r;
  __builtin_memcpy(r.lane, p, sizeof r.lane);
  return r;
}
inline I16 load16(const std::int32_t* p) {
  I16 r;
  __builtin_memcpy(r.lane, p, sizeof r.lane);
  return r;
}
inline I16 add16(I16 a, I16 b) {
  for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline I16 add16(I16 a, std::int32_t value) {
  for (int i = 0; i < 16; ++i) a.lane[i] += value;
  return a;
}
inline F16 max16(F16 a, F16 b) {
  for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
inline F16 size16(F16 a) {
  for (int i = 0; i < 16; ++i) a.lane[i] = __builtin_fabsf(a.lane[i]);
  return a;
}
inline I16 nearest16(F16 a) {
  I16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<std::int32_t>(a.lane[i] + (a.lane[i] < 0.0f ? -0.5f : 0.5f));
  return r;
}
inline float largest_of(F16 a) {
  float most = a.lane[0];
  for (int i = 1; i < 16; ++i) most = a.lane[i] > most ? a.lane[i] : most;
  return most;
}
inline float sum_of(F16 a) {
  float sum = 0.0f;
  for (int i = 0; i < 16; ++i) sum += a.lane[i];
  return sum;
}
inline std::int32_t sum_of(I16 a) {
  std::int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += a.lane[i];
  return sum;
}
inline void split_bytes16(I16 a, std::int8_t* low, std::int8_t* high) {
  for (int i = 0; i < 4; ++i) {
    low[i] = static_cast<std::int8_t>(a.lane[i]);
    high[i] = static_cast<std::int8_t>(a.lane[4 + i]);
    low[4 + i] = static_cast<std::int8_t>(a.lane[8 + i]);
    high[4 + i] = static_cast<std::int8_t>(a.lane[12 + i]);
  }
}
inline void split_bytes64(const I16 (&a)[4], std::int8_t* low, std::int8_t* high) {
  for (int i = 0; i < 4; ++i) split_bytes16(a[i], low + 8 * i, high + 8 * i);
}
inline F16 multiply16(F16 a, F16 b) {
  for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
  return a;
}
inline F16 multiply_add16(F16 a, F16 b, F16 c) {
  for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] * b.lane[i] + c.lane[i];
  return a;
}
inline std::uint32_t not_below16(F16 a, float threshold) {
  std::uint32_t mask = 0;
  for (int i = 0; i < 16; ++i) mask |= static_cast<std::uint32_t>(!(a.lane[i] < threshold)) << i;
  return mask;
}

inline I16 high_dots(const std::uint8_t* lines, std::int64_t groups, const std::int8_t* low, const std::int8_t* high) {
  I16 sums = {};
  for (std::int64_t g = 0; g < groups; ++g) {
    for (int r = 0; r < 16; ++r) {
      for (int i = 0; i < 4; ++i) {
        const std::int32_t byte = lines[64 * g + 4 * r + i];
        sums.lane[r] += ((byte & 15) << 4) * low[4 * g + i] + (byte & 240) * high[4 * g + i];
      }
    }
  }
  return sums;
}

inline std::int32_t low_dot(const std::uint8_t* row, std::int64_t bytes, const std::int8_t* low, const std::int8_t* high) {
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < bytes; ++i) sum += (row[i] & 15) * low[i] + (row[i] >> 4) * high[i];
  return sum;
}

constexpr int kTileBits = 8;
constexpr int kTileLevels = 127;
constexpr int kTileFactor = 1;
constexpr int kTileMiddle = 128;
constexpr int kTileBlocks = 1;
constexpr int kTileQueries = 4;

inline void unpack_tile_lines(const std::uint8_t* lines, const std::uint8_t* low, std::int64_t low_stride, std::int64_t groups, std::uint8_t* out) {
  for (std::int64_t g = 0; g < groups; ++g) {
    for (int r = 0; r < 16; ++r) {
      for (int i = 0; i < 4; ++i) {
        const int high_byte = lines[64 * g + 4 * r + i];
        const int low_byte = low[r * low_stride + 4 * g + i];
        out[128 * g + 4 * r + i] = static_cast<std::uint8_t>((high_byte & 15) << 4 | (low_byte & 15));
        out[128 * g + 64 + 4 * r + i] = static_cast<std::uint8_t>((high_byte & 240) | low_byte >> 4);
      }
    }
  }
}

inline void tile_dots(const std::uint8_t* lines, std::int64_t, std::int64_t steps, const std::int8_t* queries, std::int64_t,
                      const std::int32_t* offsets, I16* sums) {
  for (int q = 0; q < kTileQueries; ++q) sums[q] = add16(I16{}, offsets[q]);
  for (std::int64_t s = 0; s < steps; ++s) {
    for (int q = 0; q < kTileQueries; ++q) {
      const std::int8_t* code = queries + 4 * (s * kTileQueries + q);
      for (int r = 0; r < 16; ++r) {
        const std::uint8_t* row = lines + 64 * s + 4 * r;
        sums[q].lane[r] += row[0] * code[0] + row[1] * code[1] + row[2] * code[2] + row[3] * code[3];
      }
    }
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
