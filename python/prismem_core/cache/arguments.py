"""Checks of arguments; each error says which one, what was expected and what came."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence, Sized
from numbers import Integral, Real
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError

_MAX_COST = 1e30
_MAX_ELEMENTS = 1 << 40

Rows = NDArray[np.float32]
"""A matrix (n, d)."""


def checked_path(value: object, expected: str) -> Path:
    """A path; `expected` begins the error for anything else."""
    if not isinstance(value, str | os.PathLike):
        raise ArgumentError(f"{expected}, got {type(value).__name__}")
    if not os.fspath(value) or "\0" in str(value):
        raise ArgumentError(f"{expected}, got {os.fspath(value)!r}")
    return Path(value)


def count_of(what: str, values: object) -> int:
    """How many there are of a sequence."""
    if not isinstance(values, Sized) or isinstance(values, str | bytes):
        raise ArgumentError(f"{what} must be a sequence of them, got {type(values).__name__}")
    return len(values)


def checked_cost(cost: object) -> float:
    """A cost: a number from 0 to 1e30."""
    try:
        number = math.nan if isinstance(cost, bool) or not isinstance(cost, Real) else float(cost)
    except OverflowError:
        number = math.inf
    if not 0.0 <= number <= _MAX_COST:
        raise ArgumentError(f"cost must be a number from 0 to 1e30, got {cost!r}")
    return number


def checked_costs(cost: object, count: int) -> float | list[float]:
    """One cost for all values, or one a value."""
    if isinstance(cost, Real) or not isinstance(cost, Sequence | np.ndarray):
        return checked_cost(cost)
    if len(cost) != count:
        raise ArgumentError(f"cost must be one number or one a value: got {len(cost)} for {count} values")
    return [checked_cost(one) for one in cost]


def rows_for(count: int, dimension: int | None, out: Rows | None) -> Rows:
    """A new matrix of `count` rows, or `out` where it is one."""
    wanted: object = dimension
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, Integral) or wanted < 0):
        raise ArgumentError(f"dimension must be a number of elements, got {dimension!r}")
    if out is None:
        if count * int(dimension or 0) > _MAX_ELEMENTS:
            raise ArgumentError(f"dimension must be that of the rows stored, got {dimension} for {count} rows")
        return np.empty((count, dimension or 0), np.float32)
    if (
        isinstance(out, np.ndarray)
        and out.dtype == np.float32
        and out.ndim == 2
        and out.shape == (count, out.shape[-1] if dimension is None else dimension)
        and out.flags.c_contiguous
        and out.flags.writeable
    ):
        return out
    shape = f"({count}, {'d' if dimension is None else dimension})"
    raise ArgumentError(f"out must be a writable float32 array of shape {shape} in C order, got {shown(out)}")


def shown(value: object) -> str:
    """What came in place of an array, for errors."""
    masked = "masked " if isinstance(value, np.ma.MaskedArray) else ""
    return f"{masked}{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
