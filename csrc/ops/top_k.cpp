// top_k: dot products of a block of keys, then one bounded heap a query; no score is written to memory beyond the block.
#include "simd/heap.hpp"
#include "simd/scan.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

constexpr float kInfinity = __builtin_inff();

// The largest float below a finite or infinite one.
inline float below(float value) {
  std::int32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  if (value == 0.0f) {
    bits = static_cast<std::int32_t>(0x80000001u);
  } else if (value != -kInfinity) {
    bits += bits < 0 ? 1 : -1;
  }
  __builtin_memcpy(&value, &bits, sizeof bits);
  return value;
}

// A score that is finite and not above this cannot change the heap: keys come in ascending order, so a tie with the worst hit loses.
inline float limit_of(const Heap& heap, float floor) {
  if (heap.size < heap.capacity) return floor;
  return heap.scores[0] > floor ? heap.scores[0] : floor;
}

// The same for dot * query scale * key scale, three products and two reciprocals in float: each rounds by 2^-24 of the value at
// most, and what underflows is below 2^-150 * 1e15. The cosine itself is clamped, so below -1 there is no limit.
inline float cosine_limit(float limit) {
  return limit < -1.0f ? -kInfinity : limit - __builtin_fabsf(limit) * 1e-6f - 1e-30f;
}

}  // namespace

void top_k_scan(const ScanTask& task, const TopKFilter& filter, std::int64_t segment_begin, Heap* heaps, const ScanScratch& scratch) {
  const Mask& mask = filter.mask;
  const bool own_masks = mask.data != nullptr && mask.query_stride != 0;
  const float floor = filter.has_min_score ? below(filter.min_score) : -kInfinity;
  const PackedPanels& queries = task.queries;
  scan_blocks(task, own_masks ? Mask{nullptr, 0, 0} : mask, scratch, [&](std::int64_t query, const float* dots, const auto& block) {
    Heap& heap = heaps[query];
    const std::uint8_t* allowed = own_masks ? mask.data + filter.mask_rows[query] * mask.query_stride : nullptr;
    const auto consider = [&](std::int64_t j) {
      const std::int64_t key = block.ids[j];
      if (allowed != nullptr && allowed[key * mask.key_stride] == 0) return;
      const float score = score_of_dot(dots[j], queries, query, block.rows[j], block.norms[j], task.keys.dim, scratch.row);
      if (!is_finite(score)) {
        if (heap.first_bad < 0) heap.first_bad = key - segment_begin;
        if (score != score) return;
      }
      if (filter.has_min_score && score < filter.min_score) return;
      push(heap, score, key - segment_begin);
    };
    const bool cosine = queries.norms != nullptr;
    const float scale = cosine ? scale_of(queries.norms[query]) : 1.0f;
    for (std::int64_t j = 0; j < block.count; j += 8) {
      const float limit = limit_of(heap, floor);
      unsigned bits = cosine ? outside8(mul8(mul8(load8(dots + j), splat8(scale)), load8(block.scales + j)), splat8(cosine_limit(limit)))
                             : outside8(load8(dots + j), splat8(limit));
      if (j + 8 > block.count) bits &= (1u << (block.count - j)) - 1u;
      for (; bits != 0; bits &= bits - 1) consider(j + __builtin_ctz(bits));
    }
  });
}

void pack_queries(const Rows& queries, const std::int64_t* ids, std::int64_t count, float* rows, double* norms) {
  switch (queries.kind) {
    case Kind::f32: pack_panels_of<float>(queries, ids, count, rows, norms); break;
    case Kind::f16: pack_panels_of<Half>(queries, ids, count, rows, norms); break;
    case Kind::bf16: pack_panels_of<Bfloat>(queries, ids, count, rows, norms); break;
  }
}

void top_k_merge(Heap& into, const Heap& from) {
  for (std::int64_t i = 0; i < from.size; ++i) push(into, from.scores[i], from.indices[i]);
  if (from.first_bad >= 0 && (into.first_bad < 0 || from.first_bad < into.first_bad)) into.first_bad = from.first_bad;
}

void top_k_finish(Heap& heap) {
  for (std::int64_t last = heap.size - 1; last > 0; --last) {
    const float score = heap.scores[last];
    const std::int64_t index = heap.indices[last];
    heap.scores[last] = heap.scores[0];
    heap.indices[last] = heap.indices[0];
    sift_down(heap, 0, last, score, index);
  }
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
