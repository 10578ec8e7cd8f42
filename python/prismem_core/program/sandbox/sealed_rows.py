"""Embeddings that come again and again, kept in sealed memory and handed to any number of workers."""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prismem_core.program.sandbox.sealed_memory import seal

LEAST_BYTES = 1 << 20
"""Below this a reply costs least through the socket (docs/benchmarks.md)."""

_MOST_BYTES = 64 << 20
_MOST_SIGHTS = 4096
# Of the first and the last row; whole rows of thousands of sights would be a hundred megabytes.
_KEY_FLOATS = 64

_Key = tuple[tuple[int, ...], bytes, bytes]


class _Kept(NamedTuple):
    descriptor: int
    pages: mmap.mmap


class SealedRows:
    """One sealed file for each batch of rows that was seen before, the longest unused dropped beyond 64 MiB.

    A batch that comes once is cheaper through the socket, one that comes again cheaper as a file. Each file holds one
    reply and no more, so nothing of other tasks comes with it; each worker gets a file description of its own. What is
    kept is compared byte by byte before it stands for another batch. Thread-safe.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._seen: OrderedDict[_Key, None] = OrderedDict()
        self._bytes = 0
        self._closed = False

    def descriptor(self, rows: NDArray[np.float32]) -> int | None:
        """A descriptor of a file with these rows, contiguous float32 (n, d), that the caller closes.

        None where they are to go through the socket: too few, new, or no file can be had.
        """
        if not LEAST_BYTES <= rows.nbytes <= self._most_bytes:
            return None
        key = (rows.shape, rows[0, :_KEY_FLOATS].tobytes(), rows[-1, :_KEY_FLOATS].tobytes())
        with self._lock:
            if self._closed:
                return None
            kept = self._kept.get(key)
            if kept is None:
                if not self._again(key):
                    return None
                try:
                    kept = self._keep(key, rows)
                except OSError:
                    return None
            elif not np.array_equal(np.frombuffer(kept.pages, np.uint32), rows.reshape(-1).view(np.uint32)):
                return None
            self._kept.move_to_end(key)
            # An offset that workers share would be a way for them to talk.
            try:
                return os.open(f"/proc/self/fd/{kept.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return None

    def close(self) -> None:
        """Let go of everything; workers keep what they have."""
        with self._lock:
            self._closed = True
            while self._kept:
                self._drop()

    def _again(self, key: _Key) -> bool:
        if key in self._seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        if len(self._seen) > _MOST_SIGHTS:
            self._seen.popitem(last=False)
        return False

    def _keep(self, key: _Key, rows: NDArray[np.float32]) -> _Kept:
        while self._kept and self._bytes + rows.nbytes > self._most_bytes:
            self._drop()
        descriptor = seal(rows)
        try:
            kept = _Kept(descriptor, mmap.mmap(descriptor, rows.nbytes, access=mmap.ACCESS_READ))
        except BaseException:
            os.close(descriptor)
            raise
        self._kept[key] = kept
        self._bytes += rows.nbytes
        return kept

    def _drop(self) -> None:
        _, kept = self._kept.popitem(last=False)
        self._bytes -= len(kept.pages)
        kept.pages.close()
        os.close(kept.descriptor)
