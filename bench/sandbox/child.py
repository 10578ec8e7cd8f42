"""A helper process at the other end of a socket."""

from __future__ import annotations

import socket
import subprocess
import sys


class Child:
    """A Python that runs `script`, in which `descriptor` is its end of `socket`; ended by `close`."""

    def __init__(self, script: str) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            # The folder may be part of the package by an addition to its path; the helpers need the package alone.
            code = f"import sys\nsys.path[:] = {sys.path!r}\ndescriptor = {theirs.fileno()}\n{script}"
            self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()])
        self.pid = self._process.pid

    def close(self) -> None:
        """Close the socket, at which the helper ends."""
        self.socket.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
