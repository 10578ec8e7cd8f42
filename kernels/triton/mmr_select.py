"""mmr_select on a GPU: relevance of all candidates first, then one program a query that picks them one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays.device import Device
from prismem_core.kernels.triton import group_scores
from prismem_core.kernels.triton.group_scores import Operands, largest_group, launch_variant, operands, work_for
from prismem_core.kernels.triton.launch import INTERPRETED, Config, Variant, on, power_of_two
from prismem_core.kernels.triton.mmr_select_kernel import (
    relevance_of_block,
    relevance_of_single,
    select,
    similarity_of_tile,
)
from prismem_core.kernels.triton.top_k import top_k

Integers = NDArray[np.int64]

SCRATCH_BYTES = 1 << 28
"""Queries are taken in stretches whose relevance, penalties and similarities need no more than about this."""

LONGEST_GIVEN = 512
"""Keys of a segment up to which the similarities of all of them may be computed before the selection."""

GIVEN_WORTH = 16
"""Similarities that tensor cores compute from tiles in the time of one that is computed when a pick is made."""


def mmr_select(
    queries: Any,
    keys: Any,
    ranges: Integers | None,
    groups: Integers | None,
    mask: Any | None,
    k: int,
    relevance_weight: float,
    min_relevance: float | None,
    normalize: bool,
    indices: Any,
    scores: Any,
    counts: Any,
    flag: Any | None,
    *,
    device: Device,
    key_scales: tuple[Any, Any] | None = None,
) -> None:
    """Fill `indices` (m, k) int64, `scores` (m, k) float32 and `counts` (m,) int64 for `queries` (m, d) and `keys` (n, d).

    Ties: the lowest index. With weight 1 the picks are those of `top_k`, and no similarity is computed. `flag` covers
    the relevance of keys that the mask lets pass. Uploads tables of the segments.
    """
    num_queries, num_keys = queries.shape[0], keys.shape[0]
    if relevance_weight == 1.0 or num_queries == 0 or k == 0 or num_keys == 0:
        top_k(
            queries, keys, ranges, groups, mask, k, normalize, min_relevance, scores, indices, counts, flag,
            device=device, key_scales=key_scales,
        )
        return
    pair = operands(queries, keys, normalize, device, key_scales)
    if ranges is None:
        ranges, groups = np.array([[0, num_keys]], np.int64), np.zeros(num_queries, np.int64)
    elif groups is None:
        groups = np.arange(num_queries, dtype=np.int64)
    own_ranges = ranges[groups]
    longest = max(1, int((own_ranges[:, 1] - own_ranges[:, 0]).max()))
    given = similarities_pay(own_ranges, groups, k)
    need = 12 * longest + (4 * longest * longest if given else 0)
    stretch = max(1, SCRATCH_BYTES // need)
    weights = device.upload(np.array([relevance_weight, 1.0 - relevance_weight]))
    for first in range(0, num_queries, stretch):
        part = slice(first, min(first + stretch, num_queries))
        own_mask = mask[part] if mask is not None and mask.dim() == 2 else mask
        with on(device):
            _select_part(
                pair, part, ranges, groups[part], own_mask, k, min_relevance, longest, given, weights,
                indices[part], scores[part], counts[part], flag, device,
            )


def similarities_pay(own_ranges: Integers, groups: Integers, k: int) -> bool:
    """Whether the similarities of all keys of a segment are computed first."""
    lengths = own_ranges[:, 1] - own_ranges[:, 0]
    if k < 2 or int(lengths.max()) > LONGEST_GIVEN:
        return False
    _, one = np.unique(groups, return_index=True)
    return int((lengths[one] ** 2).sum()) <= 2 * GIVEN_WORTH * k * int(lengths.sum())


def _select_part(
    pair: Operands,
    part: slice,
    ranges: Integers,
    groups: Integers,
    mask: Any | None,
    k: int,
    min_relevance: float | None,
    longest: int,
    given: bool,
    weights: Any,
    indices: Any,
    scores: Any,
    counts: Any,
    flag: Any | None,
    device: Device,
) -> None:
    """The picks of some queries."""
    queries, keys = pair.rows[part], pair.keys
    count, num_keys = len(groups), keys.shape[0]
    query_scales = [scale[part] for scale in pair.scales[:2]]
    key_scales = pair.scales[2:]
    relevance = device.empty((count, longest), "float32")
    penalty = device.empty((count, longest), "float64")
    alone, batch = pair.config(1), pair.config(largest_group(ranges, groups, count))
    work = work_for(ranges, groups, count, num_keys, batch, alone, one_tile=True)
    order = device.upload(work.order)
    mask_strides = (0, 0) if mask is None else (0, mask.stride(0)) if mask.dim() == 1 else mask.stride()
    bytes_of_mask = relevance if mask is None else mask.view(dtype=_torch().uint8)
    for kernel, table, config in ((relevance_of_block, work.blocks, batch), (relevance_of_single, work.singles, alone)):
        programs = table.shape[1]
        if programs:
            kernel[(programs,)](
                queries, keys, order, device.upload(table), relevance, bytes_of_mask, order if flag is None else flag,
                *query_scales, *key_scales, queries.stride(0), keys.stride(0), *mask_strides, pair.dim, longest,
                num_keys, part.start, programs, group_scores.PIECE, 0.0 if min_relevance is None else min_relevance,
                BQ=config.block_queries, BN=config.block_keys, BD=config.block_dim,
                EVEN=pair.dim % config.block_dim == 0, SCALED=pair.scaled, COSINE=pair.cosine,
                MASKED=0 if mask is None else mask.dim(), LIMITED=min_relevance is not None, FLAGGED=flag is not None,
                num_warps=config.warps, num_stages=config.stages,
            )
    seen, slot = np.unique(groups, return_inverse=True)
    similarity = relevance
    if given:
        similarity = device.empty((len(seen), longest, longest), "float32")
        _similarities(pair, ranges[seen], similarity, longest, device)
    segments = np.stack([ranges[groups, 0], ranges[groups, 1] - ranges[groups, 0], slot.reshape(-1)])
    config = select_config(pair.dim, longest, given)
    select[(count,)](
        keys, relevance, penalty, similarity, device.upload(segments.astype(np.int64)), weights, indices, scores, counts,
        *key_scales, keys.stride(0), pair.dim, longest, count, k,
        BN=config.block_keys, BD=config.block_dim, EVEN=pair.dim % config.block_dim == 0, SCALED=pair.scaled,
        COSINE=pair.cosine, GIVEN=given, num_warps=config.warps, num_stages=config.stages, enable_fp_fusion=False,
    )


def _similarities(pair: Operands, ranges: Integers, similarity: Any, longest: int, device: Device) -> None:
    """Fill `similarity` (segments, longest, longest) for the keys of each segment with each other."""
    config = pair.similarity_config(longest)
    rows, columns = config.block_queries, config.block_keys
    lengths = ranges[:, 1] - ranges[:, 0]
    blocks = (-(-longest // rows), -(-longest // columns))
    segment, row, column = np.meshgrid(
        np.arange(len(ranges)), rows * np.arange(blocks[0]), columns * np.arange(blocks[1]), indexing="ij"
    )
    needed = (row < lengths[segment]) & (column < lengths[segment]) & (column + columns > row)
    segment, row, column = segment[needed], row[needed], column[needed]
    table = np.stack([segment, ranges[segment, 0], lengths[segment], row, column]).astype(np.int64)
    programs = table.shape[1]
    if programs:
        similarity_of_tile[(programs,)](
            pair.keys, device.upload(table), similarity, *pair.scales[2:], pair.keys.stride(0), pair.dim, longest, programs,
            BQ=rows, BN=columns, BD=config.block_dim, EVEN=pair.dim % config.block_dim == 0, SCALED=pair.scaled,
            COSINE=pair.cosine, num_warps=config.warps, num_stages=config.stages,
        )


def select_config(dim: int, longest: int, given: bool) -> Config:
    """Candidates and dimensions that a program of `select` looks at at a time."""
    if INTERPRETED or given:
        lanes = max(32, min(1024, power_of_two(longest)))
        return Config(1, lanes, 1024 if INTERPRETED else 16, warps=max(1, lanes // 256), stages=1)
    block_dim = min(256, max(16, power_of_two(dim)))
    return Config(1, 8192 // block_dim, block_dim, warps=8, stages=1)


def _torch() -> Any:
    import torch

    return torch


def variants(sm: int) -> list[Variant]:
    """The launches of `mmr_select` worth checking ahead of time."""
    del sm  # pointer loads everywhere: segments begin at any row
    outputs = {"indices": "*i64", "scores": "*fp32", "counts": "*i64"}
    sizes = {"row_width": "i32", "first_query": "i32", "piece_keys": "i64", "min_relevance": "fp32", "k": "i32"}
    scratch = {"relevance": "*fp32", "penalty": "*fp64", "similarity": "*fp32", "mask": "*u8", "segments": "*i64", "weights": "*fp64"}
    others = {**outputs, **sizes, **scratch, "mask_query_stride": "i32", "mask_key_stride": "i32"}
    found = [
        launch_variant("mmr_select", kernel, kind, 1024, rows, cosine, others, {"MASKED": 0, "LIMITED": True})
        for kernel, kind, rows, cosine in (
            (relevance_of_single, "float16", 1, False),
            (relevance_of_block, "float16", 64, True),
            (similarity_of_tile, "float16", 64, False),
            (similarity_of_tile, "float32", 64, True),
        )
    ]
    for kind, given in (("float16", True), ("float16", False), ("float32", False)):
        config = select_config(1024, 200, given)
        tiles = {"BN": config.block_keys, "BD": config.block_dim, "GIVEN": given}
        found.append(launch_variant("mmr_select", select, kind, 1024, 1, True, others, tiles, config))
    return found
