"""top_k on a GPU with Triton: score tiles, keep the best candidates of each query and split, merge them by rank.

Sums of products are in float32, in an order that depends on the tile's size but not on the other queries of a call:
blocks of queries run the same arithmetic whatever they hold, so queries of a batch differ from single ones by rounding
only where a batch takes another configuration (one query; up to 16; more).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from prismem_core.kernels.triton import launch, table, work
from prismem_core.kernels.triton.launch import Config, Variant
from prismem_core.kernels.triton.row_scales import extremes, row_scales
from prismem_core.kernels.triton.selection import merge_candidates
from prismem_core.kernels.triton.top_k_kernel import best_of_batch, best_of_one

LARGEST_LIST = 256
"""More hits a query than this are found by sorting the candidates of a few queries at a time."""
LARGEST_PIECE = 2**30
"""Longer segments are searched in pieces of so many keys, whose indices a candidate can hold."""
SCRATCH_BYTES = 2**28
"""The most memory for candidates that are sorted."""
PROGRAMS_PER_PROCESSOR = 4
"""Programs that the splits of the keys should give each multiprocessor."""
_EMPTY = -(2**63)
_NOTHING = _EMPTY + 2**32 - 1
_LOW = 2**32 - 1


def top_k(
    queries: Any,
    keys: Any,
    ranges: Any,
    groups: Any,
    mask: Any,
    k: int,
    normalize: bool,
    min_score: float | None,
    scores: Any,
    indices: Any,
    counts: Any,
    flag: Any,
    *,
    device: Any,
    key_scales: tuple[Any, Any] | None = None,
) -> None:
    """Fill scores (m, k) float32, indices (m, k) int64 and counts (m,) int64 for queries (m, d) and keys (n, d).

    `ranges` (s, 2) and `groups` (m,) are int64 arrays of the host or None; `mask` bool (n,), (m, n) or None; `flag`
    (1,) int64 is lowered to the first query * n + key whose allowed score is not finite, or None. `key_scales` are the
    keys' `row_scales`, where they are known. Segments upload a table of work; nothing waits for the device.
    """
    num_queries = queries.shape[0]
    if num_queries == 0:
        return
    longest = keys.shape[0] if ranges is None else int((ranges[:, 1] - ranges[:, 0]).max(initial=0))
    if k == 0 or longest == 0:
        scores.fill_(-float("inf"))
        indices.fill_(-1)
        counts.zero_()
        return
    scales = None
    if normalize:
        scales = (*row_scales(queries, device=device), *(key_scales or row_scales(keys, device=device)))
    rescaled = None
    if scales is not None and {launch.kind_of(queries), launch.kind_of(keys)} != {"float16"}:
        rescaled = extremes((scales[0], scales[2]), device=device)
    search = Search(queries, keys, scales, rescaled, ranges, groups, mask, min_score, flag, device)
    if k <= LARGEST_LIST:
        _in_pieces(search, longest, LARGEST_PIECE, k, scores, indices, counts)
        return
    piece = max(min(longest, LARGEST_PIECE, SCRATCH_BYTES // 8), k)
    rows = max(1, SCRATCH_BYTES // (8 * piece))
    for first in range(0, num_queries, rows):
        last = min(first + rows, num_queries)
        block = search.of(first, last)
        _in_pieces(block, longest, piece, k, scores[first:last], indices[first:last], counts[first:last])


@dataclass(frozen=True)
class Search:
    """The arguments of a call that all its launches share; `scales` are powers and inverse lengths of both sides."""

    queries: Any
    keys: Any
    scales: tuple[Any, Any, Any, Any] | None
    rescaled: Any
    ranges: Any
    groups: Any
    mask: Any
    min_score: float | None
    flag: Any
    device: Any
    first_query: int = 0

    @property
    def count(self) -> int:
        """Queries of this search."""
        return int(self.queries.shape[0])

    @property
    def kind(self) -> str:
        """The kind of rows that decides the configuration: float32 where the two sides differ."""
        kinds = {launch.kind_of(self.queries), launch.kind_of(self.keys)}
        return kinds.pop() if len(kinds) == 1 else "float32"

    def of(self, first: int, last: int) -> Search:
        """The same search for some of the queries."""
        scales = self.scales
        if scales is not None:
            scales = (scales[0][first:last], scales[1][first:last], scales[2], scales[3])
        ranges, groups = self.ranges, self.groups
        if ranges is not None:
            ranges, groups = (ranges[first:last], None) if groups is None else (ranges, groups[first:last])
        mask = self.mask if self.mask is None or self.mask.dim() == 1 else self.mask[first:last]
        return replace(
            self,
            queries=self.queries[first:last],
            scales=scales,
            ranges=ranges,
            groups=groups,
            mask=mask,
            first_query=self.first_query + first,
        )


def _in_pieces(search: Search, longest: int, piece: int, k: int, scores: Any, indices: Any, counts: Any) -> None:
    """Search the segments in pieces of `piece` keys and put the hits of the pieces together."""
    find = _by_lists if k <= LARGEST_LIST else _by_sorting
    pieces = -(-longest // piece)
    if pieces == 1:
        find(search, 0, longest, k, scores, indices, counts)
        return
    device, shape = search.device, (pieces, search.count, k)
    parts = device.empty(shape, "float32"), device.empty(shape, "int64"), device.empty(shape[:2], "int64")
    for number in range(pieces):
        begin = number * piece
        find(search, begin, min(begin + piece, longest), k, *(part[number] for part in parts))
        parts[1][number] += begin
    # Hits of a piece are in order, and so are the pieces, so the place among all hits breaks ties as the index would.
    hits = parts[0].transpose(0, 1).reshape(search.count, -1)
    bits = hits.view(torch.int32)
    codes = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(torch.int64)
    places = torch.arange(pieces * k, device=hits.device)
    found = torch.arange(k, device=hits.device)[None, None, :] < parts[2].transpose(0, 1)[:, :, None]
    candidates = torch.where(found.reshape(search.count, -1), (codes << 32) | (_LOW - places), _EMPTY)
    if k <= LARGEST_LIST:
        merge(candidates, None, 1, search.count, k, scores, indices, counts, device)
    else:
        _unpack(torch.topk(candidates, k, dim=1).values, scores, indices, counts)
    all_indices = parts[1].transpose(0, 1).reshape(search.count, -1)
    indices.copy_(torch.where(indices < 0, indices, all_indices.gather(1, indices.clamp(min=0))))


def _by_lists(search: Search, begin: int, end: int, k: int, scores: Any, indices: Any, counts: Any) -> None:
    """The best of the keys begin to end of each segment, with lists of candidates in registers."""
    device, count = search.device, search.count
    batch, one = _configs(search, k)
    programs = launch.processors(device) * PROGRAMS_PER_PROCESSOR
    thresholds = device.full((count,), "int32", -(2**31))
    first_list = None
    with launch.on(device):
        if search.ranges is None:
            single = count == 1
            config = one if single else batch
            blocks = -(-count // config.block_queries)
            splits = work.split_count(end - begin, blocks, programs, 4 * config.block_keys)
            length = work.split_length(end - begin, splits, config.block_keys)
            most = splits = -(-(end - begin) // length)
            lists = device.empty((count * splits, k), "int64")
            dense = (begin, end, length, splits, blocks)
            _launch(search, single, config, blocks * splits, None, None, thresholds, lists, dense, k)
        else:
            tile = max(batch.block_keys, one.block_keys)
            items = work.grouped_items(
                search.ranges, search.groups, count, batch.block_queries, tile, programs, 4 * tile, begin, end
            )
            most = items.most_lists
            lists = device.empty((max(int(items.first_list[-1]), 1), k), "int64")
            order, first_list = device.upload(items.order), device.upload(items.first_list)
            for single, config, rows in ((True, one, items.single), (False, batch, items.batched)):
                if len(rows):
                    grouped = (device.upload(rows), order)
                    _launch(search, single, config, len(rows), grouped, first_list, thresholds, lists, None, k)
    merge(lists, first_list, most, count, k, scores, indices, counts, device)


def _by_sorting(search: Search, begin: int, end: int, k: int, scores: Any, indices: Any, counts: Any) -> None:
    """As `_by_lists`, for any k: all candidates of the queries are written and sorted."""
    device, count, width = search.device, search.count, end - begin
    config, _ = _configs(search, k)
    programs = launch.processors(device) * PROGRAMS_PER_PROCESSOR
    candidates = device.full((count, max(width, k)), "int64", _EMPTY)
    with launch.on(device):
        if search.ranges is None:
            blocks = -(-count // config.block_queries)
            splits = work.split_count(width, blocks, programs, config.block_keys)
            length = work.split_length(width, splits, config.block_keys)
            splits = -(-width // length)
            dense = (begin, end, length, splits, blocks)
            _launch(search, False, config, blocks * splits, None, None, None, candidates, dense, k)
        else:
            tile = config.block_keys
            items = work.grouped_items(
                search.ranges, search.groups, count, config.block_queries, tile, programs, tile, begin, end, single=False
            )
            if len(items.batched):
                grouped = (device.upload(items.batched), device.upload(items.order))
                _launch(search, False, config, len(items.batched), grouped, None, None, candidates, None, k)
    _unpack(torch.topk(candidates, k, dim=1).values, scores, indices, counts)


def _unpack(candidates: Any, scores: Any, indices: Any, counts: Any) -> None:
    """Candidates (m, k) in descending order as hits."""
    found = candidates > _NOTHING
    codes = (candidates >> 32).to(torch.int32)
    shown = torch.where(codes < 0, codes ^ 0x7FFFFFFF, codes).view(torch.float32)
    scores.copy_(torch.where(found, shown, -float("inf")))
    indices.copy_(torch.where(found, _LOW - (candidates & _LOW), -1))
    counts.copy_(found.sum(dim=1))


def merge(
    lists: Any,
    first_list: Any,
    most_lists: int,
    num_rows: int,
    k: int,
    scores: Any,
    indices: Any,
    counts: Any,
    device: Any,
) -> None:
    """Rank the candidates of each row in rounds until they fit one program, then write the k best as hits.

    `lists` (., width) int64: row i has the lists first_list[i] to first_list[i + 1] (a tensor on the device), at most
    `most_lists`, or exactly so many each without `first_list`. `k` is at most LARGEST_LIST.
    """
    width = lists.shape[1]
    while True:
        total = max(most_lists * width, 1)
        largest = max(256, 4 * launch.power_of_two(k))
        chunk = min(max(launch.power_of_two(total), launch.power_of_two(k)), largest)
        chunks = -(-total // chunk)
        result = lists if chunks == 1 else device.empty((num_rows, chunks, k), "int64")
        with launch.on(device):
            merge_candidates[(num_rows, chunks)](
                lists, lists if first_list is None else first_list, result, scores, indices, counts,
                most_lists, width, chunks, k,
                CHUNK=chunk, STEP=chunk if launch.INTERPRETED else min(chunk, 32), UNIFORM=first_list is None,
                LAST=chunks == 1, num_warps=4,
            )  # fmt: skip
        if chunks == 1:
            return
        lists, first_list, most_lists, width = result, None, chunks, k


def _configs(search: Search, k: int) -> tuple[Config, Config]:
    """Configurations for blocks of queries and for single ones."""
    sm, dim = launch.sm_of(search.device), int(search.queries.shape[1])
    op = "top_k" if k <= 32 else "top_k long" if k <= LARGEST_LIST else "top_k sorted"
    described = search.ranges is None and launch.is_describable(search.queries) and launch.is_describable(search.keys)
    batch = table.config_of(sm, op, search.kind, dim, max(search.count, 2), described)
    return batch, table.config_of(sm, "top_k one", search.kind, dim, 1)


def _launch(
    search: Search,
    single: bool,
    config: Config,
    programs: int,
    grouped: tuple[Any, Any] | None,
    first_list: Any,
    thresholds: Any,
    lists: Any,
    dense: tuple[int, int, int, int, int] | None,
    k: int,
) -> None:
    """Start `best_of_one` or `best_of_batch`; without `thresholds` every candidate is written."""
    queries, keys, mask = search.queries, search.keys, search.mask
    dim = int(keys.shape[1])
    kernel = best_of_one if single else best_of_batch
    values: dict[str, Any] = dict.fromkeys(kernel.arg_names)
    values |= {"queries": queries, "keys": keys, "dim": dim, "first_query": search.first_query, "k": k, "lists": lists}
    values |= {"num_queries": search.count, "num_keys": int(keys.shape[0]), "min_score": search.min_score}
    values |= {"query_stride": queries.stride(0), "key_stride": keys.stride(0), "flag": search.flag}
    values |= {"first_list": first_list, "thresholds": thresholds, "extremes": search.rescaled}
    values |= dict(zip(("key_begin", "key_end", "split_length", "splits", "query_blocks"), dense or (0,) * 5, strict=True))
    values |= dict(zip(("items", "order"), grouped or (None, None), strict=True))
    if search.scales is not None:
        values |= dict(
            zip(("query_powers", "query_inverse", "key_powers", "key_inverse"), search.scales, strict=True)
        )
    if mask is not None:
        strides = (0, mask.stride(0)) if mask.dim() == 1 else mask.stride()
        values |= {"mask": mask.view(torch.uint8), "mask_query_stride": strides[0], "mask_key_stride": strides[1]}
    constants: dict[str, Any] = {"BN": config.block_keys, "BD": config.block_dim, "K": launch.power_of_two(k)}
    constants["EVEN"] = dim % config.block_dim == 0
    if not single:
        values["width"] = int(lists.shape[1])
        constants |= {"BQ": config.block_queries, "PRIVATE_MASK": mask is not None and mask.dim() == 2}
        if thresholds is None:
            constants["K"] = 1
        if config.loads == "descriptor":
            values["described_queries"] = launch.described(queries, config.block_queries, config.block_dim)
            values["described_keys"] = launch.described(keys, config.block_keys, config.block_dim)
    kernel[(programs,)](**{**values, **constants}, num_warps=config.warps, num_stages=config.stages)
