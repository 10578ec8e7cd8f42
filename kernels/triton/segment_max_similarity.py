"""segment_max_similarity on a GPU: the best item of each row as one integer, score above position, kept by atomic maxima."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from prismem_core.arrays.device import Device
from prismem_core.kernels.triton import group_scores
from prismem_core.kernels.triton.group_scores import (
    block_scores,
    largest_group,
    launch_variant,
    operands,
    report_nonfinite,
    single_scores,
    work_for,
)
from prismem_core.kernels.triton.launch import Variant, on
from prismem_core.kernels.triton.selection import EMPTY, LEAST, ordered, packed, unordered

FINISHED = 512
"""Rows whose results one program writes."""


@triton.jit
def best_of_block(
    evidence, items, order, table, best, flag, evidence_powers, evidence_inverse, item_powers, item_inverse,
    evidence_stride, item_stride, dim, num_evidence, num_items, num_programs,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, SCALED: tl.constexpr, COSINE: tl.constexpr,
    FLAGGED: tl.constexpr,
):
    """The best items of a block of evidence that shares a group; `table` (6, num_programs) as in `group_scores.Work`.

    Raises `best` (pieces, num_evidence) int64; with FLAGGED lowers `flag` as `report_nonfinite` says.
    """
    entry = table + tl.program_id(0)
    first = tl.load(entry)
    lane = tl.arange(0, BQ)
    inside = lane < tl.load(entry + num_programs)
    row = tl.load(order + first + lane, mask=inside, other=0)
    begin = tl.load(entry + 2 * num_programs)
    length = (tl.load(entry + 3 * num_programs) - begin).to(tl.int32)
    before = begin - tl.load(entry + 4 * num_programs)
    piece = tl.load(entry + 5 * num_programs)
    running = tl.full((BQ,), EMPTY, tl.int64)
    for start in range(0, length, BN):
        place = start + tl.arange(0, BN)
        within = place < length
        key = begin + place
        scores = block_scores(
            evidence, row, inside, evidence_stride, evidence_powers, evidence_inverse,
            items, key, within, item_stride, item_powers, item_inverse, dim, BQ, BN, BD, EVEN, SCALED, COSINE,
        )
        counted = within[:, None] & inside[None, :]
        if FLAGGED:
            report_nonfinite(flag, scores, counted, row, begin, place, num_items)
        codes = tl.where(counted & (scores == scores), ordered(scores), LEAST)
        highest, at = tl.max(codes, 0, return_indices=True)
        candidate = packed(highest, before + start + at)
        running = tl.maximum(running, tl.where(highest == LEAST, EMPTY, candidate))
    tl.atomic_max(best + piece * num_evidence + row, running, mask=inside)


@triton.jit
def best_of_single(
    evidence, items, order, table, best, flag, evidence_powers, evidence_inverse, item_powers, item_inverse,
    evidence_stride, item_stride, dim, num_evidence, num_items, num_programs,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, SCALED: tl.constexpr, COSINE: tl.constexpr,
    FLAGGED: tl.constexpr,
):
    """As `best_of_block` for the only row of a group (BQ is 1)."""
    entry = table + tl.program_id(0)
    row = tl.load(order + tl.load(entry))
    begin = tl.load(entry + 2 * num_programs)
    length = (tl.load(entry + 3 * num_programs) - begin).to(tl.int32)
    before = begin - tl.load(entry + 4 * num_programs)
    piece = tl.load(entry + 5 * num_programs)
    highest = tl.full((BN,), LEAST, tl.int32)
    at = tl.zeros((BN,), tl.int32)
    for start in range(0, length, BN):
        place = start + tl.arange(0, BN)
        within = place < length
        key = begin + place
        scores = single_scores(
            evidence, row, evidence_stride, evidence_powers, evidence_inverse,
            items, key, within, item_stride, item_powers, item_inverse, dim, BN, BD, EVEN, SCALED, COSINE,
        )
        if FLAGGED:
            report_nonfinite(flag, scores[:, None], within[:, None], row[None], begin, place, num_items)
        codes = tl.where(within & (scores == scores), ordered(scores), LEAST)
        better = codes > highest  # strictly: of equal scores the first place stays
        at = tl.where(better, place, at)
        highest = tl.where(better, codes, highest)
    candidates = tl.where(highest == LEAST, EMPTY, packed(highest, before + at))
    tl.atomic_max(best + piece * num_evidence + row, tl.max(candidates, 0))


@triton.jit
def finish(best, values, indices, num_evidence, pieces, piece_keys, BLOCK: tl.constexpr):
    """The results that packed candidates `best` (pieces, num_evidence) stand for; of equal scores the first piece stays."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < num_evidence
    code = tl.full((BLOCK,), LEAST, tl.int64)
    index = tl.full((BLOCK,), -1, tl.int64)
    origin = tl.full((), 0, tl.int64)
    for piece in range(0, pieces):
        found = tl.load(best + row, mask=inside, other=EMPTY)
        better = (found >> 32) > code
        code = tl.where(better, found >> 32, code)
        index = tl.where(better, origin + (0xFFFFFFFF - (found & 0xFFFFFFFF)), index)
        origin += piece_keys
        best += num_evidence
    value = tl.where(index < 0, 0.0, unordered(code.to(tl.int32)))
    tl.store(values + row, value, mask=inside)
    tl.store(indices + row, index, mask=inside)


def segment_max_similarity(
    evidence: Any,
    items: Any,
    ranges: NDArray[np.int64] | None,
    groups: NDArray[np.int64] | None,
    normalize: bool,
    values: Any,
    indices: Any,
    flag: Any | None,
    *,
    device: Device,
    key_scales: tuple[Any, Any] | None = None,
) -> None:
    """Fill `values` (e,) float32 and `indices` (e,) int64 for `evidence` (e, d) and `items` (n, d).

    Ties: the lowest index; 0.0 and -1 where no score is a number. `flag` as in `group_scores.report_nonfinite`. Rows
    that share a group give what they give alone up to the order of sums. Uploads tables of the groups.
    """
    count = evidence.shape[0]
    if count == 0:
        return
    pair = operands(evidence, items, normalize, device, key_scales)
    alone, batch = pair.config(1), pair.config(largest_group(ranges, groups, count))
    work = work_for(ranges, groups, count, items.shape[0], batch, alone)
    best = device.full((work.pieces, count), "int64", EMPTY.value)
    order = device.upload(work.order)
    with on(device):
        for kernel, table, config in ((best_of_block, work.blocks, batch), (best_of_single, work.singles, alone)):
            programs = table.shape[1]
            if programs:
                kernel[(programs,)](
                    evidence, items, order, device.upload(table), best, best if flag is None else flag, *pair.scales,
                    evidence.stride(0), items.stride(0), pair.dim, count, items.shape[0], programs,
                    BQ=config.block_queries, BN=config.block_keys, BD=config.block_dim,
                    EVEN=pair.dim % config.block_dim == 0, SCALED=pair.scaled, COSINE=normalize,
                    FLAGGED=flag is not None, num_warps=config.warps, num_stages=config.stages,
                )
        finish[(triton.cdiv(count, FINISHED),)](
            best, values, indices, count, work.pieces, group_scores.PIECE, BLOCK=FINISHED, num_warps=4
        )


def variants(sm: int) -> list[Variant]:
    """The launches of `segment_max_similarity` worth checking ahead of time: kinds of rows, alone and in blocks."""
    del sm  # pointer loads everywhere: pieces of a group begin at any row
    return [
        launch_variant("segment_max_similarity", kernel, kind, dim, rows, cosine, {"best": "*i64", "num_evidence": "i32"})
        for kernel, kind, dim, rows, cosine in (
            (best_of_single, "float16", 1024, 1, False),
            (best_of_single, "bfloat16", 1024, 1, True),
            (best_of_single, "float32", 1024, 1, False),
            (best_of_block, "float16", 1024, 16, False),
            (best_of_block, "float16", 1024, 64, True),
            (best_of_block, "bfloat16", 1024, 64, True),
            (best_of_block, "float32", 1024, 64, False),
        )
    ]
