"""mmr_select on a GPU with Triton: relevance of all candidates first, then one program a query that picks them one
after the other.

Where the segments are short, the similarities of their keys are computed beforehand on tensor cores; else those of a
pick when it is made. The two ways differ by the rounding of sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prismem_core.arrays.device import Device
from prismem_core.kernels.triton import group_scores, launch, table
from prismem_core.kernels.triton.group_scores import Operands, largest_group, operands, work_for
from prismem_core.kernels.triton.launch import Config, Variant
from prismem_core.kernels.triton.mmr_select_kernel import (
    relevance_of_block,
    relevance_of_single,
    select,
    similarity_of_tile,
)
from prismem_core.kernels.triton.top_k import top_k

Integers = NDArray[np.int64]

OP = "mmr_select"

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
    """Fill `indices` (m, k) int64, `scores` (m, k) float32, `counts` (m,) int64 for `queries` (m, d), `keys` (n, d).

    `ranges` (s, 2) and `groups` (m,) are int64 arrays of the host or None; `mask` bool (n,), (m, n) or None. Ties: the
    lowest index. With weight 1 the picks are those of `top_k`, and no similarity is computed. `flag` (1,) int64 is
    lowered to the first query * n + key whose allowed relevance is not finite, or None. `key_scales` are the keys'
    `row_scales`, where they are known. Uploads tables of work; nothing waits for the device.
    """
    num_queries, num_keys = queries.shape[0], keys.shape[0]
    if relevance_weight == 1.0 or num_queries == 0 or k == 0 or num_keys == 0:
        top_k(
            queries,
            keys,
            ranges,
            groups,
            mask,
            k,
            normalize,
            min_relevance,
            scores,
            indices,
            counts,
            flag,
            device=device,
            key_scales=key_scales,
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
    stretch = max(1, SCRATCH_BYTES // (12 * longest + (4 * longest * longest if given else 0)))
    weights = device.upload(np.array([relevance_weight, 1.0 - relevance_weight]))
    with launch.on(device):
        for first in range(0, num_queries, stretch):
            part = slice(first, min(first + stretch, num_queries))
            own_mask = mask[part] if mask is not None and mask.dim() == 2 else mask
            some = pair.of(part)
            relevance = device.empty((some.rows.shape[0], longest), "float32")
            _fill_relevance(some, ranges, groups[part], own_mask, min_relevance, relevance, flag, first, device)
            seen, places = np.unique(groups[part], return_inverse=True)
            similarity = None
            if given:
                similarity = device.empty((len(seen), longest, longest), "float32")
                _fill_similarity(some, ranges[seen], similarity, device)
            begins, ends = own_ranges[part, 0], own_ranges[part, 1]
            segments = device.upload(np.stack([begins, ends - begins, places.reshape(-1)]).astype(np.int64))
            penalty = device.empty(tuple(relevance.shape), "float64")
            config = picks_config(launch.sm_of(device), some, longest, given)
            arguments = _picking(
                some,
                config,
                relevance,
                penalty,
                similarity,
                segments,
                weights,
                indices[part],
                scores[part],
                counts[part],
            )
            _without_contraction(select, some.rows.shape[0], arguments, config)


def similarities_pay(own_ranges: Integers, groups: Integers, k: int) -> bool:
    """Whether the similarities of all keys of a segment are computed first."""
    lengths = own_ranges[:, 1] - own_ranges[:, 0]
    if k < 2 or int(lengths.max()) > LONGEST_GIVEN:
        return False
    _, one = np.unique(groups, return_index=True)
    return int((lengths[one] ** 2).sum()) <= 2 * GIVEN_WORTH * k * int(lengths.sum())


def picks_config(sm: int, pair: Operands, longest: int, given: bool) -> Config:
    """Candidates that the selection looks at at a time; with given similarities a warp for each 256 of them."""
    if not given:
        return table.config_of(sm, "mmr_select picks", pair.kind, pair.dim, 1)
    lanes = max(32, min(1024, launch.power_of_two(longest)))
    return Config(1, lanes, 16, warps=max(1, lanes // 256), stages=1)


def _fill_relevance(
    pair: Operands,
    ranges: Integers,
    groups: Integers,
    mask: Any | None,
    min_relevance: float | None,
    relevance: Any,
    flag: Any | None,
    first_query: int,
    device: Device,
) -> None:
    """Launch what fills `relevance` (m, longest)."""
    sm, count = launch.sm_of(device), len(groups)
    batch = table.config_of(sm, OP, pair.kind, pair.dim, max(largest_group(ranges, groups, count), 2))
    alone = table.config_of(sm, OP, pair.kind, pair.dim, 1)
    work = work_for(ranges, groups, count, int(pair.keys.shape[0]), batch, alone, one_tile=True)
    order = device.upload(work.order)
    for kernel, programs, config in (
        (relevance_of_block, work.blocks, batch),
        (relevance_of_single, work.singles, alone),
    ):
        if programs.shape[1]:
            arguments = _relevance(pair, config, order, device.upload(programs), relevance, mask, min_relevance, flag)
            arguments["first_query"] = first_query
            launch.start(kernel, (programs.shape[1],), arguments, config)


def _fill_similarity(pair: Operands, ranges: Integers, similarity: Any, device: Device) -> None:
    """Launch what fills `similarity` (segments, longest, longest) for the keys of each segment with each other."""
    longest = int(similarity.shape[1])
    config = table.config_of(launch.sm_of(device), OP, launch.kind_of(pair.keys), pair.dim, max(longest, 2))
    rows, columns = config.block_queries, config.block_keys
    lengths = ranges[:, 1] - ranges[:, 0]
    segment, row, column = np.meshgrid(
        np.arange(len(ranges)), np.arange(0, longest, rows), np.arange(0, longest, columns), indexing="ij"
    )
    needed = (row < lengths[segment]) & (column < lengths[segment]) & (column + columns > row)
    segment, row, column = segment[needed], row[needed], column[needed]
    if len(segment):
        work = device.upload(np.stack([segment, ranges[segment, 0], lengths[segment], row, column]).astype(np.int64))
        launch.start(similarity_of_tile, (len(segment),), _similarity(pair, config, work, similarity), config)


def _relevance(
    pair: Operands,
    config: Config,
    order: Any,
    work: Any,
    relevance: Any,
    mask: Any | None,
    min_relevance: float | None,
    flag: Any | None,
) -> dict[str, Any]:
    values: dict[str, Any] = pair.arguments(config) | {
        "order": order,
        "work": work,
        "relevance": relevance,
        "flag": flag,
    }
    if mask is not None:
        strides = (0, mask.stride(0)) if mask.dim() == 1 else mask.stride()
        values |= {"mask": mask.view(torch.uint8), "mask_row_stride": strides[0], "mask_key_stride": strides[1]}
    return values | {
        "row_width": int(relevance.shape[1]),
        "num_keys": int(pair.keys.shape[0]),
        "first_query": 0,
        "num_programs": int(work.shape[1]),
        "piece_keys": group_scores.PIECE,
        "min_relevance": min_relevance,
        "PRIVATE_MASK": mask is not None and mask.dim() == 2,
    }


def _similarity(pair: Operands, config: Config, work: Any, similarity: Any) -> dict[str, Any]:
    values = {"work": work, "similarity": similarity, "row_width": int(similarity.shape[1])}
    values["num_programs"] = int(work.shape[1])
    return _taken(similarity_of_tile, pair.arguments(config) | values)


def _picking(
    pair: Operands,
    config: Config,
    relevance: Any,
    penalty: Any,
    similarity: Any | None,
    segments: Any,
    weights: Any,
    indices: Any,
    scores: Any,
    counts: Any,
) -> dict[str, Any]:
    values = {"relevance": relevance, "penalty": penalty, "similarity": similarity, "segments": segments}
    values |= {"weights": weights, "indices": indices, "scores": scores, "counts": counts}
    sizes = {"row_width": relevance.shape[1], "num_rows": relevance.shape[0], "k": indices.shape[1]}
    values |= {name: int(size) for name, size in sizes.items()}
    return _taken(select, pair.arguments(config) | values)


def _taken(kernel: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Those of the values that are arguments of the kernel."""
    return {name: value for name, value in values.items() if name in kernel.arg_names}


def _without_contraction(kernel: Any, programs: int, arguments: dict[str, Any], config: Config) -> None:
    """`launch.start` with products that are rounded before they are added to something."""
    values = {**dict.fromkeys(kernel.arg_names), **arguments}
    kernel[(programs,)](
        **values, num_warps=config.warps, num_stages=config.stages, maxnreg=config.registers, enable_fp_fusion=False
    )


def variants(sm: int) -> list[Variant]:
    """Launches worth checking ahead of time: relevance, similarities, and picks with and without these."""
    found = []
    integers = torch.empty(6, 1000, dtype=torch.int64, device="meta")
    wide = torch.empty(1000, 200, dtype=torch.float64, device="meta")
    cube = torch.empty(1000, 200, 200, device="meta")
    for kind, rows, normalize in (("float16", 1, False), ("float16", 64, True)):
        pair = group_scores.example(kind, 1024, normalize)
        config = table.config_of(sm, OP, kind, 1024, rows)
        kernel = relevance_of_single if rows == 1 else relevance_of_block
        arguments = _relevance(pair, config, integers[0], integers, cube[0], None, 0.5, integers[0])
        name = group_scores.label(OP + "/relevance", kind, rows, normalize)
        found.append(launch.variant(name, OP, kernel, arguments, config, batched=rows > 1))
    for kind, normalize in (("float16", False), ("float32", True)):
        pair = group_scores.example(kind, 1024, normalize)
        config = table.config_of(sm, OP, kind, 1024, 200)
        name = group_scores.label(OP + "/similarity", kind, 200, normalize)
        arguments = _similarity(pair, config, integers, cube)
        found.append(launch.variant(name, OP, similarity_of_tile, arguments, config, batched=True))
    for kind, given in (("float16", cube), ("float16", None), ("float32", None)):
        pair = group_scores.example(kind, 1024, True)
        config = picks_config(sm, pair, 200, given is not None)
        arguments = _picking(
            pair, config, cube[0], wide, given, integers, wide[0], integers[:, :25], cube[0, :, :25], integers[0]
        )
        name = f"{OP}/picks {kind} {'given' if given is not None else 'computed'}"
        notes = {} if given is None else {"loads": "a row of similarities is a thousand bytes at any distance"}
        found.append(launch.variant(name, OP, select, arguments, config, notes=notes))
    return found
