"""The zygote's and the workers' end of a socket to the engine: blocking reads, no limits of its own.

The engine's end (`engine_channel`) is the one that distrusts; this end only has to speak the same frames.
"""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.program.sandbox import frames


class BlockingChannel:
    def __init__(self, descriptor: int) -> None:
        # With family, type and protocol given nothing is asked of the kernel that a confined process may not ask.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=descriptor)

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
        header, descriptors, _, _ = socket.recv_fds(self._socket, frames.LENGTH.size, 1)
        if not header:
            return None
        header += self._read(frames.LENGTH.size - len(header))
        body = self._read(frames.length(header, frames.TO_WORKER_BYTES))
        return frames.decode(body), (descriptors[0] if descriptors else None)

    def receive_array(self, rows: int, columns: int) -> NDArray[np.float32]:
        """A fresh writable float32 array (rows, columns) whose bytes follow the frame just read."""
        data = self._read(rows * columns * 4)
        return np.frombuffer(data, dtype="<f4").reshape(rows, columns)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise EOFError("the engine closed the channel in the middle of a frame")
            view = view[count:]
        return data
