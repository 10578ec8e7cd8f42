// Plain views that cross every border of the native core; no code, so any file may include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prismem {

enum class Kind : std::int32_t { f32 = 0, f16 = 1, bf16 = 2 };

// A matrix (count, dim) whose rows are contiguous; `stride` is in elements between rows and may be zero or negative.
struct Rows {
  const void* data;
  std::int64_t count;
  std::int64_t dim;
  std::int64_t stride;
  Kind kind;
};

// Set i holds ids[offsets[i] .. offsets[i + 1]), in any order and perhaps repeated.
struct IdSets {
  const std::int32_t* ids;
  const std::int64_t* offsets;
  std::int64_t count;
};

// Bytes that say which key a query may see, at data[query * query_stride + key * key_stride]; null data allows all.
struct Mask {
  const std::uint8_t* data;
  std::int64_t query_stride;
  std::int64_t key_stride;
};

// Which range of keys each query row sees: segment g holds keys ranges[2 g] <= key < ranges[2 g + 1].
// Null ranges: one segment, all keys. Null groups: row i sees segment i (the whole where there are no ranges).
struct Segments {
  const std::int64_t* ranges;
  std::int64_t count;
  const std::int64_t* groups;
};

}  // namespace prismem
