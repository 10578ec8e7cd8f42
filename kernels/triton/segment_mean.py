"""segment_mean on a GPU: compensated sums in float64 of many short pieces a program, long ones cut and put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from prismem_core.arrays.device import Device
from prismem_core.kernels.triton import launch
from prismem_core.kernels.triton.launch import Variant

SHORT = 512
"""Values of a segment up to which several segments share a program."""

PIECE = 1 << 15
"""Values that one program adds up of a longer segment."""

SEGMENTS, SHORT_LANES = 16, 32
LANES = 1024


@triton.jit
def add_sums(high, low, other_high, other_low):
    """The sum of two numbers, each held as a rounded number and what rounding lost (Knuth's two-sum)."""
    total = high + other_high
    part = total - high
    lost = (high - (total - part)) + (other_high - part)
    return total, (low + other_low) + lost


@triton.jit
def add_pieces(
    values,
    lows,
    bounds,
    highs_out,
    lows_out,
    count,
    SEGMENTS: tl.constexpr,
    LANES: tl.constexpr,
    PAIRS: tl.constexpr,
    MEANS: tl.constexpr,
):
    """Sums or means of pieces; `bounds` (4, count): first value, past the last, divisor, place of the result."""
    piece = tl.program_id(0).to(tl.int64) * SEGMENTS + tl.arange(0, SEGMENTS)
    there = piece < count
    begin = tl.load(bounds + piece, mask=there, other=0)
    end = tl.load(bounds + count + piece, mask=there, other=0)
    high = tl.zeros((SEGMENTS, LANES), tl.float64)
    low = tl.zeros((SEGMENTS, LANES), tl.float64)
    longest = tl.max(end - begin, axis=0)
    lane = tl.arange(0, LANES)
    for start in range(0, longest, LANES):
        position = begin[:, None] + start + lane[None, :]
        inside = position < end[:, None]
        value = tl.load(values + position, mask=inside, other=0.0).to(tl.float64)
        rest = tl.zeros((SEGMENTS, LANES), tl.float64)
        if PAIRS:
            rest = tl.load(lows + position, mask=inside, other=0.0)
        high, low = add_sums(high, low, value, rest)
    high, low = tl.reduce((high, low), 1, add_sums)
    place = tl.load(bounds + 3 * count + piece, mask=there, other=0)
    if MEANS:
        number = tl.load(bounds + 2 * count + piece, mask=there, other=1)
        # With an infinity the lost part is NaN and the plain sum is the right answer.
        total = tl.where(tl.abs(high) < float("inf"), high + low, high)
        tl.store(highs_out + place, total / number.to(tl.float64), mask=there)
    else:
        tl.store(highs_out + place, high, mask=there)
        tl.store(lows_out + place, low, mask=there)


@dataclass(frozen=True)
class Plan:
    """Tables `bounds` (4, p) of three launches: short segments, pieces of long segments, the sums of those pieces."""

    short: NDArray[np.int64]
    pieces: NDArray[np.int64]
    long: NDArray[np.int64]


def plan(offsets: NDArray[np.int64]) -> Plan:
    """Which program adds up what."""
    lengths = np.diff(offsets)
    short = np.flatnonzero(lengths <= SHORT)
    long = np.flatnonzero(lengths > SHORT)
    begins, ends = offsets[:-1], offsets[1:]
    numbers = -(-lengths[long] // PIECE)
    past = np.cumsum(numbers)
    owner = np.repeat(long, numbers)
    within = np.arange(len(owner)) - np.repeat(past - numbers, numbers)
    first = begins[owner] + within * PIECE
    return Plan(
        np.stack([begins[short], ends[short], lengths[short], short]),
        np.stack([first, np.minimum(first + PIECE, ends[owner]), np.ones_like(first), np.arange(len(owner))]),
        np.stack([past - numbers, past, lengths[long], long]),
    )


def segment_mean(values: Any, offsets: NDArray[np.int64], means: Any, *, device: Device) -> None:
    """Fill `means` (s,) float64 of values[offsets[g] : offsets[g + 1]]; `values` (n,) float32 or float64.

    NaN for an empty segment. Sums whose parts leave float64 are infinite or NaN. Uploads tables of the segments.
    """
    work = plan(offsets)
    if work.short.size:
        _add(values, None, work.short, means, None, SEGMENTS, SHORT_LANES, device)
    if work.long.size:
        highs = device.empty((work.pieces.shape[1],), "float64")
        lows = device.empty((work.pieces.shape[1],), "float64")
        _add(values, None, work.pieces, highs, lows, 1, LANES, device)
        _add(highs, lows, work.long, means, None, SEGMENTS, SHORT_LANES, device)


def _add(
    values: Any,
    lows: Any,
    bounds: NDArray[np.int64],
    highs_out: Any,
    lows_out: Any,
    segments: int,
    lanes: int,
    device: Device,
) -> None:
    count, table = bounds.shape[1], device.upload(bounds)
    with launch.on(device):
        add_pieces[(triton.cdiv(count, segments),)](
            values,
            values if lows is None else lows,
            table,
            highs_out,
            highs_out if lows_out is None else lows_out,
            count,
            SEGMENTS=segments,
            LANES=lanes,
            PAIRS=lows is not None,
            MEANS=lows_out is None,
            num_warps=4,
        )


def variants(sm: int) -> list[Variant]:
    """The launches of `segment_mean`, for ahead-of-time compilation."""
    del sm  # the same for all
    signature = {"bounds": "*i64", "highs_out": "*fp64", "lows_out": "*fp64", "count": "i32"}
    short = {"SEGMENTS": SEGMENTS, "LANES": SHORT_LANES}
    pieces = {"SEGMENTS": 1, "LANES": LANES}
    kinds = [
        ("short float32", "*fp32", "*fp32", {**short, "PAIRS": False, "MEANS": True}),
        ("pieces float32", "*fp32", "*fp32", {**pieces, "PAIRS": False, "MEANS": False}),
        ("sums of pieces", "*fp64", "*fp64", {**short, "PAIRS": True, "MEANS": True}),
    ]
    return [
        Variant(
            f"segment_mean {name}",
            "segment_mean",
            add_pieces,
            {"values": values, "lows": lows, **signature},
            constants,
            aligned=("values", "lows", "bounds", "highs_out", "lows_out"),
            notes={"loads": "a piece begins at any value, so what lies beside each other is not aligned"},
        )
        for name, values, lows, constants in kinds
    ]
