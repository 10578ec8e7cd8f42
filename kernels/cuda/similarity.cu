// similarity: all inner products, or cosines, of two sets of rows.
#include "search.cuh"
#include "selections.cuh"
#include "tiles.cuh"

namespace prismem::cuda {

namespace {

template <class T>
int launch_rows(Scan scan, std::int64_t items, const StoreScores::Output& out, void* stream) {
  stage(scan, 4, kQuadElements<T>);
  return launch(scan_rows<T, 4, StoreScores>, items, kScanThreads, 4 * static_cast<int>(scan.staged) * 4, stream, scan, out);
}

template <class T>
int launch_tiles(const Scan& scan, std::int64_t items, const StoreScores::Output& out, void* stream) {
  return launch(scan_tiles<T, 64, StoreScores>, items, kTileThreads, Tiles<64>::kBytes, stream, scan, out);
}

}  // namespace

}  // namespace prismem::cuda

extern "C" int prismem_cuda_similarity(const prismem_cuda_search* search, const prismem_cuda_plan* plan, const int64_t* table,
                                       void* workspace, float* scores) {
  using namespace prismem::cuda;
  const OnDevice on(search->device);
  if (on.code() != PRISMEM_CUDA_OK) return on.code();
  PlannedScan call = planned(*search, *plan, PRISMEM_CUDA_SIMILARITY, table, workspace);
  if (call.code != PRISMEM_CUDA_OK) return call.code;
  const StoreScores::Output out{scores, search->keys.count};
  switch (plan->path) {
    case PRISMEM_CUDA_PATH_ROWS_BATCH:
      return with_kind(call.scan.keys.kind,
                       [&](auto tag) { return launch_rows<decltype(tag)>(call.scan, plan->items, out, search->stream); });
    case PRISMEM_CUDA_PATH_TILES:
      return with_half_kind(call.scan.keys.kind,
                            [&](auto tag) { return launch_tiles<decltype(tag)>(call.scan, plan->items, out, search->stream); });
    default:
      return failed(PRISMEM_CUDA_ARGUMENT, "path: none of similarity");
  }
}
