// Walks keys block by block for packed queries: what top_k and similarity share.
#pragma once

#include "simd/panels.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {

// The keys of one block. `count` of them matter; the arrays go on, with the last key again, up to a multiple of eight.
template <class T>
struct KeyBlock {
  std::int64_t count;
  std::int64_t padded_count;
  std::int64_t ids[kKeyBlock];
  const T* rows[kKeyBlock];
  double norms[kKeyBlock];
  float scales[kKeyBlock];  // 1 / norm, NaN where a cosine cannot be taken from the float dot product
};

inline float scale_of(double norm) { return norm_is_safe(norm) ? static_cast<float>(1.0 / norm) : __builtin_nanf(""); }

// Takes the keys [begin, end), at most kKeyBlock, that a mask for all queries lets pass.
template <class T>
inline void take_keys(KeyBlock<T>& block, std::int64_t begin, std::int64_t end, const Mask& mask) {
  block.count = 0;
  if (mask.data == nullptr) {
    // A loop of its own that compilers vectorise: while a single query is served, memory waits for it.
    block.count = end - begin;
    for (std::int64_t j = 0; j < block.count; ++j) block.ids[j] = begin + j;
  } else {
    for (std::int64_t key = begin; key < end; ++key) {
      if (mask.data[key * mask.key_stride] != 0) block.ids[block.count++] = key;
    }
  }
  block.padded_count = (block.count + 7) / 8 * 8;
  for (std::int64_t j = block.count; j < block.padded_count; ++j) block.ids[j] = block.ids[block.count - 1];
}

template <class T>
inline void point_at_rows(KeyBlock<T>& block, const Rows& keys) {
  for (std::int64_t j = 0; j < block.padded_count; ++j) block.rows[j] = row_at<T>(keys, block.ids[j]);
}

// Copies the keys side by side as rows of padded_dim floats.
template <class T>
inline void copy_rows(KeyBlock<float>& block, const Rows& keys, float* copies) {
  for (std::int64_t j = 0; j < block.padded_count; ++j) {
    float* copy = copies + j * padded_dim(keys.dim);
    pack_row(row_at<T>(keys, block.ids[j]), keys.dim, copy);
    block.rows[j] = copy;
  }
}

template <class T>
inline void measure_norms(KeyBlock<T>& block, std::int64_t dim) {
  for (std::int64_t j = 0; j < block.padded_count; ++j) {
    block.norms[j] = j < block.count ? row_norm(block.rows[j], dim) : block.norms[block.count - 1];
    block.scales[j] = scale_of(block.norms[j]);
  }
}

// The bytes of keys [begin, end), to be read ahead where rows follow each other.
inline Ahead ahead_of(const Rows& keys, std::int64_t begin, std::int64_t end, std::int64_t item_size) {
  const char* base = static_cast<const char*>(keys.data);
  if (begin >= end || keys.stride < keys.dim || keys.stride > 2 * keys.dim) return Ahead{base, base};
  return Ahead{base + begin * keys.stride * item_size, base + end * keys.stride * item_size};
}

// The score of one pair from its dot product; `row` has room for padded_dim floats.
template <class T>
inline float score_of_dot(float dot, const PackedPanels& queries, std::int64_t query, const T* key, double key_norm, std::int64_t dim, float* row) {
  if (queries.norms == nullptr) {
    if (is_finite(dot)) return dot;
    unpack_query(queries, query, dim, row);
    return plain_score(dot, row, key, dim);
  }
  const double query_norm = queries.norms[query];
  if (!norm_is_safe(query_norm) || !norm_is_safe(key_norm)) unpack_query(queries, query, dim, row);
  return cosine_score(dot, query_norm, key_norm, row, key, dim);
}

// Calls visit(query, dots, block) for every query and block of keys of the task, the keys of a query in ascending order: dots[j] is
// the dot product with key block.ids[j]. The mask must be null or one for all queries.
template <class T, class Visit>
inline void scan_one_query(const ScanTask& task, const Mask& mask, const ScanScratch& scratch, Visit visit) {
  const Rows& keys = task.keys;
  unpack_query(task.queries, 0, keys.dim, scratch.row);
  KeyBlock<T> block;
  float dots[kKeyBlock];
  for (std::int64_t begin = task.key_begin; begin < task.key_end; begin += kKeyBlock) {
    take_keys(block, begin, task.key_end - begin < kKeyBlock ? task.key_end : begin + kKeyBlock, mask);
    if (block.count == 0) continue;
    point_at_rows(block, keys);
    // Where rows do not follow each other, the fetches go to what is there already.
    const std::int64_t group = kStreamKeys * keys.dim * static_cast<std::int64_t>(sizeof(T));
    const bool dense = keys.stride == keys.dim && block.ids[block.count - 1] - begin == block.count - 1;
    const std::int64_t ahead = dense ? (group > kStreamAheadBytes ? group : kStreamAheadBytes) : 0;
    for (std::int64_t j = 0; j < block.padded_count; j += kStreamKeys) {
      stream_dots(scratch.row, block.rows + j, keys.dim, reinterpret_cast<const char*>(block.rows[j]) + ahead, dots + j);
    }
    if (task.queries.norms != nullptr) measure_norms(block, keys.dim);
    visit(0, dots, block);
  }
}

template <class T>
inline void take_rows(KeyBlock<float>& block, const Rows& keys, bool, const ScanScratch& scratch) {
  copy_rows<T>(block, keys, scratch.keys);
}
template <>
inline void take_rows<float>(KeyBlock<float>& block, const Rows& keys, bool in_place, const ScanScratch& scratch) {
  if (in_place) {
    point_at_rows(block, keys);
  } else {
    copy_rows<float>(block, keys, scratch.keys);
  }
}

template <class T, class Visit>
inline void scan_many_queries(const ScanTask& task, const Mask& mask, const ScanScratch& scratch, Visit visit) {
  const Rows& keys = task.keys;
  const std::int64_t padded = padded_dim(keys.dim);
  const std::int64_t step = scan_keys(keys.dim);
  const bool in_place = padded == keys.dim && task.queries.count < kQueriesWorthACopy;
  KeyBlock<float> block;
  float dots[kPanelQueries * kKeyBlock];
  for (std::int64_t begin = task.key_begin; begin < task.key_end; begin += step) {
    const std::int64_t end = task.key_end - begin < step ? task.key_end : begin + step;
    take_keys(block, begin, end, mask);
    if (block.count == 0) continue;
    take_rows<T>(block, keys, in_place, scratch);
    if (task.queries.norms != nullptr) measure_norms(block, keys.dim);
    Ahead next_keys = ahead_of(keys, end, task.key_end - end < step ? task.key_end : end + step, sizeof(T));
    for (std::int64_t first = 0; first < task.queries.count; first += kPanelQueries) {
      const std::int64_t left = task.queries.count - first;
      const std::int64_t width = panel_width(left);
      const float* panel = task.queries.rows + first * padded;
      const float* following = left > kPanelQueries ? panel + width * padded : task.queries.rows;
      Ahead next_panel{reinterpret_cast<const char*>(following),
                       reinterpret_cast<const char*>(following + panel_width(left > kPanelQueries ? left - width : task.queries.count) * padded)};
      panel_dots(panel, width, block.rows, block.padded_count, padded, next_panel, next_keys, dots, kKeyBlock);
      for (std::int64_t q = 0; q < left && q < kPanelQueries; ++q) visit(first + q, dots + q * kKeyBlock, block);
    }
  }
}

template <class T, class Visit>
inline void scan_keys_of(const ScanTask& task, const Mask& mask, const ScanScratch& scratch, Visit visit) {
  if (task.queries.count == 1) {
    scan_one_query<T>(task, mask, scratch, visit);
  } else {
    scan_many_queries<T>(task, mask, scratch, visit);
  }
}

template <class Visit>
inline void scan_blocks(const ScanTask& task, const Mask& mask, const ScanScratch& scratch, Visit visit) {
  switch (task.keys.kind) {
    case Kind::f32: scan_keys_of<float>(task, mask, scratch, visit); break;
    case Kind::f16: scan_keys_of<Half>(task, mask, scratch, visit); break;
    case Kind::bf16: scan_keys_of<Bfloat>(task, mask, scratch, visit); break;
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
