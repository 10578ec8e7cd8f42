"""Frames over a socket between the engine and the process of an outside system."""

from __future__ import annotations

import socket
from typing import Any

from prismem_core.program.sandbox import frames

FRAME_BYTES = frames.TO_WORKER_BYTES


class Channel:
    """One end; `receive` gives None once the other has gone and raises TimeoutError after `seconds` of silence."""

    def __init__(self, connection: socket.socket, seconds: float | None = None) -> None:
        self._socket = connection
        self._socket.settimeout(seconds)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Channel:
        """The end that a process inherits as an open file."""
        return cls(socket.socket(fileno=descriptor))

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; FrameError if it does not fit into a frame or holds what JSON cannot carry."""
        self._socket.sendall(frames.encode(message, FRAME_BYTES))

    def receive(self) -> dict[str, Any] | None:
        """The next message."""
        try:
            head = self._read(frames.LENGTH.size)
            return None if head is None else self._body(frames.length(head, FRAME_BYTES))
        except ConnectionError:
            return None

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _body(self, size: int) -> dict[str, Any] | None:
        data = self._read(size)
        return None if data is None else frames.decode(data)

    def _read(self, size: int) -> bytes | None:
        parts = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
