// simd/code_panels.hpp in plain C++.
#pragma once

namespace prismem {
namespace PRISMEM_NAMESPACE {

constexpr int kCodePanelQueries = 4;
constexpr std::int32_t kCodePanelLevels = 127;

inline void fill_code_panel(const CodeView& codes, std::int64_t first, std::uint8_t* panel) {
  const std::int64_t groups = code_groups(codes.dim);
  const std::int64_t past = code_blocks(codes.count) * kCodeRows;
  for (std::int64_t r = 0; r < kCodeRows && first + r < past; ++r) {
    const std::int64_t row = first + r;
    const std::uint8_t* lines = codes.blocks + row / kCodeRows * code_block_bytes(codes.dim) + kCodeHeaderBytes + 4 * (row % kCodeRows);
    const std::uint8_t* low = codes.low + row * low_row_bytes(codes.dim);
    for (std::int64_t g = 0; g < groups; ++g) {
      for (int i = 0; i < 4; ++i) {
        const int high = lines[64 * g + i];
        const int rest = low[4 * g + i];
        panel[64 * g + 4 * r + i] = static_cast<std::uint8_t>((high & 15) << 4 | (rest & 15));
        panel[64 * (groups + g) + 4 * r + i] = static_cast<std::uint8_t>((high & 240) | rest >> 4);
      }
    }
  }
}

template <int Q>
inline void code_panel_dots(const std::uint8_t* panel, std::int64_t groups, const std::int8_t* queries, std::int64_t stride, I16 (&sums)[Q]) {
  for (int q = 0; q < Q; ++q) {
    sums[q] = I16{};
    for (int half = 0; half < 2; ++half) {
      const std::int8_t* query = queries + q * stride + half * (stride / 2);
      const std::uint8_t* lines = panel + half * 64 * groups;
      for (std::int64_t g = 0; g < groups; ++g) {
        for (int r = 0; r < kCodeRows; ++r) {
          for (int i = 0; i < 4; ++i) sums[q].lane[r] += lines[64 * g + 4 * r + i] * query[4 * g + i];
        }
      }
    }
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
