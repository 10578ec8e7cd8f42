"""The engine's word on each fork of a worker: the kernel asks through seccomp's user notification."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import Counter

from prismem_core.program.sandbox.kernel import notification


class ForkGate:
    """Lets a process of one worker fork once for each copy that was ordered of it, and refuses every other fork.

    The filter has already fixed the flags of the call, and those are in registers, so nothing can change between the
    decision and the fork. Safe to use from several threads: each answers what waits while it waits for its own frame.
    """

    def __init__(self, listener: int) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._allowed: Counter[int] = Counter()
        self._forked: Counter[int] = Counter()
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def fileno(self) -> int:
        """The descriptor that is readable while a fork waits for its answer; -1 once closed."""
        return self._listener

    def allow(self, pid: int) -> None:
        """Let the process `pid` fork once more."""
        with self._lock:
            self._allowed[pid] += 1

    def revoke(self, pid: int) -> bool:
        """Take back one permission; whether there was one that had not been used."""
        with self._lock:
            return _taken(self._allowed, pid)

    def claim(self, pid: int) -> bool:
        """Take one fork of `pid` that was let go for granted as a copy that showed itself; whether there was one."""
        with self._lock:
            return _taken(self._forked, pid)

    def answer(self) -> None:
        """Answer all forks that wait; returns at once if none does."""
        with self._lock:
            while self._listener >= 0 and self._waiting():
                self._answer_one()

    def close(self) -> None:
        """Refuse everything from now on."""
        with self._lock:
            listener, self._listener = self._listener, -1
            if listener >= 0:
                os.close(listener)

    def _waiting(self) -> bool:
        return any(event & select.POLLIN for _, event in self._poll.poll(0))

    def _answer_one(self) -> None:
        # A process that ended while it waited, or that a signal interrupted, takes no answer.
        with contextlib.suppress(OSError):
            call = notification.receive(self._listener)
            if call is None:
                return
            if self._allowed[call.pid] <= 0:
                notification.refuse(self._listener, call)
                return
            # A signal takes the call back and has it made again; the permission is then still there.
            notification.let(self._listener, call)
            self._allowed[call.pid] -= 1
            self._forked[call.pid] += 1


def _taken(counts: Counter[int], pid: int) -> bool:
    if counts[pid] <= 0:
        return False
    counts[pid] -= 1
    return True
