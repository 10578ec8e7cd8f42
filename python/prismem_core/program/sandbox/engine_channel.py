"""The engine's end of a socket to a worker: never blocks past a limit, never trusts what arrives."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import LimitError
from prismem_core.program.sandbox import frames
from prismem_core.program.sandbox.fork_gate import ForkGate
from prismem_core.program.sandbox.limits import Budget

_CREDENTIALS = struct.Struct("3i")
_DESCRIPTOR = struct.Struct("i")
# ioctl PIDFD_GET_INFO, and its structure (linux/pidfd.h): what is asked for and given first, the exit code last.
_GET_NOTE, _NOTE_BYTES, _NOTE_OF_EXIT = 0xC040FF0B, 64, 1 << 3
_SHORTEST_POLL_SECONDS = 0.01
_LONGEST_POLL_SECONDS = 0.1
_STANDSTILL_SECONDS = 1.0
_READ_AHEAD_BYTES = 32 << 10
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The system's answer is read from a file each time.
_CORES = os.cpu_count() or 1


class ChannelClosed(Exception):
    """The other end is gone."""


class WatchedProcess:
    """A process that the engine clocks and kills, held by a descriptor so that its pid cannot be reused."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._memory: int | None = None
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.pidfd_open(pid)

    def cpu_seconds(self) -> float | None:
        """Processor time of the whole process so far, or None once it is gone."""
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return None

    def memory_bytes(self) -> int:
        """Resident memory, shared pages included; 0 once the process is gone or where the system hides it."""
        return self._pages()[0] * _PAGE_BYTES

    def anonymous_bytes(self) -> int:
        """Resident memory that is of no file, pages that a fork shares included; 0 as `memory_bytes`."""
        resident, of_files = self._pages()
        return (resident - of_files) * _PAGE_BYTES

    def _pages(self) -> tuple[int, int]:
        """Resident pages, and those of them that are of files."""
        try:
            if self._memory is None:
                if self._descriptor is None:
                    return 0, 0
                self._memory = os.open(f"/proc/{self.pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
            _, resident, of_files, *_ = os.pread(self._memory, 128, 0).split()
        except (OSError, ValueError):
            return 0, 0
        return int(resident), int(of_files)

    def wait_status(self, patience_seconds: float) -> int | None:
        """How the process ended, as wait(2) tells it; None if it has not ended or where the kernel keeps no such note.

        Linux notes it in the descriptor since 6.15, whoever the process's parent is.
        """
        if self._descriptor is None:
            return None
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        note = bytearray(_NOTE_BYTES)
        struct.pack_into("=Q", note, 0, _NOTE_OF_EXIT)
        try:
            if not poll.poll(patience_seconds * 1000):
                return None
            fcntl.ioctl(self._descriptor, _GET_NOTE, note)
        except OSError:
            return None
        given: int = struct.unpack_from("=Q", note)[0]
        status: int = struct.unpack_from("=i", note, _NOTE_BYTES - 4)[0]
        return status if given & _NOTE_OF_EXIT else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing once the process is gone."""
        if self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """End the process at once and let go of it; further calls do nothing."""
        self.signal(signal.SIGKILL)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        memory, self._memory = self._memory, None
        if memory is not None:
            os.close(memory)


class Meter:
    """Processor and wall time of one call, the engine's own part left out; raises LimitError past the budget."""

    def __init__(self, what: str, budget: Budget) -> None:
        self._what = what
        self._budget = budget
        self._start = time.monotonic()
        self._check_at = self._start + _SHORTEST_POLL_SECONDS
        self._engine_seconds = 0.0
        self._process: WatchedProcess | None = None
        self._cpu_before = 0.0
        self._cpu_seconds = 0.0

    def watch(self, process: WatchedProcess, *, fresh: bool) -> None:
        """Clock `process` from now on, or from its birth if it is `fresh`."""
        self._process = process
        self._cpu_before = 0.0 if fresh else process.cpu_seconds() or 0.0

    @contextlib.contextmanager
    def engine_time(self) -> Any:
        """Time inside does not count."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._engine_seconds += time.monotonic() - start

    @property
    def wall_seconds(self) -> float:
        """Wall seconds since the call began, the engine's own left out."""
        return time.monotonic() - self._start - self._engine_seconds

    @property
    def cpu_seconds(self) -> float:
        """Processor seconds of the watched process in this call; the last known ones once it is gone."""
        now = self._process.cpu_seconds() if self._process else None
        if now is not None:
            self._cpu_seconds = max(0.0, now - self._cpu_before)
        return self._cpu_seconds

    @property
    def memory_bytes(self) -> int:
        """Resident memory of the watched process now."""
        return self._process.memory_bytes() if self._process else 0

    def check(self) -> float:
        """Raise LimitError past a limit; else return how many seconds may pass before the next check."""
        cpu_left = self._budget.cpu_seconds - self.cpu_seconds
        if cpu_left < 0:
            raise LimitError("limit:cpu", f"{self._what} used more than {self._budget.cpu_seconds:g} s processor time")
        wall_left = self._budget.wall_seconds - self.wall_seconds
        if wall_left < 0:
            raise LimitError("limit:wall", f"{self._what} took longer than {self._budget.wall_seconds:g} s")
        soonest = min(cpu_left / _CORES, wall_left, _LONGEST_POLL_SECONDS)
        return max(soonest, _SHORTEST_POLL_SECONDS)

    def forgive(self, seconds: float) -> None:
        """A wait took so much longer than it was to: much of that is a standstill of the engine, nobody's fault."""
        if seconds > _STANDSTILL_SECONDS:
            self._engine_seconds += seconds
            self._check_at += seconds

    def patience(self) -> float:
        """Seconds that a wait may last now; checks the limits first if that is due, however often something arrives."""
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + self.check()
        return self._check_at - now


class EngineChannel:
    """Frames over one socket; every method may raise LimitError (meter), ChannelClosed and frames.FrameError.

    While it waits it answers the forks that wait at the worker's gate.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._gate: ForkGate | None = None
        self._poll = select.poll()
        self._descriptor = connection.fileno()
        self._poll.register(self._descriptor, 0)
        self._awaited = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        self._buffer = memoryview(bytearray(_READ_AHEAD_BYTES))
        self._ahead = self._buffer[:0]

    def watch(self, gate: ForkGate) -> None:
        """Answer the forks at `gate` from now on."""
        self._gate = gate
        self._poll.register(gate.fileno(), select.POLLIN)

    def send(
        self,
        message: Mapping[str, Any],
        meter: Meter,
        descriptor: int | None = None,
        rows: NDArray[np.float32] | None = None,
    ) -> None:
        """One frame, with an open file of this process where `descriptor` names one.

        The bytes of `rows`, contiguous float32 whose shape the message tells, follow it.
        """
        data = memoryview(frames.encode(dict(message), frames.TO_WORKER_BYTES))
        while descriptor is not None:
            try:
                sent = socket.send_fds(self._socket, [data], [descriptor])
            except BlockingIOError:
                self._wait(select.POLLOUT, meter)
            except OSError:
                raise ChannelClosed from None
            else:
                self.sent_bytes += sent
                data, descriptor = data[sent:], None
        left = [data] if rows is None else [data, rows.reshape(-1).view(np.uint8).data]
        while left := [part for part in left if part]:
            try:
                sent = self._socket.sendmsg(left)
            except BlockingIOError:
                self._wait(select.POLLOUT, meter)
                continue
            except OSError:
                raise ChannelClosed from None
            self.sent_bytes += sent
            for place, part in enumerate(left):
                left[place] = part[sent:]
                sent = max(0, sent - len(part))

    def receive(self, meter: Meter) -> dict[str, Any]:
        """The next frame, a claim of the worker that nobody has checked."""
        header = self._receive_bytes(frames.LENGTH.size, meter)
        return frames.decode(self._receive_bytes(frames.length(header, frames.FROM_WORKER_BYTES), meter))

    def receive_first(self, meter: Meter, *, listener: bool = False) -> tuple[dict[str, Any], int, int | None]:
        """The first frame, the pid that the kernel says it came from (needs SO_PASSCRED), and a descriptor.

        One is accepted only where a `listener` is expected, from a process that has seen no program yet.
        """
        space = socket.CMSG_SPACE(_CREDENTIALS.size) + (socket.CMSG_SPACE(_DESCRIPTOR.size) if listener else 0)
        while True:
            try:
                header, ancillary, _, _ = self._socket.recvmsg(frames.LENGTH.size, space)
                break
            except BlockingIOError:
                self._wait(select.POLLIN, meter)
            except OSError:
                raise ChannelClosed from None
        if not header:
            raise ChannelClosed
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        pid = descriptor = None
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid = _CREDENTIALS.unpack_from(data)[0]
            elif level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptor = _DESCRIPTOR.unpack_from(data)[0]
        try:
            header += self._receive_bytes(frames.LENGTH.size - len(header), meter)
            message = frames.decode(self._receive_bytes(frames.length(header, frames.FROM_WORKER_BYTES), meter))
            if not pid:
                raise frames.FrameError("a first frame came without its sender's identity")
        except BaseException:
            if descriptor is not None:
                os.close(descriptor)
            raise
        return message, pid, descriptor

    def expect_silence(self) -> None:
        """FrameError if bytes wait that no order asked for; ChannelClosed if the other end is gone."""
        if self._ahead:
            raise frames.FrameError("the worker sent something that no order asked for")
        try:
            waiting = self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            raise ChannelClosed from None
        if not waiting:
            raise ChannelClosed
        raise frames.FrameError("the worker sent something that no order asked for")

    def close(self) -> None:
        self._socket.close()

    def _receive_bytes(self, size: int, meter: Meter) -> memoryview:
        """The next bytes, which stay as they are until the next call."""
        if size > len(self._buffer):
            data = memoryview(bytearray(size))
            data[: len(self._ahead)] = self._ahead
            filled, self._ahead = len(self._ahead), self._buffer[:0]
            while filled < size:
                filled += self._receive_some(data[filled:], meter)
            return data
        if size > len(self._ahead):
            # The bytes ahead may stand anywhere in the buffer.
            kept = len(self._ahead)
            self._buffer[:kept] = bytes(self._ahead)
            while kept < size:
                kept += self._receive_some(self._buffer[kept:], meter)
            self._ahead = self._buffer[:kept]
        found, self._ahead = self._ahead[:size], self._ahead[size:]
        return found

    def _receive_some(self, view: memoryview, meter: Meter) -> int:
        # A worker is seldom done already, so it is waited for before it is read from.
        while True:
            self._wait(select.POLLIN, meter)
            try:
                count = self._socket.recv_into(view)
            except BlockingIOError:
                continue
            except OSError:
                raise ChannelClosed from None
            if count == 0:
                raise ChannelClosed
            self.received_bytes += count
            return count

    def _wait(self, events: int, meter: Meter) -> None:
        """Return once the socket is ready; check the meter now and then meanwhile."""
        if events != self._awaited:
            self._poll.modify(self._descriptor, events)
            self._awaited = events
        while True:
            patience = meter.patience()
            before = time.monotonic()
            ready = self._poll.poll(math.ceil(patience * 1000))
            meter.forgive(time.monotonic() - before - patience)
            for descriptor, _ in ready:
                if descriptor == self._descriptor:
                    return
            if ready and self._gate is not None:
                self._gate.answer()
