// segment_max_similarity: how close the closest item of a set comes to a piece of evidence (Eq. 8).
//
// Sets of one piece of evidence are read once, a warp an item; evidence that shares a set is scored four at a time in the same way,
// or with tensor cores. Each thread keeps its largest (score, index) key; a range that is cut into pieces ends with their maximum.
#include "search.cuh"
#include "selections.cuh"
#include "tiles.cuh"

namespace prismem::cuda {

namespace {

template <int kQueries>
using LargestOfRows = KeepLargest<kScanThreads, kQueries, 1>;
template <int kQueries>
using LargestOfTiles = KeepLargest<kTileThreads, kQueries, 2>;

constexpr int kFinishThreads = 256;

// The largest of the partial results of each query.
PRISMEM_KERNEL(kFinishThreads, 2)
largest_of_pieces(const LargestOfRows<1>::Output out, const std::int64_t* order, const std::int64_t* offsets, std::int64_t splits,
                  std::int64_t queries) {
  const std::int64_t position = block_index() * kFinishThreads + thread_index();
  if (position >= queries) return;
  const std::int64_t begin = offsets == nullptr ? position * splits : load(offsets + position);
  const std::int64_t end = offsets == nullptr ? begin + splits : load(offsets + position + 1);
  std::uint64_t largest = 0;
  for (std::int64_t list = begin; list < end; ++list) {
    const std::uint64_t key = load(out.partial + list);
    largest = key > largest ? key : largest;
  }
  LargestOfRows<1>::write_largest(out, order == nullptr ? position : load(order + position), largest);
}

template <class T, int kQueries>
int launch_rows(Scan scan, std::int64_t items, const LargestOfRows<1>::Output& out, void* stream) {
  using Selection = LargestOfRows<kQueries>;
  stage(scan, kQueries, kQuadElements<T>);
  const int bytes = kQueries * static_cast<int>(scan.staged) * 4 + Selection::bytes();
  return launch(scan_rows<T, kQueries, Selection>, items, kScanThreads, bytes, stream, scan,
                typename Selection::Output{out.values, out.indices, out.partial});
}

template <class T, int kQueries>
int launch_tiles(const Scan& scan, std::int64_t items, const LargestOfRows<1>::Output& out, void* stream) {
  using Selection = LargestOfTiles<kQueries>;
  const int bytes = Tiles<kQueries>::kBytes + Selection::bytes();
  return launch(scan_tiles<T, kQueries, Selection>, items, kTileThreads, bytes, stream, scan,
                typename Selection::Output{out.values, out.indices, out.partial});
}

}  // namespace

}  // namespace prismem::cuda

extern "C" int prismem_cuda_segment_max_similarity(const prismem_cuda_search* search, const prismem_cuda_plan* plan, const int64_t* table,
                                                   void* workspace, float* values, int64_t* indices) {
  using namespace prismem::cuda;
  const OnDevice on(search->device);
  if (on.code() != PRISMEM_CUDA_OK) return on.code();
  PlannedScan call = planned(*search, *plan, PRISMEM_CUDA_SEGMENT_MAX_SIMILARITY, table, workspace);
  if (call.code != PRISMEM_CUDA_OK) return call.code;
  LargestOfRows<1>::Output out{values, indices, nullptr};
  if (plan->splits > 1) out.partial = reinterpret_cast<std::uint64_t*>(call.workspace + call.layout.partial);
  void* stream = search->stream;
  int code = PRISMEM_CUDA_ARGUMENT;
  switch (plan->path) {
    case PRISMEM_CUDA_PATH_ROWS:
      code = with_kind(call.scan.keys.kind, [&](auto tag) { return launch_rows<decltype(tag), 1>(call.scan, plan->items, out, stream); });
      break;
    case PRISMEM_CUDA_PATH_ROWS_BATCH:
      code = with_kind(call.scan.keys.kind, [&](auto tag) { return launch_rows<decltype(tag), 4>(call.scan, plan->items, out, stream); });
      break;
    case PRISMEM_CUDA_PATH_TILES_SMALL:
      code = with_half_kind(call.scan.keys.kind,
                            [&](auto tag) { return launch_tiles<decltype(tag), 16>(call.scan, plan->items, out, stream); });
      break;
    case PRISMEM_CUDA_PATH_TILES:
      code = with_half_kind(call.scan.keys.kind,
                            [&](auto tag) { return launch_tiles<decltype(tag), 64>(call.scan, plan->items, out, stream); });
      break;
    default:
      return failed(PRISMEM_CUDA_ARGUMENT, "path: none of segment_max_similarity");
  }
  if (code != PRISMEM_CUDA_OK || plan->splits == 1) return code;
  const std::int64_t queries = search->queries.count;
  return launch(largest_of_pieces, (queries + kFinishThreads - 1) / kFinishThreads, kFinishThreads, 0, stream, out, call.scan.order,
                call.list_offsets, plan->splits, queries);
}
