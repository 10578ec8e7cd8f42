"""Checks of the plain arguments that several ops take, and the error for a score that is not finite."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Rows, plain
from prismem_core.errors import ArgumentError
from prismem_core.ops.segments import Segments


def whole_number(value: Any, name: str) -> int:
    """A whole number of at least 0."""
    if type(value) is int and value >= 0:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0 or isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{name}: expected a whole number of at least 0, got {value!r}")
    return number


def flag(value: Any, name: str) -> bool:
    """True or False."""
    if value is True or value is False:
        return value
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def threshold(value: Any, name: str) -> float | None:
    """A threshold as the float32 number that scores are compared with, or None; NaN is refused."""
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ArgumentError(f"{name}: expected a number or None, got {value!r}")
    if math.isnan(value):
        raise ArgumentError(f"{name}: expected a number or None, got NaN")
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def weight(value: Any, name: str) -> float:
    """A number from 0 to 1."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    if not number or not 0.0 <= value <= 1.0:
        raise ArgumentError(f"{name}: expected a number from 0 to 1, got {value!r}")
    return float(value)


def nonfinite_mode(value: Any) -> bool:
    """Whether scores that are not finite are an error ("raise") or not ("skip")."""
    if value == "raise":
        return True
    if value != "skip":
        raise ArgumentError(f'nonfinite: expected "raise" or "skip", got {value!r}')
    return False


def same_dim(left: Rows, right: Rows) -> None:
    """Both have as many dimensions."""
    if left.data.shape[1] != right.data.shape[1]:
        raise ArgumentError(
            f"{right.name}: expected {left.dim} dimensions, as {left.name} has, got {right.dim} (shapes "
            f"{left.data.shape} and {right.data.shape}); were they embedded by the same model?"
        )


def segments_for(segments: Any, left: Rows, right: Rows) -> Segments | None:
    """Segments that fit the rows, or None for all keys."""
    return segments_fit(segments, left.count, left.name, right.count, right.name)


def segments_fit(segments: Any, num_rows: int, rows_name: str, num_keys: int, keys_name: str) -> Segments | None:
    """Segments that fit so many rows and keys, or None for all keys."""
    if segments is None:
        return None
    if not isinstance(segments, Segments):
        raise ArgumentError(
            f"segments: expected ops.Segments or None, got {type(segments).__name__}; make ops.Segments(offsets)"
        )
    segments.check(num_rows, rows_name, num_keys, keys_name)
    return segments


def mask_for(mask: Any, left: Rows, right: Rows) -> NDArray[np.bool_] | None:
    """A mask (n,) or (m, n) of the keys that may be returned, or None for all."""
    if mask is None:
        return None
    view = plain(mask, "mask", ("bool",), (1, 2))
    if tuple(view.shape) not in ((right.count,), (left.count, right.count)):
        raise ArgumentError(
            f"mask: expected shape ({right.count},) or ({left.count}, {right.count}): one value a row of {right.name}, "
            f"got {tuple(view.shape)}"
        )
    masked: NDArray[np.bool_] = view
    return masked


def raise_nonfinite(left: Rows, right: Rows, left_row: int, right_row: int, remedy: str) -> None:
    """ArgumentError for a pair without a finite score: names the row at fault."""
    for rows, row in ((left, left_row), (right, right_row)):
        if not np.isfinite(Rows(rows.name, rows.data[row : row + 1], rows.kind).float64()).all():
            raise ArgumentError(f"{rows.name}: row {row} holds NaN or infinity; mend the row or {remedy}")
    raise ArgumentError(
        f"{right.name}: the score of row {right_row} with row {left_row} of {left.name} is too large for float32; "
        "scale the rows"
    )


def allowed(mask: NDArray[np.bool_] | None, row: int, begin: int, end: int) -> NDArray[np.bool_]:
    """Which keys of the range [begin, end) a checked mask, (n,) or (m, n), lets a row see; all without a mask."""
    if mask is None:
        return np.ones(end - begin, np.bool_)
    return (mask if mask.ndim == 1 else mask[row])[begin:end]
