// mmr_select: a diverse selection of the keys relevant to each query (maximal marginal relevance).
#include "mmr_pool.cuh"
#include "mmr_steps.cuh"
#include "search.cuh"

extern "C" int prismem_cuda_mmr_select(const prismem_cuda_search* search, const prismem_cuda_plan* plan, double relevance_weight,
                                       const int64_t* table, void* workspace, int64_t* indices, float* scores, int64_t* counts) {
  using namespace prismem::cuda;
  const OnDevice on(search->device);
  if (on.code() != PRISMEM_CUDA_OK) return on.code();
  PlannedScan call = planned(*search, *plan, PRISMEM_CUDA_MMR_SELECT, nullptr, workspace);
  if (call.code != PRISMEM_CUDA_OK) return call.code;
  const std::int64_t queries = search->queries.count;
  Mmr mmr{call.scan,    plan->table_length > 0 ? table : nullptr, search->k, relevance_weight, indices, scores, counts, nullptr,
          plan->longest};
  if (plan->path == PRISMEM_CUDA_PATH_POOL) {
    const PoolLayout layout{static_cast<int>((plan->longest + kPoolTile - 1) / kPoolTile * kPoolTile)};
    return with_kind(call.scan.keys.kind, [&](auto tag) {
      return launch(mmr_pool<decltype(tag)>, queries, kPoolThreads, layout.bytes(), search->stream, mmr, layout);
    });
  }
  if (plan->path != PRISMEM_CUDA_PATH_STEPS) return failed(PRISMEM_CUDA_ARGUMENT, "path: none of mmr_select");
  mmr.state = reinterpret_cast<float*>(call.workspace + call.layout.state);
  auto* picks = reinterpret_cast<Pick*>(call.workspace + call.layout.partial);
  return with_kind(call.scan.keys.kind, [&](auto tag) {
    using T = decltype(tag);
    stage(mmr.scan, 1, kQuadElements<T>);
    const int bytes = static_cast<int>(mmr.scan.staged) * 4 + kScanWarps * 16;
    int code = PRISMEM_CUDA_OK;
    for (std::int64_t step = 0; step <= search->k && code == PRISMEM_CUDA_OK; ++step) {
      Pick *even = picks, *odd = picks + plan->items;
      const MmrStep now{step, plan->splits, plan->span, step % 2 == 0 ? odd : even, step % 2 == 0 ? even : odd};
      code = launch(mmr_step<T>, plan->items, kScanThreads, bytes, search->stream, mmr, now);
    }
    return code;
  });
}
