"""segment_max_similarity on a GPU with Triton: the best item of each row as one integer, score above position, which
programs raise by atomic maxima.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from prismem_core.arrays.device import Device
from prismem_core.kernels.triton import group_scores, launch, table
from prismem_core.kernels.triton.group_scores import (
    Operands,
    block_scores,
    largest_group,
    operands,
    report_nonfinite,
    single_scores,
    work_for,
)
from prismem_core.kernels.triton.launch import Config, Variant
from prismem_core.kernels.triton.selection import EMPTY, LEAST, ordered, packed, unordered

OP = "segment_max_similarity"
FINISHING = Config(1, 512, 1, warps=4, stages=1)


@triton.jit(do_not_specialize=("num_rows", "num_keys", "num_programs"))
def best_of_block(
    rows, keys, row_powers, row_inverse, key_powers, key_inverse, extremes, order, work, best, flag,
    row_stride, key_stride, dim, num_rows, num_keys, num_programs,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """The best keys of a block of rows that share a group; `work` (6, num_programs) as in `group_scores.Work`.

    Raises `best` (pieces, num_rows) int64. `flag`, if there is one, is lowered as `report_nonfinite` says.
    """
    entry = work + tl.program_id(0)
    lane = tl.arange(0, BQ)
    inside = lane < tl.load(entry + num_programs)
    row = tl.load(order + tl.load(entry) + lane, mask=inside, other=0)
    begin = tl.load(entry + 2 * num_programs)
    length = (tl.load(entry + 3 * num_programs) - begin).to(tl.int32)
    before = (begin - tl.load(entry + 4 * num_programs)).to(tl.int32)
    piece = tl.load(entry + 5 * num_programs)
    running = tl.full((BQ,), EMPTY, tl.int64)
    for start in range(0, length, BN):
        place = start + tl.arange(0, BN)
        within = place < length
        scores = block_scores(
            rows, row, inside, row_powers, row_inverse, row_stride,
            keys, begin + place, within, key_powers, key_inverse, key_stride, extremes, dim, BQ, BN, BD, EVEN,
        )  # fmt: skip
        counted = within[:, None] & inside[None, :]
        if flag is not None:
            report_nonfinite(flag, scores, counted, row, begin, place, num_keys)
        codes = tl.where(counted & (scores == scores), ordered(scores), LEAST)
        highest, at = tl.max(codes, 0, return_indices=True)
        running = tl.maximum(running, tl.where(highest == LEAST, EMPTY, packed(highest, before + start + at)))
    tl.atomic_max(best + piece * num_rows + row, running, mask=inside)


@triton.jit(do_not_specialize=("num_rows", "num_keys", "num_programs"))
def best_of_single(
    rows, keys, row_powers, row_inverse, key_powers, key_inverse, extremes, order, work, best, flag,
    row_stride, key_stride, dim, num_rows, num_keys, num_programs,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """As `best_of_block` for the only row of a group; BQ does not matter."""
    entry = work + tl.program_id(0)
    row = tl.load(order + tl.load(entry))
    begin = tl.load(entry + 2 * num_programs)
    length = (tl.load(entry + 3 * num_programs) - begin).to(tl.int32)
    before = (begin - tl.load(entry + 4 * num_programs)).to(tl.int32)
    piece = tl.load(entry + 5 * num_programs)
    highest = tl.full((BN,), LEAST, tl.int32)
    at = tl.zeros((BN,), tl.int32)
    for start in range(0, length, BN):
        place = start + tl.arange(0, BN)
        within = place < length
        scores = single_scores(
            rows, row, row_powers, row_inverse, row_stride,
            keys, begin + place, within, key_powers, key_inverse, key_stride, extremes, dim, BN, BD, EVEN,
        )  # fmt: skip
        if flag is not None:
            report_nonfinite(flag, scores[:, None], within[:, None], row + tl.arange(0, 1), begin, place, num_keys)
        codes = tl.where(within & (scores == scores), ordered(scores), LEAST)
        better = codes > highest  # strictly: of equal scores the first place stays
        at = tl.where(better, place, at)
        highest = tl.where(better, codes, highest)
    candidates = tl.where(highest == LEAST, EMPTY, packed(highest, before + at))
    tl.atomic_max(best + piece * num_rows + row, tl.max(candidates, 0))


@triton.jit(do_not_specialize=("num_rows", "pieces", "piece_keys"))
def finish(best, values, indices, num_rows, pieces, piece_keys, BN: tl.constexpr):
    """The results that candidates `best` (pieces, num_rows) stand for; of equal scores the first piece stays."""
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = row < num_rows
    code = tl.full((BN,), LEAST, tl.int64)
    index = tl.full((BN,), -1, tl.int64)
    origin = tl.full((), 0, tl.int64)
    for _ in range(pieces):
        found = tl.load(best + row, mask=inside, other=EMPTY)
        better = (found >> 32) > code
        code = tl.where(better, found >> 32, code)
        index = tl.where(better, origin + (0xFFFFFFFF - (found & 0xFFFFFFFF)), index)
        origin += piece_keys
        best += num_rows
    tl.store(values + row, tl.where(index < 0, 0.0, unordered(code.to(tl.int32))), mask=inside)
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

    `ranges` (s, 2) and `groups` (e,) are int64 arrays of the host or None. Ties: the lowest index; 0.0 and -1 where no
    score is a number. `flag` (1,) int64 is lowered to the first row * n + item whose score is not finite, or None.
    `key_scales` are the items' `row_scales`, where they are known. A row that shares its group gives what it gives
    alone up to the rounding of sums. Uploads tables of work; nothing waits for the device.
    """
    count, num_items = int(evidence.shape[0]), int(items.shape[0])
    if count == 0:
        return
    pair = operands(evidence, items, normalize, device, key_scales)
    batch, alone = configs(launch.sm_of(device), pair, largest_group(ranges, groups, count))
    work = work_for(ranges, groups, count, num_items, batch, alone)
    best = device.full((work.pieces, count), "int64", EMPTY.value)
    order = device.upload(work.order)
    with launch.on(device):
        for kernel, programs, config in ((best_of_block, work.blocks, batch), (best_of_single, work.singles, alone)):
            if programs.shape[1]:
                arguments = _arguments(pair, config, order, device.upload(programs), best, flag)
                launch.start(kernel, (programs.shape[1],), arguments, config)
        finishing = _finishing(best, values, indices)
        launch.start(finish, (-(-count // FINISHING.block_keys),), finishing, FINISHING)


def configs(sm: int, pair: Operands, rows: int) -> tuple[Config, Config]:
    """Tiles for groups of so many rows, and for rows that are alone in theirs."""
    batch = table.config_of(sm, OP, pair.kind, pair.dim, max(rows, 2))
    return batch, table.config_of(sm, OP, pair.kind, pair.dim, 1)


def _arguments(pair: Operands, config: Config, order: Any, work: Any, best: Any, flag: Any | None) -> dict[str, Any]:
    values: dict[str, Any] = pair.arguments(config) | {"order": order, "work": work, "best": best, "flag": flag}
    return values | {
        "num_rows": int(pair.rows.shape[0]),
        "num_keys": int(pair.keys.shape[0]),
        "num_programs": int(work.shape[1]),
    }


def _finishing(best: Any, values: Any, indices: Any) -> dict[str, Any]:
    return {
        "best": best,
        "values": values,
        "indices": indices,
        "num_rows": int(best.shape[1]),
        "pieces": int(best.shape[0]),
        "piece_keys": group_scores.PIECE,
        "BN": FINISHING.block_keys,
    }


def variants(sm: int) -> list[Variant]:
    """Launches worth checking ahead of time: kinds of rows, alone and in blocks, with cosines and without."""
    found = []
    integers = torch.empty(6, 1000, dtype=torch.int64, device="meta")
    for kind, rows, normalize in (
        ("float16", 1, False),
        ("bfloat16", 1, True),
        ("float32", 1, False),
        ("float16", 16, False),
        ("float16", 64, True),
        ("bfloat16", 64, True),
        ("float32", 64, False),
    ):
        pair = group_scores.example(kind, 1024, normalize)
        config = configs(sm, pair, rows)[rows == 1]
        kernel = best_of_single if rows == 1 else best_of_block
        arguments = _arguments(pair, config, integers[0], integers, integers, integers[0])
        name = group_scores.label(OP, kind, rows, normalize)
        found.append(launch.variant(name, OP, kernel, arguments, config, batched=rows > 1))
    return found
