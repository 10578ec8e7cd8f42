"""Scores of rows with the keys of their group: which program scores what, and two ways to compute a tile of scores.

Rows that share a group are scored in blocks on tensor cores, so that a key is read once for all of them; the only row
of its group is scored with plain multiplications, which wait for memory alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from prismem_core.arrays.device import Device
from prismem_core.kernels.triton import launch
from prismem_core.kernels.triton.launch import Config
from prismem_core.kernels.triton.row_scales import extremes, row_scales
from prismem_core.kernels.triton.scoring import scores_of_rows
from prismem_core.kernels.triton.selection import FULL, GREATEST

Integers = NDArray[np.int64]

PROGRAMS = 2048
"""Groups are cut into so many pieces that about this many programs run, where there are keys enough."""

PIECE = 1 << 30
"""Keys whose positions share the lower half of a packed key; longer groups are cut at its multiples."""


@dataclass(frozen=True)
class Work:
    """The programs that score rows with the keys of their groups.

    `order` (r,) lists the rows, those of a group together. `blocks` and `singles` (6, p), one column a program: first
    place in `order`, number of rows, first key, past the last key, first key of the piece, number of the piece; the
    rows of `singles` are alone in their groups. `pieces` is the largest number of pieces that a group has.
    """

    order: Integers
    blocks: Integers
    singles: Integers
    pieces: int


def work_for(
    ranges: Integers | None,
    groups: Integers | None,
    num_rows: int,
    num_keys: int,
    batch: Config,
    alone: Config,
    *,
    one_tile: bool = False,
) -> Work:
    """Programs for rows in blocks and for rows alone in their group; without `ranges` every row sees all keys.

    `one_tile`: every program has no more than one tile of keys.
    """
    if ranges is None:
        ranges = np.array([[0, num_keys]], np.int64)
        groups = np.zeros(num_rows, np.int64)
    elif groups is None:
        groups = np.arange(num_rows, dtype=np.int64)
    order = np.argsort(groups, kind="stable").astype(np.int64)
    seen, first, count = np.unique(groups[order], return_index=True, return_counts=True)
    lengths = ranges[seen, 1] - ranges[seen, 0]
    seen, first, count = seen[lengths > 0], first[lengths > 0].astype(np.int64), count[lengths > 0].astype(np.int64)
    single = count == 1
    pieces = -(-int((ranges[seen, 1] - ranges[seen, 0]).max(initial=0)) // PIECE)
    return Work(
        order,
        _programs(
            first[~single], count[~single], ranges[seen[~single]], batch.block_queries, batch.block_keys, one_tile
        ),
        _programs(first[single], count[single], ranges[seen[single]], 1, alone.block_keys, one_tile),
        max(1, pieces),
    )


def _programs(
    first: Integers, count: Integers, ranges: Integers, block_rows: int, block_keys: int, one_tile: bool
) -> Integers:
    """Columns (first place, rows, first key, past the last key, start of the piece, number of the piece)."""
    blocks = -(-count // block_rows)
    owner = np.repeat(np.arange(len(count)), blocks)
    within = _within(blocks)
    place = first[owner] + within * block_rows
    rows = np.minimum(count[owner] - within * block_rows, block_rows)
    begin, end = ranges[owner, 0], ranges[owner, 1]
    # Cut at whole pieces first, so that a position fits its half of a packed key.
    cuts = -(-(end - begin) // PIECE)
    owner, piece = np.repeat(np.arange(len(cuts)), cuts), _within(cuts)
    place, rows, origin = place[owner], rows[owner], begin[owner] + piece * PIECE
    past = np.minimum(origin + PIECE, end[owner])
    tiles = -(-(past - origin) // block_keys)
    stretch = block_keys * (1 if one_tile else max(1, int(tiles.sum()) // PROGRAMS))
    cuts = -(-(past - origin) // stretch)
    owner, part = np.repeat(np.arange(len(cuts)), cuts), _within(cuts)
    start = origin[owner] + part * stretch
    return np.stack(
        [place[owner], rows[owner], start, np.minimum(start + stretch, past[owner]), origin[owner], piece[owner]]
    )


def _within(counts: Integers) -> Integers:
    """0, 1, ... counts[0] - 1, 0, 1, ... counts[1] - 1, ..."""
    return np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)


@dataclass(frozen=True)
class Operands:
    """Rows and keys as kernels take them; `scales` are the powers and inverse lengths of both, None without cosines.

    `extremes` (1,) int32 says that powers are not all 1; None where they cannot be.
    """

    rows: Any
    keys: Any
    scales: tuple[Any, Any, Any, Any] | None
    extremes: Any

    @property
    def dim(self) -> int:
        """Dimensions of rows and keys."""
        return int(self.keys.shape[1])

    @property
    def kind(self) -> str:
        """The kind of rows that decides the configuration: float32 where the two sides differ."""
        kinds = {launch.kind_of(self.rows), launch.kind_of(self.keys)}
        return kinds.pop() if len(kinds) == 1 else "float32"

    def of(self, part: slice) -> Operands:
        """The same with some of the rows."""
        scales = self.scales and (self.scales[0][part], self.scales[1][part], *self.scales[2:])
        return replace(self, rows=self.rows[part], scales=scales)

    def arguments(self, config: Config) -> dict[str, Any]:
        """Arguments that every kernel of this kind has."""
        names = ("row_powers", "row_inverse", "key_powers", "key_inverse")
        values = {} if self.scales is None else dict(zip(names, self.scales, strict=True))
        values |= {"rows": self.rows, "keys": self.keys, "dim": self.dim, "extremes": self.extremes}
        values |= {"row_stride": self.rows.stride(0), "key_stride": self.keys.stride(0)}
        values |= {"BQ": config.block_queries, "BN": config.block_keys, "BD": config.block_dim}
        return values | {"EVEN": self.dim % config.block_dim == 0}


def operands(
    rows: Any, keys: Any, normalize: bool, device: Device, key_scales: tuple[Any, Any] | None = None
) -> Operands:
    """Rows and keys with what cosines need; `key_scales` are the `row_scales` of the keys where they are known."""
    if not normalize:
        return Operands(rows, keys, None, None)
    scales = (*row_scales(rows, device=device), *(key_scales or row_scales(keys, device=device)))
    halves = {launch.kind_of(rows), launch.kind_of(keys)} == {"float16"}
    return Operands(rows, keys, scales, None if halves else extremes((scales[0], scales[2]), device=device))


def largest_group(ranges: Integers | None, groups: Integers | None, num_rows: int) -> int:
    """The most rows that see the same keys."""
    if ranges is None:
        return num_rows
    if groups is None:
        return min(num_rows, 1)
    return int(np.bincount(groups).max(initial=0))


def example(kind: str, dim: int, normalize: bool) -> Operands:
    """Rows and keys without memory, to compile for."""
    rows = torch.empty(1024, dim, dtype=getattr(torch, kind), device="meta")
    scale = torch.empty(1024, device="meta")
    powers = torch.empty(1, dtype=torch.int32, device="meta") if normalize and kind != "float16" else None
    return Operands(rows, rows, (scale, scale, scale, scale) if normalize else None, powers)


def label(op: str, kind: str, rows: int, normalize: bool) -> str:
    """The name of a variant."""
    return f"{op}/{kind} {'alone' if rows == 1 else f'groups of {rows}'}{' cosine' if normalize else ''}"


@triton.jit
def single_scores(
    rows, row, row_powers, row_inverse, row_stride,
    keys, key, key_inside, key_powers, key_inverse, key_stride, extremes, dim,
    BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Scores (BN,) of keys with one row: float32 multiplications and additions, at the speed of memory."""
    own = rows + row * row_stride
    starts = keys + key * key_stride
    if extremes is not None:
        power = tl.load(row_powers + row)
        powers = tl.load(key_powers + key, mask=key_inside, other=1.0)
    sums = tl.zeros((BN, BD), tl.float32)
    for start in range(0, dim, BD):
        columns = start + tl.arange(0, BD)
        if EVEN:
            q = tl.load(own + columns)
            x = tl.load(starts[:, None] + columns[None, :], mask=key_inside[:, None], other=0.0)
        else:
            within = columns < dim
            q = tl.load(own + columns, mask=within, other=0.0)
            x = tl.load(starts[:, None] + columns[None, :], mask=key_inside[:, None] & within[None, :], other=0.0)
        q = q.to(tl.float32)
        x = x.to(tl.float32)
        if extremes is not None:
            q = q * power
            x = x * powers[:, None]
        sums = tl.fma(x, tl.broadcast_to(q[None, :], (BN, BD)), sums)
    scores = tl.sum(sums, 1)
    if key_inverse is not None:
        scores = scores * tl.load(key_inverse + key, mask=key_inside, other=0.0) * tl.load(row_inverse + row)
        scores = tl.where(scores > 1.0, 1.0, scores)
        scores = tl.where(scores < -1.0, -1.0, scores)
    return scores


@triton.jit
def block_scores(
    rows, row, row_inside, row_powers, row_inverse, row_stride,
    keys, key, key_inside, key_powers, key_inverse, key_stride, extremes, dim,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Scores (BN, BQ) of keys with rows on tensor cores; keys come first, for they fill the 64 rows of a warp group's
    product, which the rows of a group seldom do.
    """
    return scores_of_rows(
        keys, rows, None, None, key, row, key_inside, row_inside, 0, 0,
        key_powers, row_powers, key_inverse, row_inverse, extremes, dim, key_stride, row_stride, BN, BQ, BD, EVEN,
    )  # fmt: skip


@triton.jit
def report_nonfinite(flag, scores, counted, row, begin, place, num_keys):
    """Lower `flag` to the least row * num_keys + key whose score (N, Q) counts and is NaN or infinite.

    Keys are begin + `place` (N,) int32, rows (Q,).
    """
    wrong = counted & ((tl.abs(scores) < float("inf")) == 0)
    if tl.max(wrong.to(tl.int32)) > 0:
        first = tl.min(tl.where(wrong, place[:, None], GREATEST), 0)
        tl.atomic_min(flag, tl.min(tl.where(first == GREATEST, FULL, row * num_keys + begin + first), 0))
