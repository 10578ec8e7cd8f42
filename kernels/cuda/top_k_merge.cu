#include "launch.cuh"
#include "plan.hpp"
#include "top_k_merge.cuh"

namespace prismem::cuda {

namespace {

PRISMEM_KERNEL(kMergeThreads, 2) merge_lists(const Merge merge) {
  const std::int64_t position = block_index();
  const std::int64_t begin = merge.offsets == nullptr ? position * merge.lists_a_query : load(merge.offsets + position);
  const std::int64_t end = merge.offsets == nullptr ? begin + merge.lists_a_query : load(merge.offsets + position + 1);
  const BestLists<kMergeThreads, 1> best(0, merge.hits.width + kMergeThreads, kMergeThreads, merge.hits.width);
  best.clear();
  sync_block<12>();
  for (std::int64_t from = begin * merge.list_width; from < end * merge.list_width; from += kMergeThreads) {
    const std::int64_t at = from + thread_index();
    const std::uint64_t key = at < end * merge.list_width ? load(merge.keys + at) : 0;
    if (key > best.thresholds.get(0)) best.append(0, key);
    best.cut_full(1);
  }
  best.sort(0);
  write_hits<kMergeThreads>(merge.hits, merge.order == nullptr ? position : load(merge.order + position), best.keys, best.counts.get(0));
}

}  // namespace

int launch_merge(const Merge& merge, std::int64_t queries, void* stream) {
  return launch(merge_lists, queries, kMergeThreads, BestLists<kMergeThreads, 1>::bytes(merge.hits.width + kMergeThreads), stream, merge);
}

}  // namespace prismem::cuda

extern "C" int prismem_cuda_top_k_merge(const uint64_t* keys, const int64_t* offsets, int64_t lists_a_query, int64_t list_width,
                                        int64_t queries, int64_t k, float* scores, int64_t* indices, int64_t* counts, int device,
                                        void* stream) {
  using namespace prismem::cuda;
  if (k < 1 || k > kWidestPass || list_width < 0) {
    return failed(PRISMEM_CUDA_ARGUMENT, "k: a merge finds 1 to 256 hits of lists of at least 0 keys, got " + std::to_string(k) + " and " +
                                             std::to_string(list_width));
  }
  const OnDevice on(device);
  if (on.code() != PRISMEM_CUDA_OK) return on.code();
  const BestOutput hits{indices, scores, counts, nullptr, k, 0, static_cast<std::int32_t>(k)};
  return launch_merge(Merge{keys, offsets, nullptr, lists_a_query, static_cast<std::int32_t>(list_width), hits}, queries, stream);
}
