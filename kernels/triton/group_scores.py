"""Scores of rows with the keys of their group: which program scores what, and the two ways to compute a tile of scores.

Rows that share a group are scored in blocks on tensor cores, so that a key is read once for all of them; the only row of
its group is scored with plain multiplications, which wait for memory alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from prismem_core.arrays.device import Device
from prismem_core.kernels.triton.launch import INTERPRETED, POINTERS, Config, Variant, kind_of, power_of_two
from prismem_core.kernels.triton.row_scales import row_scales
from prismem_core.kernels.triton.scoring import cosines, tile_scores
from prismem_core.kernels.triton.selection import FULL, GREATEST

Integers = NDArray[np.int64]

PROGRAMS = 2048
"""Groups are cut into so many pieces that about this many programs run, where there are keys enough."""

PIECE = 1 << 31
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
    ranges: Integers | None, groups: Integers | None, num_rows: int, num_keys: int, batch: Config, alone: Config,
    *, one_tile: bool = False,
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
        _programs(first[~single], count[~single], ranges[seen[~single]], batch.block_queries, batch.block_keys, one_tile),
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
    """Rows and keys as kernels take them: with their powers of two and inverse lengths, which are unused without cosines.

    `scaled` says that powers of two are not all 1.
    """

    rows: Any
    keys: Any
    scales: tuple[Any, Any, Any, Any]
    scaled: bool
    cosine: bool

    @property
    def dim(self) -> int:
        """Dimensions of rows and keys."""
        return int(self.keys.shape[1])

    def config(self, largest_group: int) -> Config:
        """Tiles for groups of so many rows."""
        wide = 4 in (self.rows.element_size(), self.keys.element_size())
        wide = wide or self.rows.dtype != self.keys.dtype
        return config_for(wide, self.dim, largest_group)

    def similarity_config(self, longest: int) -> Config:
        """Tiles for the keys of a segment with each other."""
        return config_for(self.keys.element_size() == 4, self.dim, max(2, longest))


def operands(
    rows: Any, keys: Any, normalize: bool, device: Device, key_scales: tuple[Any, Any] | None = None
) -> Operands:
    """Rows and keys with what cosines need; `key_scales` are those of the keys where they are known."""
    if not normalize:
        return Operands(rows, keys, (rows, rows, keys, keys), False, False)
    own = row_scales(rows, device=device)
    theirs = own if keys is rows else key_scales or row_scales(keys, device=device)
    return Operands(rows, keys, (*own, *theirs), {kind_of(rows), kind_of(keys)} != {"float16"}, True)


def config_for(wide: bool, dim: int, largest_group: int) -> Config:
    """Tiles for rows alone in their group (largest_group 1) or in blocks; `wide`: a side has four bytes an element."""
    if largest_group == 1:
        block_dim = min(128 if wide else 256, max(16, power_of_two(dim)))
        return Config(1, (1 << 20 if INTERPRETED else 4096) // block_dim, block_dim, warps=4, stages=1)
    rows = min(64, max(16, power_of_two(largest_group)))
    if INTERPRETED:
        return Config(rows, 1024, 256, warps=4, stages=1)
    keys, warps = (128, 8) if rows == 64 else (64 if wide else 128, 4)
    return Config(rows, keys, 32 if wide else 64, warps, stages=3)


def largest_group(ranges: Integers | None, groups: Integers | None, num_rows: int) -> int:
    """The most rows that see the same keys."""
    if ranges is None:
        return num_rows
    if groups is None:
        return min(num_rows, 1)
    return int(np.bincount(groups).max(initial=0))


def launch_variant(
    op: str, kernel: Any, kind: str, dim: int, rows: int, cosine: bool, others: Mapping[str, str],
    constants: Mapping[str, Any] | None = None, config: Config | None = None,
) -> Variant:
    """A launch for groups of so many rows, with every score looked at for NaN, as in nonfinite="raise"; `others` are the
    types of arguments that not every kernel has, `constants` the values of those that are known when it is compiled.
    """
    config = config or config_for(kind == "float32", dim, rows)
    possible = {
        "BQ": config.block_queries,
        "BN": config.block_keys,
        "BD": config.block_dim,
        "EVEN": dim % config.block_dim == 0,
        "SCALED": cosine and kind != "float16",
        "COSINE": cosine,
        "FLAGGED": True,
        **(constants or {}),
    }
    chosen = {name: possible[name] for name in kernel.arg_names if name in possible}
    known = {"order": "*i64", "table": "*i64", "flag": "*i64", **others}
    signature: dict[str, str] = {}
    for name in kernel.arg_names:
        if name in chosen:
            continue
        if name in known:
            signature[name] = known[name]
        elif name.endswith(("_powers", "_inverse")):
            signature[name] = "*fp32" if cosine else POINTERS[kind]
        else:
            number = name.startswith("num_") or name == "dim" or name.endswith("_stride")
            signature[name] = "i32" if number else POINTERS[kind]
    strides = ("dim", "query_stride", "key_stride", "evidence_stride", "item_stride")
    aligned = tuple(name for name in signature if signature[name].startswith("*") or name in strides)
    shape = f"{config.block_queries} rows" if rows > 1 else "alone"
    name = f"{op} {kernel.__name__} {kind} {shape}{' cosine' if cosine else ''}"
    return Variant(name, op, kernel, signature, chosen, aligned, config.warps, config.stages, batched=rows > 1)


@triton.jit
def block_scores(
    rows, row, row_inside, row_stride, row_powers, row_inverse, keys, key, key_inside, key_stride, key_powers, key_inverse, dim,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, SCALED: tl.constexpr, COSINE: tl.constexpr,
):
    """Scores (BN, BQ) float32 of keys with rows, on tensor cores; keys come first because they fill the 64 rows of a
    warp group's product, which the rows of a group seldom do.
    """
    own_powers = tl.full((BQ,), 1.0, tl.float32)
    powers = tl.full((BN,), 1.0, tl.float32)
    if SCALED:
        own_powers = tl.load(row_powers + row, mask=row_inside, other=1.0)
        powers = tl.load(key_powers + key, mask=key_inside, other=1.0)
    scores = tile_scores(
        keys + key * key_stride, key_inside, powers, rows + row * row_stride, row_inside, own_powers, dim,
        BN, BQ, BD, EVEN, SCALED,
    )
    if COSINE:
        own_inverse = tl.load(row_inverse + row, mask=row_inside, other=0.0)
        scores = cosines(scores, tl.load(key_inverse + key, mask=key_inside, other=0.0), own_inverse)
    return scores


@triton.jit
def single_scores(
    rows, row, row_stride, row_powers, row_inverse, keys, key, key_inside, key_stride, key_powers, key_inverse, dim,
    BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, SCALED: tl.constexpr, COSINE: tl.constexpr,
):
    """Scores (BN,) of keys with one row: float32 multiplications and additions, at the speed of memory."""
    own = rows + row * row_stride
    starts = keys + key * key_stride
    if SCALED:
        own_power = tl.load(row_powers + row)
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
        if SCALED:
            q = q * own_power
            x = x * powers[:, None]
        sums = tl.fma(x, tl.broadcast_to(q[None, :], (BN, BD)), sums)
    scores = tl.sum(sums, 1)
    if COSINE:
        scores = scores * tl.load(key_inverse + key, mask=key_inside, other=0.0) * tl.load(row_inverse + row)
        scores = tl.where(scores > 1.0, 1.0, scores)
        scores = tl.where(scores < -1.0, -1.0, scores)
    return scores


@triton.jit
def report_nonfinite(flag, scores, counted, row, begin, place, num_keys):
    """Lower `flag` to the least row * num_keys + key whose score (N, Q) counts and is NaN or infinite.

    Keys are begin + `place` (N,) int32, rows (Q,).
    """
    wrong = counted & ((tl.abs(scores) < float("inf")) == 0)
    if tl.max(wrong.to(tl.int32)) > 0:
        first = tl.min(tl.where(wrong, place[:, None], GREATEST), 0)
        tl.atomic_min(flag, tl.min(tl.where(first == GREATEST, FULL, row * num_keys + begin + first), 0))
