"""top_k on a GPU with Triton: score tiles, keep the best candidates of each query and split, merge them by rank.

Sums of products are in float32, in an order that depends on the tile's size but not on the other queries of a call:
blocks of queries run the same arithmetic whatever they hold, so queries of a batch differ from single ones by rounding
only where a batch takes another configuration (one query; up to 16; more).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from prismem_core.kernels.triton import candidates, launch, table, work
from prismem_core.kernels.triton.candidates import LARGEST_LIST
from prismem_core.kernels.triton.launch import Config, Variant
from prismem_core.kernels.triton.row_scales import extremes, row_scales
from prismem_core.kernels.triton.top_k_kernel import best_of_batch, best_of_one

LARGEST_PIECE = 2**30
"""Longer segments are searched in pieces of so many keys, whose indices a candidate can hold."""
SCRATCH_BYTES = 2**28
"""The most memory for candidates that are sorted."""
HEAD_FRACTION = 32
LEAST_HEAD = 1024
"""Of many keys a HEAD_FRACTION is searched before the rest, and so on of these, down to LEAST_HEAD keys."""
PROGRAMS_PER_PROCESSOR = 4
"""Programs that the splits of the keys should give each multiprocessor."""


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
    """Search the segments in pieces of at most `piece` keys and put the hits of the pieces together.

    Few keys go first where there are many: their k-th best score keeps most others out of the lists from the start.
    """
    find = _by_lists if k <= LARGEST_LIST else _by_sorting
    device, count = search.device, search.count
    thresholds = device.full((count,), "int32", -(2**31))
    heads = search.ranges is None and k <= LARGEST_LIST
    bounds = work.pieces(longest, piece, LEAST_HEAD if heads else longest + 1, HEAD_FRACTION)
    if len(bounds) == 2:
        find(search, 0, longest, k, scores, indices, counts, thresholds)
        return
    shape = (len(bounds) - 1, count, k)
    parts = device.empty(shape, "float32"), device.empty(shape, "int64"), device.empty(shape[:2], "int64")
    for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
        part = (parts[0][number], parts[1][number], parts[2][number])
        find(search, begin, end, k, *part, thresholds)
        part[1].add_(begin)
        reached = torch.where(part[2] == k, candidates.ordered(part[0][:, -1]), -(2**31))
        torch.maximum(thresholds, reached, out=thresholds)
    candidates.join(parts, k, scores, indices, counts, device)


def _by_lists(
    search: Search, begin: int, end: int, k: int, scores: Any, indices: Any, counts: Any, thresholds: Any
) -> None:
    """The best of the keys begin to end of each segment, with lists of candidates in registers.

    Keys whose ordered scores are below the queries' `thresholds` (m,) int32 may be left out.
    """
    device, count = search.device, search.count
    batch, one = configs_of(search, k, launch.sm_of(device))
    first_list = None
    if search.ranges is None:
        kernel, config = (best_of_one, one) if count == 1 else (best_of_batch, batch)
        # A split begins with an empty list, which its first tiles fill: a few of them at least, but for a head one.
        least_keys = 4 * config.block_keys if begin else config.block_keys
        if count > 1 and k <= 16:  # all lists together take less than a hundredth of the scores in float32
            least_keys = max(least_keys, 210 * k)
        dense = _dense(search, config, begin, end, least_keys)
        most, programs = dense[3], dense[3] * dense[4]
        lists = device.empty((count * most, k), "int64")
        arguments = arguments_of(search, config, None, None, thresholds, lists, dense, k)
        with launch.on(device):
            launch.start(kernel, (programs,), arguments, config)
    else:
        tile = max(batch.block_keys, one.block_keys)
        items = _items(search, batch, tile, 4 * tile, begin, end)
        most = items.most_lists
        lists = device.empty((max(int(items.first_list[-1]), 1), k), "int64")
        order, first_list = device.upload(items.order), device.upload(items.first_list)
        for kernel, config, rows in ((best_of_one, one, items.single), (best_of_batch, batch, items.batched)):
            if len(rows):
                grouped = (device.upload(rows), order)
                arguments = arguments_of(search, config, grouped, first_list, thresholds, lists, None, k)
                with launch.on(device):
                    launch.start(kernel, (len(rows),), arguments, config)
    candidates.merge(lists, first_list, most, count, k, scores, indices, counts, device)


def _by_sorting(
    search: Search, begin: int, end: int, k: int, scores: Any, indices: Any, counts: Any, thresholds: Any
) -> None:
    """As `_by_lists`, for any k: all candidates of the queries are written and sorted."""
    device = search.device
    config, _ = configs_of(search, k, launch.sm_of(device))
    found = device.full((search.count, max(end - begin, k)), "int64", candidates.EMPTY)
    if search.ranges is None:
        dense = _dense(search, config, begin, end, config.block_keys)
        programs = dense[3] * dense[4]
        arguments = arguments_of(search, config, None, None, None, found, dense, k)
    else:
        items = _items(search, config, config.block_keys, config.block_keys, begin, end, single=False)
        programs = len(items.batched)
        grouped = (device.upload(items.batched), device.upload(items.order))
        arguments = arguments_of(search, config, grouped, None, None, found, None, k)
    if programs:
        with launch.on(device):
            launch.start(best_of_batch, (programs,), arguments, config)
    candidates.unpack(torch.topk(found, k, dim=1).values, scores, indices, counts)


def _programs(search: Search) -> int:
    return int(launch.processors(search.device)) * PROGRAMS_PER_PROCESSOR


def _dense(search: Search, config: Config, begin: int, end: int, least_keys: int) -> tuple[int, int, int, int, int]:
    """First key, past the last key, keys of a split, splits and blocks of queries of a search without segments."""
    blocks = -(-search.count // config.block_queries)
    splits = work.split_count(end - begin, blocks, _programs(search), least_keys)
    length = work.split_length(end - begin, splits, config.block_keys)
    return begin, end, length, -(-(end - begin) // length), blocks


def _items(
    search: Search, config: Config, tile: int, least_keys: int, begin: int, end: int, single: bool = True
) -> work.Items:
    return work.grouped_items(
        search.ranges,
        search.groups,
        search.count,
        config.block_queries,
        tile,
        _programs(search),
        least_keys,
        begin,
        end,
        single=single,
    )


def configs_of(search: Search, k: int, sm: int) -> tuple[Config, Config]:
    """Configurations for blocks of queries and for single ones."""
    dim, sides = int(search.queries.shape[1]), (search.queries, search.keys)
    one_kind = launch.kind_of(search.queries) == launch.kind_of(search.keys)
    described = one_kind and search.ranges is None and all(map(launch.is_describable, sides))
    op = "top_k" if k <= 32 else "top_k long" if k <= LARGEST_LIST // 2 else "top_k longest"
    if k > LARGEST_LIST:
        op = "top_k sorted"
    if not described and not all(map(launch.is_aligned, sides)):
        op = "top_k unaligned" if op in ("top_k", "top_k sorted") else "top_k longest"
    elif search.mask is not None and search.mask.dim() == 2:
        op = "top_k masked" if op in ("top_k", "top_k sorted") else "top_k longest"
    batch = table.config_of(sm, op, search.kind, dim, max(search.count, 2), described)
    return batch, table.config_of(sm, "top_k one", search.kind, dim, 1)


def arguments_of(
    search: Search,
    config: Config,
    grouped: tuple[Any, Any] | None,
    first_list: Any,
    thresholds: Any,
    lists: Any,
    dense: tuple[int, int, int, int, int] | None,
    k: int,
) -> dict[str, Any]:
    """Arguments of `best_of_one` or `best_of_batch`; without `thresholds` every candidate is written."""
    queries, keys, mask = search.queries, search.keys, search.mask
    dim = int(keys.shape[1])
    values: dict[str, Any] = {"queries": queries, "keys": keys, "dim": dim, "lists": lists, "k": k}
    values |= {"num_queries": search.count, "num_keys": int(keys.shape[0]), "min_score": search.min_score}
    values |= {"query_stride": queries.stride(0), "key_stride": keys.stride(0), "flag": search.flag}
    values |= {"first_list": first_list, "thresholds": thresholds, "extremes": search.rescaled}
    values |= {"first_query": search.first_query, "width": int(lists.shape[1])}
    if dense is not None:
        values |= dict(zip(("key_begin", "key_end", "split_length", "splits", "query_blocks"), dense, strict=True))
    if grouped is not None:
        values |= dict(zip(("items", "order"), grouped, strict=True))
    if search.scales is not None:
        names = ("query_powers", "query_inverse", "key_powers", "key_inverse")
        values |= dict(zip(names, search.scales, strict=True))
    if mask is not None:
        strides = (0, mask.stride(0)) if mask.dim() == 1 else mask.stride()
        values |= {"mask": mask.view(torch.uint8), "mask_query_stride": strides[0], "mask_key_stride": strides[1]}
    values |= {"BQ": config.block_queries, "BN": config.block_keys, "BD": config.block_dim}
    values["K"] = 1 if thresholds is None else launch.power_of_two(k)
    values["EVEN"] = dim % config.block_dim == 0
    values["PRIVATE_MASK"] = mask is not None and mask.dim() == 2
    if config.loads == "descriptor":
        values["described_queries"] = launch.described(queries, config.block_queries, config.block_dim)
        values["described_keys"] = launch.described(keys, config.block_keys, config.block_dim)
    return values


_CASES: tuple[tuple[str, str, int, int, dict[str, Any]], ...] = (
    ("few", "float16", 16, 10, {}),
    ("more", "float16", 64, 10, {}),
    ("many", "float16", 1024, 10, {}),
    ("many cosines k=32", "bfloat16", 1024, 32, {"normalize": True, "mask": 1}),
    ("more", "float32", 64, 10, {}),
    ("many cosines", "float32", 1024, 32, {"normalize": True, "mask": 1, "min_score": 0.5}),
    ("groups", "float16", 64, 10, {"grouped": True, "normalize": True}),
    ("groups masked", "float16", 64, 32, {"grouped": True, "normalize": True, "mask": 2, "min_score": 0.5}),
    ("groups masked", "float32", 64, 32, {"grouped": True, "normalize": True, "mask": 2, "min_score": 0.5}),
    ("long lists", "float16", 64, 100, {}),
    ("long lists cosines", "bfloat16", 1024, 100, {"normalize": True, "mask": 1, "min_score": 0.5}),
    ("long lists cosines", "float32", 64, 100, {"normalize": True, "mask": 1, "min_score": 0.5}),
    ("longest lists masked", "float16", 64, LARGEST_LIST, {"normalize": True, "mask": 2, "min_score": 0.5}),
    ("longest lists masked", "float32", 64, LARGEST_LIST, {"normalize": True, "mask": 2, "min_score": 0.5}),
    ("sorted cosines", "bfloat16", 64, 1000, {"normalize": True, "min_score": 0.5}),
    ("many uneven cosines", "bfloat16", 1024, 10, {"dim": 1040, "normalize": True}),
    ("unaligned masked", "bfloat16", 1024, 32, {"dim": 1001, "normalize": True, "mask": 2, "min_score": 0.5}),
    ("unaligned masked", "float32", 1024, 32, {"dim": 1001, "normalize": True, "mask": 2, "min_score": 0.5}),
    ("unlike kinds", "float32", 64, 10, {"key_kind": "float16"}),
    ("one", "float16", 1, 10, {}),
    ("one cosine", "float32", 1, LARGEST_LIST, {"normalize": True, "mask": 1, "min_score": 0.5}),
)
"""Launches that cover the configurations of the table: name, kind, queries, k and what else is special."""


def variants(sm: int) -> list[Variant]:
    """What the launchers compile for a compute capability, in the cases with the most registers among others."""
    cases = [_variant(sm, *case) for case in _CASES]
    return [*cases, *candidates.variants(sm)]


def _variant(sm: int, name: str, kind: str, count: int, k: int, special: Mapping[str, Any]) -> Variant:
    def tensor(*shape: int, kind: str = "float32") -> Any:
        return torch.empty(*shape, dtype=getattr(torch, kind), device="meta")

    dim, num_keys, normalize = special.get("dim", 1024), 10**6, special.get("normalize", False)
    masks = {None: None, 1: tensor(num_keys, kind="bool"), 2: tensor(count, num_keys, kind="bool")}
    search = Search(
        tensor(count, dim, kind=kind),
        tensor(num_keys, dim, kind=special.get("key_kind", kind)),
        (tensor(count), tensor(count), tensor(num_keys), tensor(num_keys)) if normalize else None,
        tensor(1, kind="int32") if normalize and kind != "float16" else None,
        () if special.get("grouped") else None,
        None,
        masks[special.get("mask")],
        special.get("min_score"),
        tensor(1, kind="int64"),
        None,
    )
    batch, one = configs_of(search, k, sm)
    config = one if count == 1 else batch
    thresholds = None if k > LARGEST_LIST else tensor(count, kind="int32")
    grouped = (tensor(9, 6, kind="int64"), tensor(9, kind="int64")) if special.get("grouped") else None
    first_list = None if grouped is None else tensor(9, kind="int64")
    dense = (0, num_keys, 12800, 79, 16) if grouped is None else None
    lists = tensor(9, k if thresholds is not None else num_keys, kind="int64")
    arguments = arguments_of(search, config, grouped, first_list, thresholds, lists, dense, k)
    notes = {}
    if sm >= 90 and config.block_queries < 64:
        notes["mma"] = "fewer than 64 queries do not fill the tile of a warp group"
    if dim % 16:
        notes["loads"] = "rows are not aligned"
    kernel = best_of_one if count == 1 else best_of_batch
    title = f"top_k/{kind} {name}"
    return launch.variant(title, "top_k", kernel, arguments, config, batched=count > 1, notes=notes)
