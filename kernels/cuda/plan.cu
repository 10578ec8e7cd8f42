#include <algorithm>
#include <string>
#include <vector>

#include "launch.cuh"
#include "plan.hpp"
#include "scan.cuh"

namespace prismem::cuda {

namespace {

std::int64_t up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

std::string number(std::int64_t value) { return std::to_string(value); }

int queries_of_path(int path) {
  switch (path) {
    case PRISMEM_CUDA_PATH_ROWS_BATCH:
      return 4;
    case PRISMEM_CUDA_PATH_TILES_SMALL:
      return 16;
    case PRISMEM_CUDA_PATH_TILES:
      return 64;
    default:
      return 1;
  }
}

bool has_tiles(const prismem_cuda_search& search) {
  return search.queries.kind == search.keys.kind && search.keys.kind != PRISMEM_CUDA_FLOAT32 && search.keys.dim > 0;
}

// How many queries share a range of keys, on average over the ranges that have any.
std::vector<std::int64_t> group_sizes(const prismem_cuda_search& search) {
  if (search.ranges == nullptr) return {search.queries.count};
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(search.segments), search.groups == nullptr ? 1 : 0);
  if (search.groups != nullptr) {
    for (std::int64_t q = 0; q < search.queries.count; ++q) ++sizes[static_cast<std::size_t>(search.groups[q])];
  }
  return sizes;
}

struct Range {
  std::int64_t begin, end;
};
Range range_of(const prismem_cuda_search& search, std::size_t group) {
  if (search.ranges == nullptr) return {0, search.keys.count};
  return {search.ranges[2 * group], search.ranges[2 * group + 1]};
}

std::int64_t splits_of(const Range& range, std::int64_t span) {
  return std::max<std::int64_t>(1, (range.end - range.begin + span - 1) / span);
}

int chosen_path(const prismem_cuda_search& search, int op, const prismem_cuda_plan& plan, std::int64_t queries_a_group) {
  if (op == PRISMEM_CUDA_MMR_SELECT) return plan.longest <= kLargestPool ? PRISMEM_CUDA_PATH_POOL : PRISMEM_CUDA_PATH_STEPS;
  if (op == PRISMEM_CUDA_SIMILARITY)
    return has_tiles(search) && queries_a_group >= 8 ? PRISMEM_CUDA_PATH_TILES : PRISMEM_CUDA_PATH_ROWS_BATCH;
  if (has_tiles(search) && queries_a_group >= 8) {
    const bool wide = op == PRISMEM_CUDA_TOP_K && search.k > kWidestTiles;
    return queries_a_group > 16 && !wide ? PRISMEM_CUDA_PATH_TILES : PRISMEM_CUDA_PATH_TILES_SMALL;
  }
  return queries_a_group >= 2 ? PRISMEM_CUDA_PATH_ROWS_BATCH : PRISMEM_CUDA_PATH_ROWS;
}

int checked(const prismem_cuda_search& search) {
  for (const prismem_cuda_rows* rows : {&search.queries, &search.keys}) {
    if (rows->count < 0 || rows->dim < 0 || rows->kind < 0 || rows->kind > PRISMEM_CUDA_BFLOAT16) {
      return failed(PRISMEM_CUDA_ARGUMENT, "rows: expected a count and a dimension of at least 0 and a kind from 0 to 2, got " +
                                               number(rows->count) + ", " + number(rows->dim) + ", " + number(rows->kind));
    }
  }
  if (search.queries.dim != search.keys.dim) {
    return failed(PRISMEM_CUDA_ARGUMENT,
                  "keys: expected " + number(search.queries.dim) + " dimensions, as the queries have, got " + number(search.keys.dim));
  }
  if (search.k < 0) return failed(PRISMEM_CUDA_ARGUMENT, "k: expected at least 0, got " + number(search.k));
  if (search.ranges == nullptr) return PRISMEM_CUDA_OK;
  if (search.groups == nullptr && search.segments != search.queries.count) {
    return failed(PRISMEM_CUDA_ARGUMENT,
                  "ranges: expected one a query, " + number(search.queries.count) + ", or groups; got " + number(search.segments));
  }
  for (std::int64_t g = 0; g < search.segments; ++g) {
    const Range range = range_of(search, static_cast<std::size_t>(g));
    if (range.begin < 0 || range.end < range.begin || range.end > search.keys.count) {
      return failed(PRISMEM_CUDA_ARGUMENT, "ranges: range " + number(g) + " goes from " + number(range.begin) + " to " + number(range.end) +
                                               " of " + number(search.keys.count) + " keys");
    }
  }
  for (std::int64_t q = 0; search.groups != nullptr && q < search.queries.count; ++q) {
    if (search.groups[q] < 0 || search.groups[q] >= search.segments) {
      return failed(PRISMEM_CUDA_ARGUMENT,
                    "groups: query " + number(q) + " has group " + number(search.groups[q]) + " of " + number(search.segments));
    }
  }
  return PRISMEM_CUDA_OK;
}

}  // namespace

Layout layout_of(const prismem_cuda_search& search, int op, const prismem_cuda_plan& plan) {
  Layout layout{};
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t at = layout.bytes;
    layout.bytes += up(bytes, 256);
    return at;
  };
  if (search.normalize != 0 && search.queries.powers == nullptr) {
    layout.query_powers = take(search.queries.count * 4);
    layout.query_inverses = take(search.queries.count * 4);
  }
  if (search.normalize != 0 && search.keys.powers == nullptr) {
    layout.key_powers = take(search.keys.count * 4);
    layout.key_inverses = take(search.keys.count * 4);
  }
  if (plan.splits > 1 && op == PRISMEM_CUDA_TOP_K) layout.partial = take(plan.lists * plan.width * 8);
  if (plan.splits > 1 && op == PRISMEM_CUDA_SEGMENT_MAX_SIMILARITY) layout.partial = take(plan.lists * 8);
  if (op == PRISMEM_CUDA_TOP_K && search.k > kWidestPass) layout.ceilings = take(search.queries.count * 8);
  if (plan.path == PRISMEM_CUDA_PATH_STEPS) {
    layout.partial = take(plan.lists * 16);  // the best candidates of two launches
    layout.state = take(search.queries.count * plan.longest * 8);
  }
  return layout;
}

}  // namespace prismem::cuda

using namespace prismem::cuda;

extern "C" int prismem_cuda_plan_search(const prismem_cuda_search* search, int op, prismem_cuda_plan* plan) {
  if (const int code = checked(*search); code != PRISMEM_CUDA_OK) return code;
  const std::vector<std::int64_t> sizes = group_sizes(*search);
  plan->longest = 0;
  std::int64_t used = 0;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    const Range range = range_of(*search, g);
    plan->longest = std::max(plan->longest, range.end - range.begin);
    used += sizes[g] > 0 ? 1 : 0;
  }
  if (plan->longest > 0x7fffffff) {
    return failed(PRISMEM_CUDA_ARGUMENT,
                  "keys: a query may see at most 2147483647 keys in one call, got " + number(plan->longest) + "; search pieces of them");
  }
  const std::int64_t queries_a_group = used == 0 ? 0 : (search->queries.count + used - 1) / used;
  if (plan->path == PRISMEM_CUDA_PATH_AUTO) plan->path = chosen_path(*search, op, *plan, queries_a_group);
  const bool tiles = plan->path == PRISMEM_CUDA_PATH_TILES || plan->path == PRISMEM_CUDA_PATH_TILES_SMALL;
  if (tiles && !has_tiles(*search))
    return failed(PRISMEM_CUDA_ARGUMENT, "path: tensor cores take rows of float16 or of bfloat16, and no mixture");
  plan->block_queries = queries_of_path(plan->path);
  plan->width = std::min(search->k, kWidestPass);
  if (plan->path == PRISMEM_CUDA_PATH_TILES && op == PRISMEM_CUDA_TOP_K && plan->width > kWidestTiles) {
    return failed(PRISMEM_CUDA_ARGUMENT, "path: blocks of 64 queries keep at most 64 hits each");
  }
  if (op == PRISMEM_CUDA_MMR_SELECT) {
    if (plan->path == PRISMEM_CUDA_PATH_POOL && plan->longest > kLargestPool) {
      return failed(PRISMEM_CUDA_ARGUMENT, "path: a pool holds at most 256 candidates, got " + number(plan->longest));
    }
    if (plan->path == PRISMEM_CUDA_PATH_POOL) plan->span = std::max<std::int64_t>(1, plan->longest);
    if (plan->span <= 0) {
      const std::int64_t blocks = static_cast<std::int64_t>(processors(search->device)) * 2;
      plan->span = up(std::max<std::int64_t>(256, (search->queries.count * plan->longest + blocks - 1) / blocks), kRowsAWarp * kScanWarps);
    }
    plan->splits = std::max<std::int64_t>(1, (plan->longest + plan->span - 1) / plan->span);
    plan->items = search->queries.count * plan->splits;
    plan->lists = 2 * plan->items;
    plan->table_length = search->ranges == nullptr ? 0 : 2 * search->queries.count;
    plan->workspace_bytes = layout_of(*search, op, *plan).bytes;
    return PRISMEM_CUDA_OK;
  }
  if (plan->span <= 0) {
    // Two blocks of the same size for each multiprocessor, but pieces long enough that their partial results do not matter.
    std::int64_t work = 0;
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      const Range range = range_of(*search, g);
      work += (sizes[g] + plan->block_queries - 1) / plan->block_queries * (range.end - range.begin);
    }
    const std::int64_t blocks = static_cast<std::int64_t>(processors(search->device)) * 2;
    plan->span = up(std::max<std::int64_t>(1024, (work + blocks - 1) / blocks), kScanRound);
  }
  plan->items = plan->lists = 0;
  plan->splits = 1;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    const std::int64_t splits = splits_of(range_of(*search, g), plan->span);
    plan->items += (sizes[g] + plan->block_queries - 1) / plan->block_queries * splits;
    plan->lists += sizes[g] * splits;
    if (sizes[g] > 0) plan->splits = std::max(plan->splits, splits);
  }
  plan->table_length = search->ranges == nullptr ? 0 : plan->items * kItemFields + 2 * search->queries.count + 1;
  plan->workspace_bytes = layout_of(*search, op, *plan).bytes;
  return PRISMEM_CUDA_OK;
}

// Items, then the queries in the order of groups, then where the partial results of each begin.
extern "C" int prismem_cuda_fill_table(const prismem_cuda_search* search, const prismem_cuda_plan* plan, int64_t* table) {
  if (plan->table_length == 0) return PRISMEM_CUDA_OK;
  const std::int64_t queries = search->queries.count;
  const auto group_of = [&](std::int64_t q) { return static_cast<std::size_t>(search->groups == nullptr ? q : search->groups[q]); };
  if (plan->path == PRISMEM_CUDA_PATH_POOL || plan->path == PRISMEM_CUDA_PATH_STEPS) {
    for (std::int64_t q = 0; q < queries; ++q) {
      const Range range = range_of(*search, group_of(q));
      table[2 * q] = range.begin;
      table[2 * q + 1] = range.end;
    }
    return PRISMEM_CUDA_OK;
  }
  const std::vector<std::int64_t> sizes = group_sizes(*search);
  std::vector<std::int64_t> firsts(sizes.size() + 1, 0);
  for (std::size_t g = 0; g < sizes.size(); ++g) firsts[g + 1] = firsts[g] + sizes[g];
  std::int64_t* order = table + plan->items * kItemFields;
  std::int64_t* offsets = order + queries;
  std::vector<std::int64_t> next(firsts.begin(), firsts.end() - 1);
  for (std::int64_t q = 0; q < queries; ++q) order[next[group_of(q)]++] = q;
  std::int64_t* item = table;
  offsets[0] = 0;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    const Range range = range_of(*search, g);
    const std::int64_t splits = splits_of(range, plan->span);
    for (std::int64_t q = firsts[g]; q < firsts[g + 1]; ++q) offsets[q + 1] = offsets[q] + splits;
    for (std::int64_t split = 0; split < splits; ++split) {
      const std::int64_t begin = range.begin + split * plan->span, end = std::min(range.end, begin + plan->span);
      for (std::int64_t q = firsts[g]; q < firsts[g + 1]; q += plan->block_queries) {
        const Item one{q,     std::min<std::int64_t>(plan->block_queries, firsts[g + 1] - q), begin, end, range.begin, offsets[q] + split,
                       splits};
        for (const std::int64_t field : {one.first, one.queries, one.begin, one.end, one.base, one.slot, one.slot_step}) *item++ = field;
      }
    }
  }
  return PRISMEM_CUDA_OK;
}
