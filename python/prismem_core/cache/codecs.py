"""Codecs: JSON values, texts and arrays as the bytes of an entry and back; values are fresh, bytes are canonical."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.digests import canonical_json
from prismem_core.errors import ArgumentError, CacheError


def encode_json(value: Any) -> bytes:
    """Canonical JSON (`digests.canonical_json`); CacheError for what JSON cannot say: NaN, infinities, other types."""
    try:
        return canonical_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise CacheError(f"value cannot be stored as JSON: {error}") from error


def decode_json(data: bytes) -> Any:
    """The value that `encode_json` wrote; CacheError for bytes of another codec."""
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CacheError(f"entry is not JSON ({error}): read it with the method that matches how it was put") from error


def _refuse_constant(name: str) -> Any:
    raise CacheError(f"entry holds {name}, which is no JSON: compute it again and store finite numbers only")


def encode_text(value: str) -> bytes:
    """UTF-8; ArgumentError for what is no text."""
    if not isinstance(value, str):
        raise ArgumentError(f"value must be str, got {type(value).__name__}; use put for bytes, put_json for the rest")
    return value.encode("utf-8", "surrogatepass")


def decode_text(data: bytes) -> str:
    """The text that `encode_text` wrote; CacheError for bytes that are no text."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise CacheError(f"entry is not text ({error}): read it with the method that matches how it was put") from error


# An array entry: this head, `ndim` lengths as int64, then the elements in C order; all little endian.
_ARRAY_HEAD = struct.Struct("<4s3sB")
_ARRAY_MAGIC = b"PMA1"
_DTYPES = {
    name: np.dtype("<" + name) for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
}
_MAX_DIMENSIONS = 32


def encode_array(value: NDArray[Any]) -> bytes:
    """An array with its dtype and shape; bool, integers and floats of 16 to 64 bits, of any layout and byte order.

    CacheError for other dtypes and for NaN or infinities; ArgumentError for what is no array.
    """
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"value must be a numpy array without a mask, got {type(value).__name__}")
    name = value.dtype.str[1:]
    if name not in _DTYPES:
        raise CacheError(
            f"array of dtype {value.dtype} cannot be stored: expected bool, an integer or a float of at most 64 bits"
        )
    if value.ndim > _MAX_DIMENSIONS:
        raise CacheError(f"array of {value.ndim} dimensions cannot be stored: expected at most {_MAX_DIMENSIONS}")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        where = tuple(int(index[0]) for index in np.nonzero(~np.isfinite(np.atleast_1d(value))))
        raise CacheError(f"array holds a value that is not finite at {where}: only finite numbers are stored")
    head = _ARRAY_HEAD.pack(_ARRAY_MAGIC, name.encode(), value.ndim) + struct.pack(f"<{value.ndim}q", *value.shape)
    return head + value.astype(_DTYPES[name], order="C", copy=False).tobytes()


def decode_array(data: bytes) -> NDArray[Any]:
    """The array that `encode_array` wrote, fresh and writable; CacheError for bytes of another codec."""
    if len(data) >= _ARRAY_HEAD.size:
        magic, name, ndim = _ARRAY_HEAD.unpack_from(data)
        dtype = _DTYPES.get(name.rstrip(b"\0").decode("latin-1"))
        start = _ARRAY_HEAD.size + 8 * ndim
        if magic == _ARRAY_MAGIC and dtype is not None and ndim <= _MAX_DIMENSIONS and len(data) >= start:
            shape = struct.unpack_from(f"<{ndim}q", data, _ARRAY_HEAD.size)
            if min(shape, default=0) >= 0 and prod(shape) * dtype.itemsize == len(data) - start:
                array = np.frombuffer(data, dtype, offset=start).reshape(shape)
                return array.astype(dtype.newbyteorder("="))
    raise CacheError("entry is not an array: read it with the method that matches how it was put")


def stack_rows(
    arrays: Sequence[NDArray[Any] | None], stage: str, keys: Sequence[str | bytes]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Decoded entries as rows of one float32 matrix (n, d), zeros where there is none, and which there are (n,).

    d is the length of the first, 0 where there is none. ArgumentError for an entry that is no float32 row of d.
    """
    dimension = next((array.size for array in arrays if array is not None), 0)
    rows = np.zeros((len(keys), dimension), np.float32)
    for i, array in enumerate(arrays):
        if array is None:
            continue
        if array.dtype != np.float32 or array.shape != (dimension,):
            raise ArgumentError(
                f"entry {keys[i]!r} of stage {stage!r} is an array of {array.dtype} {array.shape}, expected a float32 "
                f"row as long as the others, ({dimension},); read it with get_array"
            )
        rows[i] = array
    return rows, np.array([array is not None for array in arrays], np.bool_)
