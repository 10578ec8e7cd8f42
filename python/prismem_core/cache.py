"""The execution cache: stage outputs under content keys, in memory and on disk, each computed once.

An entry is named by a stage and a key (`digests.digest`). Values are bytes; JSON values and arrays have codecs here.
What is on disk is data: reading it executes nothing. The bytes are described in docs/formats.md.
"""

from __future__ import annotations

import json
import os
import struct
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core import _native
from prismem_core.digests import canonical_json
from prismem_core.errors import ArgumentError, CacheError

__all__ = [
    "CacheWarning",
    "ExecutionCache",
    "StageCounters",
    "decode_array",
    "decode_json",
    "encode_array",
    "encode_json",
]


class CacheWarning(UserWarning):
    """The cache goes on with less than was asked for: its disk cannot be written."""


@dataclass(frozen=True)
class StageCounters:
    """What one stage has counted since the cache was opened.

    Every look-up is a hit (found), a miss (not found; in `get_or_compute` also: computed) or a wait (another thread was
    computing it), so `hits + waits` computations were saved. `stores` are values put, `evictions` values dropped from
    memory for want of room (they stay on disk if there is one), `damaged` entries on disk that failed their checksum.
    """

    hits: int
    misses: int
    stores: int
    evictions: int
    waits: int
    damaged: int


class ExecutionCache:
    """A thread-safe cache of stage outputs; a context manager that closes itself.

    `directory`: where the disk tier lives, made when absent; None keeps values in memory only. One process at a time
    writes to a directory; others open it with `read_only=True`, see what the writer adds, and keep their own puts in
    memory. `memory_bytes` bounds the memory tier (the values used last stay); `segment_bytes` is the size at which a
    new file is begun on disk.

    A put is handed to the system when it returns, so that the end of the process, however sudden, loses nothing.
    Outliving a loss of power needs `flush()` or `close()`. Where the disk is full or read-only the cache goes on in
    memory and says so once (CacheWarning). After a fork the child must open its own.

    Raises ArgumentError for a stage that is not 1 to 64 printable ASCII characters, a key that is not 64 lowercase hex
    digits or a value that is not bytes; CacheError for a directory that is no cache or that another process writes to,
    for use after close or fork, and for values that must not be stored (not finite, no JSON).
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        memory_bytes: int = 256 << 20,
        read_only: bool = False,
        segment_bytes: int = 64 << 20,
    ) -> None:
        for name, size in (("memory_bytes", memory_bytes), ("segment_bytes", segment_bytes)):
            if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 1 << 63:
                raise ArgumentError(f"{name} must be a number of bytes, 0 or more, got {size!r}")
        if directory is None and read_only:
            raise ArgumentError("read_only=True needs a directory: a cache in memory has nothing to read")
        if directory is not None:
            if not isinstance(directory, str | os.PathLike):
                raise ArgumentError(f"directory must be a path or None, got {type(directory).__name__}")
            if not os.fspath(directory) or "\0" in str(directory):
                raise ArgumentError(f"directory must be a path or None, got {os.fspath(directory)!r}")
        self._directory = None if directory is None else Path(directory)
        path = None if directory is None else os.fsencode(directory)
        self._native = _native.ExecutionCache(path, memory_bytes, read_only, segment_bytes)
        self._tell()

    @property
    def directory(self) -> Path | None:
        """Where the disk tier lives; None for a cache in memory."""
        return self._directory

    def __enter__(self) -> ExecutionCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, stage: str, key: str) -> bytes | None:
        """The stored bytes, or None."""
        return self._native.get(stage, key)

    def get_many(self, stage: str, keys: Sequence[str]) -> list[bytes | None]:
        """`get` for each key, in their order."""
        return self._native.get_many(stage, keys)

    def put(self, stage: str, key: str, value: bytes) -> None:
        """Stores `value`, in place of an older one; handed to the system when it returns."""
        self._native.put(stage, key, value)
        self._tell()

    def get_or_compute(self, stage: str, key: str, compute: Callable[[], bytes]) -> bytes:
        """The stored bytes, or what `compute` returns, stored.

        Of all threads that ask for an entry at a time one computes and the others wait. An exception reaches all of
        them and nothing is stored. CacheError where a compute function asks, directly or through other threads, for
        the entry it computes.
        """
        if not callable(compute):
            raise ArgumentError(f"compute must be a function without arguments, got {type(compute).__name__}")
        value = self._native.get_or_compute(stage, key, compute)
        self._tell()
        return value

    def get_json(self, stage: str, key: str) -> Any:
        """The stored JSON value, built anew on each call, or None (as for a stored null)."""
        data = self.get(stage, key)
        return None if data is None else decode_json(data)

    def put_json(self, stage: str, key: str, value: Any) -> None:
        """Stores a JSON value; see `encode_json`."""
        self.put(stage, key, encode_json(value))

    def get_or_compute_json(self, stage: str, key: str, compute: Callable[[], Any]) -> Any:
        """`get_or_compute` of a JSON value; the first caller, too, gets it as JSON gives it back (tuples as lists)."""
        if not callable(compute):
            raise ArgumentError(f"compute must be a function without arguments, got {type(compute).__name__}")
        return decode_json(self.get_or_compute(stage, key, lambda: encode_json(compute())))

    def get_array(self, stage: str, key: str) -> NDArray[Any] | None:
        """The stored array, a fresh and writable one on each call, or None."""
        data = self.get(stage, key)
        return None if data is None else decode_array(data)

    def put_array(self, stage: str, key: str, value: NDArray[Any]) -> None:
        """Stores an array; see `encode_array`."""
        self.put(stage, key, encode_array(value))

    def get_arrays(self, stage: str, keys: Sequence[str]) -> list[NDArray[Any] | None]:
        """`get_array` for each key, in their order."""
        return [None if data is None else decode_array(data) for data in self.get_many(stage, keys)]

    def counters(self) -> dict[str, StageCounters]:
        """What each stage has counted, by stage name in ascending order; stages never used are left out."""
        return {stage: StageCounters(*counts) for stage, counts in self._native.counters().items()}

    @property
    def damaged(self) -> int:
        """Damage met on disk: damaged entries of every stage, and stretches of files that are no entry."""
        return self._native.damaged()

    def flush(self) -> None:
        """Brings every put to the disk itself (fsync)."""
        self._native.flush()

    def close(self) -> None:
        """Flushes, and gives the directory back to other writers; calling it again does nothing."""
        self._native.close()

    def _tell(self) -> None:
        notice = self._native.take_notice()
        if notice is not None:
            warnings.warn(notice, CacheWarning, stacklevel=3)


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
