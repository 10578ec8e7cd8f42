"""A sandbox whose processes are clocked: what the zygote, its workers and their copies use counts with the engine."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prismem_core.errors import SandboxError
from prismem_core.program.sandbox import BackendHandler, CallReport, Limits, MemoryWorker, Sandbox

from ..contest import PeerMissing

LIMITS = Limits(index_embed_texts=1 << 20, retrieve_embed_texts=1 << 20)


class Clocks:
    """Processor seconds of other processes, since each is watched."""

    def __init__(self) -> None:
        self._living: dict[int, float] = {}
        self._ended = 0.0

    def watch(self, pid: int, *, from_birth: bool = False) -> None:
        """Count the process from now on, or from its birth."""
        self._living[pid] = 0.0 if from_birth else clock(pid)

    def unwatch(self, pid: int) -> None:
        """Count no more of the process, which is still there or waits to be reaped."""
        self._ended += clock(pid) - self._living.pop(pid)

    def add(self, seconds: float) -> None:
        """Count seconds that were read elsewhere."""
        self._ended += seconds

    def seconds(self) -> float:
        """All of it so far."""
        return self._ended + sum(clock(pid) - since for pid, since in self._living.items())


def clock(pid: int) -> float:
    """Processor seconds of a process that is there, or ended and was not yet reaped."""
    return time.clock_gettime((~pid << 3) | 2)


class ClockedSandbox:
    """Started when first used. The end of a worker is counted to its last page, that of a copy is not: none sees it."""

    def __init__(self) -> None:
        self.clocks = Clocks()
        self._sandbox: Sandbox | None = None

    @contextmanager
    def worker(self, source: str, backend: BackendHandler, limits: Limits = LIMITS) -> Iterator[MemoryWorker]:
        """A worker that has loaded the program, counted from its birth to its end."""
        worker = self.open(source, backend, limits)
        try:
            yield worker
        finally:
            self.end(worker)

    def open(self, source: str, backend: BackendHandler, limits: Limits = LIMITS) -> MemoryWorker:
        """As `worker`; the caller ends it with `end`."""
        worker = self.started().open(source, backend, limits)
        self.clocks.watch(worker.pid, from_birth=True)
        return worker

    def end(self, worker: MemoryWorker) -> None:
        """Kill the worker, and let it go once it has given back its memory."""
        _await_death(worker.pid)
        self.clocks.unwatch(worker.pid)
        worker.close()

    def count(self, report: CallReport) -> None:
        """Count what a copy used, which its report tells."""
        self.clocks.add(report.cpu_seconds)

    def started(self) -> Sandbox:
        """The sandbox; PeerMissing where this system cannot confine programs."""
        if self._sandbox is None:
            sandbox = Sandbox()
            try:
                sandbox.layers()
            except SandboxError as error:
                sandbox.close()
                raise PeerMissing(f"no sandbox here: {' '.join(str(error).split())[:150]}") from error
            self._sandbox = sandbox
            assert sandbox.zygote_pid is not None
            for pid in _family(sandbox.zygote_pid):
                self.clocks.watch(pid)
        return self._sandbox

    def close(self) -> None:
        """End everything."""
        if self._sandbox is not None:
            self._sandbox.close()


def _family(pid: int) -> list[int]:
    """The process and its descendants; with namespaces the zygote is a child of the process that was started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(descendant for child in children for descendant in _family(int(child)))]


def _await_death(pid: int) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
    finally:
        os.close(descriptor)
