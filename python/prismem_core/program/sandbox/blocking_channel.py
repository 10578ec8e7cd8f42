"""The zygote's and the workers' end of a socket to the engine: blocking reads, no limits of its own.

The engine's end (`engine_channel`) is the one that distrusts; this end only has to speak the same frames.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.program.sandbox import frames

_DESCRIPTOR = struct.Struct("i")
_READ_AHEAD_BYTES = 32 << 10
_LARGE_PAGE_BYTES = 2 << 20
_CHUNK_BYTES = 2 * _LARGE_PAGE_BYTES
_LEAST_LARGE_BYTES = 32 << 10
_SMALL_AT_FIRST_BYTES = 1 << 20
_ALIGNMENT_FLOATS = 16


class BlockingChannel:
    def __init__(self, descriptor: int) -> None:
        # With family, type and protocol given nothing is asked of the kernel that a confined process may not ask.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=descriptor)
        self._buffer = memoryview(bytearray(_READ_AHEAD_BYTES))
        self._ahead = self._buffer[:0]
        self._rows = _RowMemory()

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """Send one frame, with an open file where `descriptor` names one.

        FrameError if the message is too long or holds what JSON cannot carry.
        """
        data = frames.encode(message, frames.FROM_WORKER_BYTES)
        if descriptor is not None:
            data = data[socket.send_fds(self._socket, [data], [descriptor]) :]
        self._socket.sendall(data)

    def receive(self) -> tuple[dict[str, Any], int | None] | None:
        """The next message and the descriptor that came with it, or None at the end of the stream."""
        descriptor = None
        if not self._ahead:
            # A descriptor comes with the first byte of a frame, nothing waits before an order that has one, and the
            # kernel ends a read behind the bytes that one came with.
            count, ancillary, _, _ = self._socket.recvmsg_into([self._buffer], socket.CMSG_SPACE(_DESCRIPTOR.size))
            if not count:
                return None
            self._ahead = self._buffer[:count]
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    descriptor = _DESCRIPTOR.unpack_from(data)[0]
        size = frames.length(self._read(frames.LENGTH.size), frames.TO_WORKER_BYTES)
        return frames.decode(self._read(size)), descriptor

    def receive_array(self, rows: int, columns: int) -> NDArray[np.float32]:
        """A fresh writable float32 array (rows, columns) whose bytes follow the frame just read."""
        flat = self._rows.take(rows * columns)
        self._fill(flat.view(np.uint8).data)
        return flat.reshape(rows, columns)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> memoryview:
        """The next bytes, which stay as they are until the next read."""
        if size <= len(self._ahead):
            found, self._ahead = self._ahead[:size], self._ahead[size:]
            return found
        data = memoryview(bytearray(size))
        self._fill(data)
        return data

    def _fill(self, view: memoryview) -> None:
        known = self._ahead[: len(view)]
        view[: len(known)] = known
        self._ahead = self._ahead[len(known) :]
        view = view[len(known) :]
        while view:
            count = self._socket.recv_into(view, 0, socket.MSG_WAITALL)
            if count == 0:
                raise EOFError("the engine closed the channel in the middle of a frame")
            view = view[count:]


class _RowMemory:
    """Fresh memory for arrays: on large pages, but for small arrays and the first ones.

    The first touch of a page costs more than copying its bytes, and rows that are kept are always on fresh pages. A
    process that asks for little, as a query's copy does, is spared clearing a large one. A chunk lives as long as any
    array in it.
    """

    def __init__(self) -> None:
        self._left: NDArray[np.float32] = np.empty(0, np.float32)
        self._taken_bytes = 0

    def take(self, count: int) -> NDArray[np.float32]:
        """An array of `count` floats with any values; MemoryError beyond the process's limit."""
        size = count * 4
        self._taken_bytes += size
        if size < _LEAST_LARGE_BYTES or self._taken_bytes <= _SMALL_AT_FIRST_BYTES:
            return np.empty(count, np.float32)
        if count > len(self._left):
            self._left = _chunk(max(_CHUNK_BYTES, size))
        taken = self._left[:count]
        self._left = self._left[-(-count // _ALIGNMENT_FLOATS) * _ALIGNMENT_FLOATS :]
        return taken


def _chunk(size: int) -> NDArray[np.float32]:
    size = -(-size // _LARGE_PAGE_BYTES) * _LARGE_PAGE_BYTES
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes for embeddings: {error.strerror}") from None
    # A kernel without large pages refuses.
    with contextlib.suppress(OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.float32)
