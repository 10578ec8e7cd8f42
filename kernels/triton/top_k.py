"""top_k on a GPU with Triton: score tiles, keep the best candidates a query and split, merge them by rank."""

from __future__ import annotations

from typing import Any

from prismem_core.kernels.triton import launch, work
from prismem_core.kernels.triton.launch import Config
from prismem_core.kernels.triton.row_scales import row_scales
from prismem_core.kernels.triton.selection import merge_candidates
from prismem_core.kernels.triton.top_k_kernel import best_of_batch, best_of_one

LARGEST_LIST = 256
"""More hits a query than this are found by sorting packed scores of a few queries at a time."""
LARGEST_PIECE = 2**30
"""Keys whose indices a candidate can hold are 2**31; longer segments are searched in pieces of this many."""


def top_k(
    queries: Any, keys: Any, ranges: Any, groups: Any, mask: Any, k: int, normalize: bool, min_score: float | None,
    scores: Any, indices: Any, counts: Any, flag: Any, *, device: Any, key_scales: tuple[Any, Any] | None = None,
) -> None:
    """Fill scores (m, k), indices (m, k) and counts (m,) for queries (m, d) and keys (n, d)."""
    num_queries, num_keys = queries.shape[0], keys.shape[0]
    if num_queries == 0:
        return
    if k == 0:
        counts.zero_()
        return
    q_scales = row_scales(queries, device=device) if normalize else (queries, queries)
    x_scales = (key_scales or row_scales(keys, device=device)) if normalize else (keys, keys)
    lists, first_list, most = partial_lists(
        queries, keys, q_scales, x_scales, ranges, groups, mask, k, normalize, min_score, flag, device
    )
    merge(lists, first_list, most, num_queries, k, scores, indices, counts, device)


def partial_lists(
    queries: Any, keys: Any, q_scales: Any, x_scales: Any, ranges: Any, groups: Any, mask: Any, k: int, normalize: bool,
    min_score: float | None, flag: Any, device: Any,
) -> tuple[Any, Any, int]:
    """Lists of candidates: (lists, k) int64, which are whose, and the most lists of a query."""
    num_queries, dim = queries.shape
    num_keys = keys.shape[0]
    config = Config(16, 1024, 128) if launch.INTERPRETED else Config(64, 128, 64)
    single = Config(1, 1024, 128) if launch.INTERPRETED else Config(1, 32, 256)
    programs = launch.processors(device) * 2
    thresholds = device.full((num_queries,), "int32", -(2**31))
    mask_strides = (0, 0)
    if mask is not None:
        mask_strides = (0, mask.stride(0)) if mask.dim() == 1 else (mask.stride(0), mask.stride(1))
        mask_bytes = mask.view(dtype=__import__("torch").uint8)
    else:
        mask_bytes = thresholds
    kind = {launch.kind_of(queries), launch.kind_of(keys)}

    def start(kernel: Any, chosen: Config, grid: int, items: Any, order: Any, first_list: Any, lists: Any, dense: Any) -> None:
        kernel[(grid,)](
            queries, keys, *q_scales, *x_scales, mask_bytes, flag if flag is not None else thresholds,
            items, order, first_list, thresholds, lists,
            num_queries, num_keys, dim, queries.stride(0), keys.stride(0), *mask_strides,
            *dense, k, 0.0 if min_score is None else min_score,
            BQ=chosen.block_queries, BN=chosen.block_keys, BD=chosen.block_dim, K=launch.power_of_two(k),
            EVEN=dim % chosen.block_dim == 0, GROUPED=items is not thresholds, SCALED=normalize and kind != {"float16"},
            COSINE=normalize, MASKED=0 if mask is None else mask.dim(), LIMITED=min_score is not None,
            FLAGGED=flag is not None, num_warps=chosen.warps, num_stages=chosen.stages,
        )

    with launch.on(device):
        if ranges is None:
            chosen = single if num_queries == 1 else config
            kernel = best_of_one if num_queries == 1 else best_of_batch
            blocks = -(-num_queries // chosen.block_queries)
            splits = work.split_count(num_keys, blocks, programs, 4 * chosen.block_keys)
            length = work.split_length(num_keys, splits, chosen.block_keys)
            splits = max(1, -(-num_keys // length))
            lists = device.empty((num_queries * splits, k), "int64")
            start(kernel, chosen, blocks * splits, thresholds, thresholds, thresholds, lists, (0, num_keys, length, splits, blocks))
            return lists, None, splits
        items = work.grouped_items(
            ranges, groups, num_queries, config.block_queries, max(config.block_keys, single.block_keys), programs,
            4 * config.block_keys,
        )
        first_list, order = device.upload(items.first_list), device.upload(items.order)
        lists = device.empty((max(int(items.first_list[-1]), 1), k), "int64")
        for kernel, chosen, table in ((best_of_one, single, items.single), (best_of_batch, config, items.batched)):
            if len(table):
                start(kernel, chosen, len(table), device.upload(table), order, first_list, lists, (0, 0, 0, 0, 1))
        return lists, first_list, items.most_lists


def merge(
    lists: Any, first_list: Any, most_lists: int, num_rows: int, k: int, scores: Any, indices: Any, counts: Any, device: Any
) -> None:
    """Rank the candidates of each row in rounds until one list is left, then write the hits."""
    width = lists.shape[1]
    while True:
        total = max(most_lists * width, 1)
        chunk = min(launch.power_of_two(max(total, k)), max(256, 4 * launch.power_of_two(k)))
        chunks = -(-total // chunk)
        last = chunks == 1
        result = lists if last else device.empty((num_rows, chunks, k), "int64")
        with launch.on(device):
            merge_candidates[(num_rows, chunks)](
                lists, lists if first_list is None else first_list, result, scores, indices, counts,
                most_lists, width, chunks, k, CHUNK=chunk, STEP=chunk if launch.INTERPRETED else min(chunk, 32),
                UNIFORM=first_list is None, LAST=last, num_warps=4,
            )
        if last:
            return
        lists, first_list, most_lists, width = result, None, chunks, k
