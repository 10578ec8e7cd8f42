"""Engine side of the zygote: start it in a clean environment, order workers from it, end it with all it made."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from prismem_core.errors import SandboxError
from prismem_core.program.sandbox import frames
from prismem_core.program.sandbox.layers import Layer, read_layers
from prismem_core.program.sandbox.sealed_rows import SealedRows

# What passes from the engine's environment: choices of a numeric kernel, so that both sides round alike.
_PASSED_ON = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "TZ": "UTC",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_START_SECONDS = 120.0
_ORDER_SECONDS = 60.0
_END_SECONDS = 10.0


class ZygoteGone(Exception):
    """The zygote does not answer any more; its workers are gone with it."""


class Endable(Protocol):
    """What the launcher knows of a process."""

    def end(self, reason: str) -> object: ...


class Launcher:
    """One zygote process; orders may come from several threads. `without` names layers to leave off.

    `running` are the processes that have not been ended, `dropped` those of them that nobody can use any more, `sealed`
    what their programs are handed again and again.
    """

    layers: tuple[Layer, ...]
    """The layers of its workers, as the zygote witnessed them when it started."""

    def __init__(self, without: Collection[str] = ()) -> None:
        if sys.platform != "linux" or not sys.executable:
            raise SandboxError(
                "memory programs run in a sandbox that needs Linux and a Python interpreter to start; "
                "use Linux, a container or WSL2"
            )
        environment = dict(_ENVIRONMENT)
        environment.update({name: os.environ[name] for name in _PASSED_ON if name in os.environ})
        self.sealed = SealedRows()
        self.running: set[Endable] = set()
        self.dropped: deque[Endable] = deque()
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_ORDER_SECONDS)
        script = Path(__file__).with_name("zygote.py")
        # PYTHONPATH does not pass, and may be how the engine found numpy.
        numpy_folder = str(Path(np.__file__).resolve().parent.parent)
        settings = json.dumps({"numpy_folder": numpy_folder, "without": sorted(without)})
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-P", "-B", str(script), str(theirs.fileno()), settings],
                env=environment,
                cwd="/",
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self._socket.close()
            raise SandboxError(f"the sandbox could not be started: {error}") from error
        finally:
            theirs.close()
        self._await_start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def spawn(self, memory_bytes: int) -> tuple[int, socket.socket]:
        """A new worker's number and the socket to it; SandboxError if the system refuses another process.

        The number is for `end`: in a namespace of processes it is not the pid that the engine sees.
        """
        while self.dropped:
            self.dropped.popleft().end("nobody could use it any more")
        mine, theirs = socket.socketpair()
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            answer = self._order({"op": "spawn", "memory_bytes": memory_bytes}, theirs.fileno())
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        if "number" not in answer:
            mine.close()
            raise SandboxError(f"no worker process could be made: {answer.get('refused')}")
        return int(answer["number"]), mine

    def end(self, number: int, *, dying: bool = False) -> tuple[int, bool]:
        """Kill a worker and its copies; its wait status and whether it had ended by itself.

        A `dying` one, whose channel is closed, gets a moment to end.
        """
        answer = self._order({"op": "end", "number": number, "dying": dying})
        return int(answer["status"]), bool(answer["by_itself"])

    def alive(self) -> bool:
        """Whether the zygote still holds its socket: this is closed before its workers are told of its end."""
        poll = select.poll()
        try:
            poll.register(self._socket.fileno(), select.POLLRDHUP)
        except ValueError:
            return False
        return not poll.poll(0)

    def close(self) -> None:
        """End the zygote, its workers and all their descendants; returns when they are gone."""
        self._socket.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        for process in list(self.running):
            process.end("the sandbox was closed")
        self.sealed.close()

    def abandon(self) -> None:
        """In a forked child of the engine: let go of the descriptors, touch no process."""
        self._socket.close()

    def _order(self, message: dict[str, Any], descriptor: int | None = None) -> dict[str, Any]:
        data = frames.encode(message, frames.TO_WORKER_BYTES)
        with self._lock:
            try:
                if descriptor is None:
                    self._socket.sendall(data)
                else:
                    sent = socket.send_fds(self._socket, [data], [descriptor])
                    self._socket.sendall(data[sent:])
                return self._receive()
            except BaseException as error:
                # An answer still to come would be taken for the next order's.
                self._socket.close()
                if isinstance(error, OSError):
                    raise ZygoteGone(str(error)) from None
                raise

    def _receive(self) -> dict[str, Any]:
        header = self._read(frames.LENGTH.size)
        return frames.decode(self._read(frames.length(header, frames.FROM_WORKER_BYTES)))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the zygote closed its socket")
            data += part
        return data

    def _await_start(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        self._socket.settimeout(_START_SECONDS)
        try:
            self.layers = read_layers(self._receive().get("layers"))
        except (OSError, ValueError):
            late = time.monotonic() >= deadline
            self._process.kill()
            stderr = b""
            with contextlib.suppress(subprocess.TimeoutExpired):
                stderr = self._process.communicate(timeout=_END_SECONDS)[1]
            self._socket.close()
            last = stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            reason = f"no answer within {_START_SECONDS:g} s" if late else (last or ["it ended without a word"])[0]
            raise SandboxError(f"the sandbox could not be started: {reason}") from None
        self._socket.settimeout(_ORDER_SECONDS)
