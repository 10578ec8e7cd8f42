"""Inputs that the examples of several ops share: awkward sizes, every kind and stride of rows, values at the edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZES = (1, 3, 7, 15, 16, 17, 31, 33, 63, 65, 97)
"""Around the widths of vectors and blocks, where tails go wrong."""


def unit_rows(rng: np.random.Generator, count: int, dim: int) -> NDArray[np.float32]:
    """Random rows of length 1."""
    values = rng.standard_normal((count, dim))
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-9), np.float32)


def bfloat16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of float32 bits, rounded to nearest even; finite values only."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)).astype(np.uint16)


def layouts(values: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The same values (n, d) at every kind of distance in memory."""
    count, dim = values.shape
    yield "contiguous", np.ascontiguousarray(values)
    yield "transposed", np.ascontiguousarray(values.T).T
    padded = np.zeros((count, dim + 5), values.dtype)
    padded[:, 2 : dim + 2] = values
    yield "row-padded", padded[:, 2 : dim + 2]
    spaced = np.zeros((2 * count, 3 * dim), values.dtype)
    spaced[::2, ::3] = values
    yield "sliced", spaced[::2, ::3]
    yield "reversed rows", np.ascontiguousarray(values[::-1])[::-1]
    yield "reversed columns", np.ascontiguousarray(values[:, ::-1])[:, ::-1]
    if count:
        yield "broadcast", np.broadcast_to(values[:1], (count, dim))
    read_only = np.ascontiguousarray(values).copy()
    read_only.flags.writeable = False
    yield "read-only", read_only
    shifted = (
        np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(count, dim) if values.size else values
    )
    shifted[...] = values
    yield "unaligned", shifted


def pairs(rng: np.random.Generator) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Two sets of rows with the same number of dimensions, and what is special about them."""
    for position, dim in enumerate(SIZES):
        left, right = SIZES[-1 - position], SIZES[(3 * position + 4) % len(SIZES)]
        yield f"{left}x{right}x{dim}", unit_rows(rng, left, dim), unit_rows(rng, right, dim)
    yield "long rows", unit_rows(rng, 2, 1000), unit_rows(rng, 150, 1000)
    yield "large values", np.float32(1e25) * unit_rows(rng, 3, 20), np.float32(1e12) * unit_rows(rng, 9, 20)
    yield "small values", np.float32(1e-25) * unit_rows(rng, 3, 20), np.float32(1e-12) * unit_rows(rng, 9, 20)
    for left, right, dim in ((0, 5, 8), (5, 0, 8), (0, 0, 8), (3, 4, 0), (0, 0, 0)):
        yield f"empty {left}x{right}x{dim}", np.zeros((left, dim), np.float32), np.zeros((right, dim), np.float32)
    x, y = unit_rows(rng, 5, 19), unit_rows(rng, 11, 19)
    for label, laid in layouts(y):
        yield label, x, laid
    for label, laid in layouts(x):
        yield f"{label} left", laid, y
    half_x, half_y = x.astype(np.float16), unit_rows(rng, 13, 19).astype(np.float16)
    yield "float16", half_x, half_y
    yield "float16 rows", x, half_y
    for label, laid in layouts(half_y):
        yield f"float16 {label}", half_x, laid


def special_rows() -> NDArray[np.float32]:
    """Zero, negative zero, infinities, NaN, the smallest and the largest numbers, and plain rows between them."""
    inf, nan, big, tiny = np.inf, np.nan, np.finfo(np.float32).max, np.float32(1e-45)
    return np.array(
        [
            [1, 0, 0.5],
            [0, 0, 0],
            [-0.0, -0.0, -0.0],
            [inf, 0, 0],
            [-inf, 1, 0],
            [inf, -inf, 1],
            [nan, 0, 0],
            [big, big, big],
            [big, -big, 1],
            [tiny, 0, tiny],
            [1, 0, 0.5],
        ],
        np.float32,
    )
