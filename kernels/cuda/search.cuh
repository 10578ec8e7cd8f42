// A planned call as kernels take it.
#pragma once

#include <algorithm>

#include "launch.cuh"
#include "plan.hpp"
#include "scan.cuh"

namespace prismem::cuda {

struct PlannedScan {
  Scan scan;
  const std::int64_t* list_offsets;  // null: `splits` lists a query
  unsigned char* workspace;
  Layout layout;
  int code;
};

// The scan of a call; launches what finds the lengths of rows where they are needed.
inline PlannedScan planned(const prismem_cuda_search& search, const prismem_cuda_plan& plan, int op, const std::int64_t* table,
                           void* workspace) {
  PlannedScan result{};
  Scan& scan = result.scan;
  result.workspace = static_cast<unsigned char*>(workspace);
  result.layout = layout_of(search, op, plan);
  scan.queries = view_of(search.queries);
  scan.keys = view_of(search.keys);
  scan.dim = search.queries.dim;
  scan.normalize = search.normalize;
  scan.filter =
      Filter{search.mask, search.mask_query_stride, search.mask_key_stride, search.keys.count, search.flag, search.least, search.has_least};
  scan.block_queries = plan.block_queries;
  scan.splits = plan.splits;
  scan.span = plan.span;
  scan.query_blocks = (search.queries.count + plan.block_queries - 1) / plan.block_queries;
  if (plan.table_length > 0) {
    scan.items = table;
    scan.order = table + plan.items * kItemFields;
    result.list_offsets = scan.order + search.queries.count;
  }
  if (search.normalize != 0) {
    struct {
      RowsView* view;
      std::int64_t powers, inverses;
    } const sides[] = {{&scan.queries, result.layout.query_powers, result.layout.query_inverses},
                       {&scan.keys, result.layout.key_powers, result.layout.key_inverses}};
    for (const auto& side : sides) {
      if (side.view->powers != nullptr) continue;
      auto* powers = reinterpret_cast<float*>(result.workspace + side.powers);
      auto* inverses = reinterpret_cast<float*>(result.workspace + side.inverses);
      result.code = launch_row_scales(*side.view, scan.dim, powers, inverses, search.stream);
      if (result.code != PRISMEM_CUDA_OK) return result;
      side.view->powers = powers;
      side.view->inverses = inverses;
    }
  }
  return result;
}

// Elements of a query that are in shared memory at a time, and the bytes that they take.
inline void stage(Scan& scan, int block_queries, int elements_a_quad) {
  const std::int64_t most = block_queries == 1 ? 8192 : 4096, least = 2 * elements_a_quad;
  scan.staged = std::min<std::int64_t>(most, std::max<std::int64_t>(least, (scan.dim + least - 1) / least * least));
}

}  // namespace prismem::cuda
