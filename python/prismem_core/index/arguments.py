"""Arguments that the indexes share: paths, ids and filters as the C++ core takes them."""

from __future__ import annotations

import operator
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import readable
from prismem_core.errors import ArgumentError

if TYPE_CHECKING:
    from prismem_core._native import PreparedFilter


def path_bytes(path: str | Path) -> bytes:
    """The path of a file as the system takes it."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        raise ArgumentError(f"path: expected the path of a file, got {path!r}")
    return os.fsencode(path)


def checked_ids(ids: Any, count: int | None = None, of: str = "") -> NDArray[np.int64]:
    """Ids as contiguous int64 numbers, one for each of `count` of what `of` names."""
    if isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.ndim == 1:
        array = readable(ids)
    else:
        array = _whole_numbers(ids, "ids")
    if count is not None and array.shape[0] != count:
        raise ArgumentError(f"ids: expected {count}, one for each {of}, got {array.shape[0]}")
    return np.ascontiguousarray(array)


def as_id(value: Any) -> int | None:
    """The number of an id, or None for what can be none."""
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if -(1 << 63) <= number < 1 << 63 else None


def _whole_numbers(values: Any, name: str) -> NDArray[Any]:
    """An array (n,) of int64 made of any integers that fit."""
    array = np.asarray(values) if np.ndim(values) else np.empty(0, np.object_)
    if isinstance(values, (list, tuple)) and not values:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ArgumentError(
            f"{name}: expected int64 numbers of shape (n,), got {_form(values)}; for one row pass a list of one id"
        )
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 1 << 63:
        raise ArgumentError(f"{name}: expected int64 numbers, got {int(array.max())}")
    return array.astype(np.int64)


def _form(values: Any) -> str:
    return f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else repr(values)[:60]


def is_prepared(filter: Any) -> bool:
    """Whether an index of the C++ core prepared it; false, too, where there is no such core."""
    core = sys.modules.get("prismem_core._native")
    return core is not None and isinstance(filter, core.PreparedFilter)


def checked_filter(filter: Any) -> PreparedFilter | NDArray[Any] | None:
    """A filter as the native index takes it."""
    if filter is None or is_prepared(filter):
        return filter  # type: ignore[no-any-return]
    array = filter if isinstance(filter, np.ndarray) else np.asarray(filter)
    if array.dtype == np.bool_:
        if array.ndim not in (1, 2):
            raise ArgumentError(f"filter: expected a mask of shape (n,) or (m, n), got {array.shape}")
        return array
    return np.ascontiguousarray(_whole_numbers(filter, "filter"))
