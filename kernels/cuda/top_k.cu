// top_k: the best keys of each query.
//
// The keys are cut into pieces; a block scans one piece for some queries and keeps the best of each behind a threshold. The lists of
// the pieces are merged by a block a query. More hits than one pass can keep come from further passes below the hits found so far.
#include "search.cuh"
#include "selections.cuh"
#include "tiles.cuh"
#include "top_k_merge.cuh"

namespace prismem::cuda {

namespace {

template <class T, int kQueries>
int launch_rows(Scan scan, std::int64_t items, const BestOutput& hits, std::uint64_t* partial, void* stream) {
  using Selection = KeepBest<kScanThreads, kQueries>;
  stage(scan, kQueries, kQuadElements<T>);
  const int capacity = hits.width + kScanRound;
  const int bytes = kQueries * static_cast<int>(scan.staged) * 4 + BestLists<kScanThreads, kQueries>::bytes(capacity);
  return launch(scan_rows<T, kQueries, Selection>, items, kScanThreads, bytes, stream, scan,
                typename Selection::Output{hits, partial, capacity, kScanRound});
}

template <class T, int kQueries>
int launch_tiles(const Scan& scan, std::int64_t items, const BestOutput& hits, std::uint64_t* partial, void* stream) {
  using Selection = KeepBest<kTileThreads, kQueries>;
  const int capacity = hits.width + Tiles<kQueries>::kKeys;
  const int bytes = Tiles<kQueries>::kBytes + BestLists<kTileThreads, kQueries>::bytes(capacity);
  return launch(scan_tiles<T, kQueries, Selection>, items, kTileThreads, bytes, stream, scan,
                typename Selection::Output{hits, partial, capacity, Tiles<kQueries>::kKeys});
}

int launch_scan(int path, const Scan& scan, std::int64_t items, const BestOutput& hits, std::uint64_t* partial, void* stream) {
  switch (path) {
    case PRISMEM_CUDA_PATH_ROWS:
      return with_kind(scan.keys.kind, [&](auto tag) { return launch_rows<decltype(tag), 1>(scan, items, hits, partial, stream); });
    case PRISMEM_CUDA_PATH_ROWS_BATCH:
      return with_kind(scan.keys.kind, [&](auto tag) { return launch_rows<decltype(tag), 4>(scan, items, hits, partial, stream); });
    case PRISMEM_CUDA_PATH_TILES_SMALL:
      return with_half_kind(scan.keys.kind, [&](auto tag) { return launch_tiles<decltype(tag), 16>(scan, items, hits, partial, stream); });
    case PRISMEM_CUDA_PATH_TILES:
      return with_half_kind(scan.keys.kind, [&](auto tag) { return launch_tiles<decltype(tag), 64>(scan, items, hits, partial, stream); });
    default:
      return failed(PRISMEM_CUDA_ARGUMENT, "path: none of top_k");
  }
}

}  // namespace

}  // namespace prismem::cuda

extern "C" int prismem_cuda_top_k(const prismem_cuda_search* search, const prismem_cuda_plan* plan, const int64_t* table, void* workspace,
                                  float* scores, int64_t* indices, int64_t* counts) {
  using namespace prismem::cuda;
  const OnDevice on(search->device);
  if (on.code() != PRISMEM_CUDA_OK) return on.code();
  PlannedScan call = planned(*search, *plan, PRISMEM_CUDA_TOP_K, table, workspace);
  if (call.code != PRISMEM_CUDA_OK) return call.code;
  auto* partial = plan->splits > 1 ? reinterpret_cast<std::uint64_t*>(call.workspace + call.layout.partial) : nullptr;
  auto* ceilings = search->k > kWidestPass ? reinterpret_cast<std::uint64_t*>(call.workspace + call.layout.ceilings) : nullptr;
  for (std::int64_t column = 0; column == 0 || column < search->k; column += plan->width) {
    const auto width = static_cast<std::int32_t>(std::min(plan->width, search->k - column));
    const BestOutput hits{indices, scores, counts, ceilings, search->k, column, width};
    int code = launch_scan(plan->path, call.scan, plan->items, hits, partial, search->stream);
    if (code == PRISMEM_CUDA_OK && partial != nullptr) {
      code = launch_merge(Merge{partial, call.list_offsets, call.scan.order, plan->splits, width, hits}, search->queries.count,
                          search->stream);
    }
    if (code != PRISMEM_CUDA_OK) return code;
    if (plan->width == 0) break;
  }
  return PRISMEM_CUDA_OK;
}
