"""Rows of embeddings in sealed memory: written once by the engine, mapped by any number of workers, changed by none.

The engine seals an anonymous file (memfd_create(2)) against every change and hands its descriptor over; a worker maps
it privately, so the program may write into its array, and only its own pages change. Linux only; a worker reads this
file too, so it imports the standard library and numpy only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os

import numpy as np
from numpy.typing import NDArray

# fcntl(2) and memfd_create(2); Python names some of them from 3.12 on.
_ADD_SEALS = 1033
_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # seal, shrink, grow, write
_NOEXEC_SEAL = 0x8

_FLOAT_BYTES = 4

# The handle is made before a worker is confined; making one would read files.
_libc = ctypes.CDLL(None, use_errno=True)
_map = _libc.mmap
_map.restype = ctypes.c_void_p
_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_unmap = _libc.munmap
_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


def seal(array: NDArray[np.float32]) -> int:
    """A descriptor of a new file that holds the array's bytes and can never change; the caller closes it.

    ValueError unless the array is contiguous float32; OSError where the system has no descriptor or memory left.
    """
    if array.dtype != np.dtype("<f4") or not array.flags.c_contiguous:
        raise ValueError(f"only contiguous float32 arrays can be sealed, got {array.dtype} {array.shape}")
    descriptor = _anonymous_file()
    try:
        # write() fills fresh pages without clearing them and without a page fault each: half the time of a mapping.
        left = array.reshape(-1).view(np.uint8).data
        while left:
            left = left[os.write(descriptor, left) :]
        fcntl.fcntl(descriptor, _ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _anonymous_file() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("rows", flags | _NOEXEC_SEAL)
    except OSError as error:
        # Before Linux 6.3 there is no such flag.
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("rows", flags)


class _Mapping:
    """Owns mapped pages; numpy holds it as the base of an array and of every view of that."""

    __slots__ = ("__array_interface__", "_address", "_size")

    def __init__(self, address: int, rows: int, columns: int) -> None:
        self._address = address
        self._size = rows * columns * _FLOAT_BYTES
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<f4",
            "shape": (rows, columns),
            "data": (address, False),
        }

    def __del__(self) -> None:
        _unmap(self._address, self._size)


def map_rows(descriptor: int, rows: int, columns: int) -> NDArray[np.float32]:
    """The sealed array (rows, columns), float32, writable: what is written stays with this process and its copies.

    Closes the descriptor. The pages are given back with the last view of the array. MemoryError if they cannot be
    mapped.
    """
    try:
        size = rows * columns * _FLOAT_BYTES
        if size == 0:
            return np.empty((rows, columns), np.float32)
        address = _map(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, descriptor, 0)
        if address is None or address == _FAILED:
            reason = os.strerror(ctypes.get_errno())
            raise MemoryError(f"{rows} embeddings of {columns} dimensions cannot be mapped: {reason}")
    finally:
        os.close(descriptor)
    return np.asarray(_Mapping(address, rows, columns))
